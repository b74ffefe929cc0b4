// An endpoint over memory that both sides can see: cells, staged rings, and reading the peer's memory.
// Knows neither how memory is shared nor other peers; send.cpp and receive.cpp hold the two directions,
// siblings.cpp the memory that a channel's first use needs.
//
// Protocols of a message, chosen by the sender:
//   in_line, in_cell  up to kCellBytes: copied into a cell; complete at once while a cell is free
//   staged            copied piece by piece through the channel's ring, which stays in cache
//   read              the receiver reads the sender's memory itself; it may ask for staging at any byte
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "transports/memory/host.hpp"
#include "transports/memory/instance.hpp"
#include "transports/memory/layout.hpp"
#include "transports/memory/peer_memory.hpp"
#include "transports/memory/worker.hpp"
#include "transports/transport.hpp"

namespace tutti::memory {

struct SendOp {
  std::uint64_t match_header = 0;
  std::span<const ConstByteRange> ranges;
  std::uint64_t total_bytes = 0;
  RequestId request = 0;
  std::uint64_t offset = 0;     // staged so far
  std::size_t range_index = 0;  // where in the ranges `offset` is
  std::size_t range_offset = 0;
  std::uint64_t cell = 0;  // position of the header, once it is out
  bool is_started = false;
};

struct RecvOp {
  std::uint64_t match_header = 0;
  Sink sink;
  RequestId request = 0;
};

// The message that is arriving on a channel.
struct ArrivingMessage {
  enum class Kind : std::uint8_t { none, staged, read };
  Kind kind = Kind::none;
  bool is_discarded = false;  // it did not match: its bytes go nowhere
  bool has_asked_to_stage = false;
  std::uint64_t total_bytes = 0;
  std::uint64_t offset = 0;
  std::uint64_t first_piece_bytes = 0;  // 0: the piece's line says it
  std::size_t range_index = 0;          // where in the sink's ranges `offset` is
  std::size_t range_offset = 0;
};

// Counts messages in a row with one match header: the next call posts as many again, and all of them may have
// to wait, though none of the first ones had to.
struct Run {
  std::uint64_t match_header = 0;
  std::size_t count = 0;

  std::size_t add(std::uint64_t next_header) {
    count = next_header == match_header ? count + 1 : 1;
    match_header = next_header;
    return count;
  }
};

// One channel of an endpoint, both directions; made when it, or that of a sibling, is first used.
struct Channel {
  std::uint32_t index = 0;
  Run sent, received;
  // sending
  CellRing* cells = nullptr;
  StagedRing* ring = nullptr;
  std::uint64_t cells_place = 0;
  std::uint64_t ring_place = 0;
  std::uint64_t next_cell = 0;
  std::uint64_t acked_cells = 0;
  std::uint64_t next_piece = 0;
  std::uint64_t acked_pieces = 0;
  Fifo<SendOp> sends;  // waiting or being staged
  Fifo<SendOp> reads;  // published as `read`, not yet consumed
  // receiving
  CellRing* peer_cells = nullptr;
  StagedRing* peer_ring = nullptr;
  std::uint64_t expected_cell = 0;
  std::uint64_t expected_piece = 0;
  Fifo<RecvOp> recvs;
  ArrivingMessage arrival;
};

class MemoryEndpoint final : public Endpoint {
 public:
  MemoryEndpoint(Host* host, Worker* worker, std::shared_ptr<Peer> peer, std::uint64_t context,
                 const Nonce& peer_nonce)
      : host_(host),
        worker_(worker),
        memory_(host, std::move(peer)),
        peer_nonce_(peer_nonce),
        context_(context) {}
  ~MemoryEndpoint() override;
  MemoryEndpoint(const MemoryEndpoint&) = delete;
  MemoryEndpoint& operator=(const MemoryEndpoint&) = delete;

  // Allocates and announces the link, and finds its siblings. Errors: resource_exhausted.
  Status announce();

  Post send(std::uint32_t channel, std::uint64_t match_header, std::span<const ConstByteRange> ranges,
            RequestId request) override;
  Post recv(std::uint32_t channel, std::uint64_t expected_header, const Sink& sink,
            RequestId request) override;
  Post control(ConstByteRange bytes) override;
  Status trouble() const override { return trouble_ ? memory_.peer().trouble() : trouble_; }
  void close(bool fence) override;

  // Moves pending messages on; false when nothing is pending any more.
  bool progress(EventSink& out);
  // Would progress() do anything? Touches nothing.
  bool has_news();
  void poll_control(EventSink& out);
  // Completes everything pending as failed; later posts fail as well.
  void fail(EventSink& out);
  // Has the peer died? Asks the system; rare.
  void check_peer() { memory_.check(); }

