// The transport seam: moves bytes between ranks. Knows no collective, group, dtype or algorithm.
//
// Two families implement it. *Memory* transports (inproc, shm) reach the peer's memory and have windows onto
// it; *message* transports (tcp, ucx, ofi) post. Everything below holds for both and is checked by the
// conformance suite, also through a decorator that delays, answers `again` and kills peers. A capability that
// is claimed must work; one that is not is refused with StatusCode::unsupported.
//
// Threading. All calls on a transport and on its endpoints are made by one thread at a time (the transport's
// owner), unless a function says "any thread". Different transports may run in parallel. Nothing here blocks.
//
// Order and matching. An endpoint has channels 0 .. caps().channels - 1. Messages of one (endpoint,
// direction, channel) match receives first in, first out; between channels there is no order, and there are
// no wildcards. An unmatched message never keeps one of another channel or endpoint from arriving.
//
// Completion. Each send or recv completes exactly once: by returning `done`, or later by one Event with its
// request. After completion of a send its memory may be written, which does not say that the peer received
// it; after completion of a recv its data is visible.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.hpp"

namespace tutti {

enum class Family : std::uint8_t { memory, message };
using ByteRange = std::span<std::byte>;
using ConstByteRange = std::span<const std::byte>;

// Memory that peers on this node can map: buffers of tutti::alloc and the control blocks of groups. Any
// thread.
class SharedHeap {
 public:
  struct Location {
    std::uint32_t segment = 0;
    std::uint64_t offset = 0;
  };
  virtual ~SharedHeap() = default;
  // Zeroed, 64-byte aligned. Errors: resource_exhausted, naming the limit.
  virtual Result<ByteRange> allocate(std::size_t bytes) = 0;
  virtual void release(ByteRange memory) = 0;
  // Memory of this heap stays mapped here as long as somebody has this, also after its transport has ended.
  virtual std::shared_ptr<SharedHeap> hold() = 0;
  // Where a byte lies, or false if it is not in this heap (an ordinary buffer).
  virtual bool locate(const std::byte* address, std::size_t bytes, Location* location) const = 0;
};

// Capabilities of a transport, fixed once it is made. Costs are integers, equal on all ranks.
struct TransportCaps {
  std::string_view name;  // "shm"
  Family family = Family::message;
  std::string unavailable;     // why it cannot be used here; empty if it can
  std::string detail;          // one line for `tutti info`: device, provider, single copy or not and why
  std::uint32_t channels = 1;  // per endpoint
  std::uint64_t alpha_ns = 0;  // an empty message
  std::uint64_t beta_ps_per_byte = 0;
  bool has_in_place_delivery = false;  // Sink::deliver is honoured; otherwise a Sink with deliver is refused
  SharedHeap* heap = nullptr;          // memory family: what peers can map; null otherwise
};

// Where an arriving message goes: into `ranges` in order, or, if `deliver` is set, through calls
// deliver(context, offset, data) in ascending, gapless offsets that are multiples of 64, made from within
// recv() or progress(): a reduction may read the message where it lies. All stays valid until completion.
//
// A recv that only polls takes nothing; receives from any of several endpoints are built on it. On a channel
// without a pending recv it answers `done` if the next message (or its beginning) is there, `again` if not
// yet, and `pending` if none will come; then the event is `failed`. A sleeper is woken for a message that
// nobody receives yet. That is no event, so it polls again after arm().
struct Sink {
  std::span<const ByteRange> ranges;
  std::size_t total_bytes = 0;  // exact length of the message expected
  void (*deliver)(void* context, std::size_t offset, ConstByteRange data) = nullptr;
  void* context = nullptr;
  bool only_polls = false;
};

using RequestId = std::uint64_t;
enum class Post : std::uint8_t {
  done,     // complete; no event follows
  pending,  // taken; one event with the request follows
  again,    // nothing was taken: call again after progress()
};

class Endpoint;
class SharedWindow;
struct Event {
  enum class Kind : std::uint8_t {
    sent,      // send `request` is complete
    received,  // recv `request` is complete
    mismatch,  // the message for recv `request` has another match header or length than expected, which
               // `match_header` and `bytes` say; the message is consumed, nothing is delivered
    control,   // control bytes arrived at `endpoint`, or a notice at `window`; `data` is valid until the next
               // progress()
    failed,    // the peer of `request` is gone: one event for each request that was pending, none otherwise
  };
  Kind kind = Kind::sent;
  RequestId request = 0;
  std::uint64_t match_header = 0;
  std::uint64_t bytes = 0;
  Endpoint* endpoint = nullptr;
  SharedWindow* window = nullptr;
  ConstByteRange data;
};

// The owner of a transport sleeps on one of these; exactly one is set.
struct Waitable {
  int fd = -1;                                // poll(2) for reading
  const std::uint32_t* futex_word = nullptr;  // FUTEX_WAIT (shared form) on the value of `arm`
  std::chrono::microseconds longest_poll{0};  // no way to be woken: poll at least this often
};
struct ArmResult {
  bool is_armed = false;          // false: events are pending, do not sleep
  std::uint32_t futex_value = 0;  // for Waitable::futex_word
};

// Where memory of a shared heap lies. No bytes: there is none.
struct SegmentRange {
  std::uint32_t segment = 0;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

// Says whether a peer sleeps, for those who publish in memory that it polls.
struct PeerBell {
  std::atomic<std::uint32_t>* is_sleeping =
      nullptr;               // not 0: after publishing, call wake(); null: not known yet
  bool needs_fence = false;  // read it by a read-modify-write: the sleeper cannot order its side
};

// Memory family: what the ranks of one context show each other of their heaps, without messages; like the windows
// of MPI_Win_allocate_shared. Peers are numbered as in Transport::open_window(). Nothing here waits.
class SharedWindow {
 public:
  static constexpr std::uint32_t kRanges = 3;
  static constexpr std::size_t kMostNoticeBytes = 256;
  virtual ~SharedWindow() = default;