  bool is_active = false;

 private:
  // Bytes that one call moves, so that it returns soon.
  static constexpr std::size_t kBudgetBytes = std::size_t{128} << 10U;
  static constexpr std::size_t kMaxQueued = 1024;  // beyond that send answers `again`

  // siblings.cpp
  Channel* channel(std::uint32_t index) {
    TUTTI_ASSERT(index <= kControlChannel, "no such channel");
    return channels_[index] ? channels_[index].get() : make_channel(index);
  }
  void join_siblings();
  void leave_siblings();
  template <class Work>
  void for_siblings(std::uint32_t channel_index, const Work& work);
  Channel* make_channel(std::uint32_t index);
  void add_channel(std::uint32_t index);
  void make_room(std::uint32_t index, std::size_t send_count, std::size_t recv_count);
  bool prepare_cells(Channel& c);
  void prepare_ring(Channel& c);
  void make_cells(Channel& c);
  void make_ring(Channel& c, std::size_t piece_bytes);
  std::vector<std::uint64_t> take_blocks();

  // endpoint.cpp
  bool try_link();
  bool is_peer_closed() const;
  void activate();
  void notify(bool is_ack);
  Post post_failed(RequestId request);
  void stop_readers();
  void set_pending_send(Channel& c);
  bool has_pending() const;

  // send.cpp
  enum class Started : std::uint8_t { no, partly, complete, being_read };
  bool has_free_cell(Channel& c);
  bool has_free_piece(Channel& c);
  void publish_cell(Channel& c, const SendOp& op, CellKind kind);
  void send_eager(Channel& c, SendOp& op);
  bool may_publish_addresses(const SendOp& op) const;
  bool try_publish_read(Channel& c, SendOp& op);
  std::size_t put_piece(Channel& c, SendOp& op);
  bool stage_pieces(Channel& c, SendOp& op, std::size_t* budget);
  Started start(Channel& c, SendOp& op, std::size_t* budget);
  bool progress_reads(Channel& c, EventSink& out, std::size_t* budget);
  bool progress_sends(Channel& c, EventSink& out);
  bool has_send_news(Channel& c);

  // receive.cpp
  enum class Received : std::uint8_t { nothing, partly, complete, mismatch };
  const CellLine* arrived_line(Channel& c);
  bool find_ring(Channel& c);
  Post poll(std::uint32_t channel_index, RequestId request);
  Received receive(Channel& c, std::size_t* budget, Event* mismatch);
  Received begin(Channel& c, const CellLine& line, Event* mismatch);
  Received receive_staged(Channel& c, std::size_t* budget);
  Received receive_read(Channel& c, std::size_t* budget);
  void put(Channel& c, ConstByteRange data);
  void consume_cell(Channel& c);
  bool progress_recvs(Channel& c, EventSink& out);
  bool has_recv_news(Channel& c);

  // read.cpp
  enum class Piece : std::uint8_t { ok, revoked, must_stage };
  Piece read_piece(Channel& c, std::size_t limit_bytes);
  Piece read_mapped(Channel& c, std::span<const iovec> fragments, std::size_t bytes);
  Piece read_copied(Channel& c, std::span<const iovec> fragments, std::size_t bytes);
  void ask_to_stage(Channel& c);

  Host* host_;
  Worker* worker_;
  PeerMemory memory_;
  Nonce peer_nonce_;
  std::uint64_t context_;

  LinkBlock* block_ = nullptr;  // ours
  std::uint64_t block_place_ = 0;
  DirectoryEntry* entry_ = nullptr;
  LinkBlock* peer_block_ = nullptr;  // null until the peer has opened its side
  WakeLine* peer_wake_ = nullptr;
  InstancePage* peer_page_ = nullptr;
  Found peer_link_;
  std::uint64_t seen_version_ = PeerMemory::kNoVersion;  // of the peer's directory, in which it was not
  std::uint32_t failed_polls_ = 0;

  bool is_closed_ = false;
  bool is_failed_ = false;
  Status trouble_;                      // own memory that could not be had
  bool owes_control_ = false;           // control was sent before the peer's bell was known
  bool expects_control_ = false;        // control may have been sent before the peer was linked
  std::uint64_t pending_sends_ = 0;     // bit per channel with queued sends or unconsumed reads
  std::uint64_t pending_recvs_ = 0;     // bit per channel with posted receives or a discarded arrival
  std::shared_ptr<Siblings> siblings_;  // null before announce() and after close()
  std::array<std::unique_ptr<Channel>, kChannels + 1> channels_;
};

}  // namespace tutti::memory