  // Shows the peers a range of this rank's heap, which may be none, under a number below kRanges; each number once.
  virtual void expose(std::uint32_t number, const SegmentRange& range) = 0;

  // The range that the peer has exposed under that number; nullopt: nothing yet. May cost system calls.
  virtual std::optional<SegmentRange> query(std::uint32_t peer, std::uint32_t number) = 0;

  // A segment of the peer's heap, mapped as long as the window; empty until it can be mapped. May cost system calls.
  virtual ByteRange segment(std::uint32_t peer, std::uint32_t number) = 0;

  // Valid as long as the window.
  virtual PeerBell bell(std::uint32_t peer) = 0;
  // Wakes a peer that sleeps, and whose bell is known.
  virtual void wake(std::uint32_t peer) = 0;

  // Has the peer closed its side or died? All that it published before is visible, and its notice is delivered first.
  // Costs a system call.
  virtual bool is_gone(std::uint32_t peer) = 0;
  // The limit of this process that keeps the peer's memory from it although the peer lives. Ok if there is none.
  virtual Status trouble(std::uint32_t peer) const = 0;

  // Tells the peers a last word, of at most kMostNoticeBytes: once, before close(). It gets to each that has opened
  // its side, now or later, as an Event::control with its window.
  virtual void notify(ConstByteRange bytes) = 0;

  // To the peers this rank is gone. Mapped memory stays so. Idempotent; the destructor does it, too.
  virtual void close() = 0;
};

// One peer in one context.
class Endpoint {
 public:
  virtual ~Endpoint() = default;

  // Sends the concatenation of `ranges` with a 64-bit match header. List and memory stay valid until
  // completion. The sender chooses the protocol: inline, staged, or read by the peer. A peer that may not
  // read the sender's memory answers "stage it", at any byte.
  virtual Post send(std::uint32_t channel, std::uint64_t match_header, std::span<const ConstByteRange> ranges,
                    RequestId request) = 0;

  // Receives the next message of the channel. Completes as Event::mismatch, never as `done`, if its match
  // header is not `expected_header` or its length not sink.total_bytes.
  virtual Post recv(std::uint32_t channel, std::uint64_t expected_header, const Sink& sink,
                    RequestId request) = 0;

  // At most 256 unsolicited bytes, in order among control messages, outside all channels.
  virtual Post control(ConstByteRange bytes) = 0;

  // The limit of this process that keeps messages from passing although the peer lives. Ok if there is none;
  // then an Event::failed means that the peer is gone.
  virtual Status trouble() const { return {}; }

  // Completes everything pending exactly once (as `failed`); afterwards no peer touches a buffer of ours.
  // With fence, first delivers what was sent and completed. Idempotent; the destructor closes without fence.
  virtual void close(bool fence) = 0;
};

// How far two instances of the memory family have come in mapping each other's memory.
enum class Contact : std::uint8_t {
  begun,  // the peer has not been told yet
  told,   // the peer can map our memory, and has not told us of its own
  met,    // both
};

class Transport {
 public:
  virtual ~Transport() = default;

  virtual const TransportCaps& caps() const = 0;

  // How peers find this transport: opaque bytes, valid as long as it lives. Any thread.
  virtual std::vector<std::byte> address() const = 0;

  // Whether the owner of `theirs` can be reached by the owner of `mine`: pure, no system call. The estimated
  // cost of an empty message in ns, or unsupported with the reason ("another node", "another user").
  virtual Result<std::uint64_t> reach(std::span<const std::byte> mine,
                                      std::span<const std::byte> theirs) const = 0;

  // Memory family: tells the peer of our memory and maps its own, so that an obstacle is known before
  // anything is sent. Optional, never waits; call it again. Any thread. Errors: resource_exhausted, naming
  // the limit of this process; unsupported; peer_failed.
  virtual Result<Contact> meet(std::span<const std::byte> peer_address) {
    static_cast<void>(peer_address);
    return Contact::met;
  }

  // Opens an endpoint to the peer with this address. Endpoints talk to each other only if both were opened
  // with the same `context`; every (peer, context) is opened once per side. Never waits for the peer: posts
  // proceed when the peer has opened its side.
  virtual Result<std::unique_ptr<Endpoint>> open(std::span<const std::byte> peer_address,
                                                 std::uint64_t context) = 0;

  // Memory family: opens this rank's side of a window. All members give the addresses of all in one order; the own
  // one is empty. `context` is as for open(), and numbers windows apart from endpoints. Never waits for the peers.
  // Errors: unsupported; resource_exhausted, naming the limit.
  virtual Result<std::unique_ptr<SharedWindow>> open_window(std::span<const ConstByteRange> addresses,
                                                            std::uint64_t context) {
    static_cast<void>(addresses);
    static_cast<void>(context);
    return unsupported("messages only: no memory is shared");
  }

  // Moves everything on; fills up to events.size() events and returns their number. Calls only Sink::deliver.
  virtual std::size_t progress(std::span<Event> events) = 0;

  // Sleeping: w = waitable(); if arm().is_armed, the owner may sleep on w and will be woken by the
  // next event. arm() polls once more after making its intent visible, so that no event is missed.
  virtual Waitable waitable() const = 0;
  virtual ArmResult arm() = 0;

  // The process ends, perhaps before the destructor: tells the peers. All endpoints are closed. Afterwards
  // completed sends no longer depend on this process. Waits a bounded time; idempotent; the destructor does
  // it, too. progress() may be called afterwards.
  virtual void leave() {}
};

}  // namespace tutti
