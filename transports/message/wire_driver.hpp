// The seam for adding a network. A wire driver carries messages between two processes over one library or
// protocol. Matching, ordering, completion and closing belong to the worker (worker.hpp), which every driver
// shares. A driver knows no receive and no collective; of contexts and channels it only carries the numbers.
//
// A driver implements eight functions: start, progress, arm, connect, disconnect, send, notify, release. The others
// have a default, for networks that lack the ability. flush is for sends that are complete before they have left,
// fetch for messages whose bytes stay at the sender.
//
// The driver tells the worker what happens, from within progress() or from within the call that the news is
// about: Worker::take_message, take_notice, on_sent, on_fetched, note_piece; Peer::note_failure,
// note_trouble.
//
// Threading: all calls come from the worker's owner, one at a time. Nothing blocks but flush() and finish().
// Errors of a connection are told by Peer::note_failure, never by an exception.
// tests/transports/wire_suite.cpp checks this contract; transports/README.md lists the files of a new
// network.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.hpp"
#include "transports/message/operations.hpp"
#include "transports/message/wire.hpp"

namespace tutti::message {

class Worker;
class Peer;

// How WireDriver::fetch serves a sink with `deliver`.
enum class Fetch : std::uint8_t {
  whole,      // through op.bounce, when all of the message is here
  piecewise,  // by pump(), while the rest is on its way
};

// Properties of a driver, fixed once it is made.
struct WireFacts {
  std::string_view name;           // of the transport: "ucx"; a literal
  std::string detail;              // TransportCaps::detail
  std::string dialect;             // Address::dialect: both ends must have the same
  std::vector<std::byte> address;  // what a peer's connect() is given
  int event_fd = -1;               // after arm(), readable as soon as progress() has something to do
  Fetch fetch = Fetch::whole;
};

// A message that has arrived, or at least its beginning.
struct Arrival {
  const std::byte* data = nullptr;  // all of it, unless is_remote
  void* hold = nullptr;             // what the driver gets back by release() or fetch(); null: nothing
  std::uint64_t bytes = 0;
  std::uint64_t match_header = 0;
  std::uint64_t sequence = 0;
  bool is_remote = false;  // its bytes are still at the sender,
  bool is_coming = false;  // or on their way, which the sender's end does not stop
  bool is_lost = false;    // the sender has closed before they were fetched; `hold` was released
};

// A connection, or the attempt at one.
class Link {
 public:
  virtual ~Link() = default;
};

class WireDriver {
 public:
  virtual ~WireDriver() = default;

  // -- life and progress ------------------------------------------------------------------------------------

  // Once, before all other calls: arrivals go to this worker from now on. Errors: unsupported, with the
  // library's reason; resource_exhausted.
  virtual Status start(Worker& worker) = 0;

  enum class Poll : std::uint8_t {
    awaited,  // one of many calls in a row: peers of whom nothing is awaited may be passed over
    all,      // every peer
  };
  // Moves everything on. True if something moved. May be called again from within what it calls.
  virtual bool progress(Poll which) = 0;
  // Before the owner sleeps on WireFacts::event_fd. False if progress() has something to do already.
  virtual bool arm() = 0;

  // -- connections ------------------------------------------------------------------------------------------

  // Begins to connect and does not wait; sends posted meanwhile go when the peer answers. Also to the driver
  // itself. A connection that fails or ends later is told by Peer::note_failure. Null: told already.
  virtual std::unique_ptr<Link> connect(Peer& peer, std::span<const std::byte> address) = 0;
  // Gives a connection up. Operations under way on it complete as failed within some calls of progress().
  virtual void disconnect(std::unique_ptr<Link> link) = 0;

  // -- sending ----------------------------------------------------------------------------------------------

  enum class Sent : std::uint8_t {
    done,     // the memory may be written again; Worker::on_sent is not called
    pending,  // op and memory stay until Worker::on_sent
    failed,   // the connection has failed, which the peer was told
  };
  // Sends op.header and op.ranges. Messages arrive whole or not at all, in any order.
  virtual Sent send(Link& link, SendOp& op) = 0;
  // Sends a notice. It arrives after everything that was sent before on the link, and needs no completion.
  // One that cannot be sent is dropped.
  virtual void notify(Link& link, const Notice& notice) = 0;
  // Progresses until everything sent on the link has left this process, or Worker::drain_patiently gives up.
  // Without it a send that is `done` must have left.
  virtual void flush(Link& link);

  // -- receiving --------------------------------------------------------------------------------------------

  // Gives back what an arrival holds. A remote message completes at its sender, one way or the other.
  virtual void release(void* hold) = 0;
  // Fetches a remote message into op.bounce if there is one, else into op.ranges, or, with Fetch::piecewise,
  // to a sink with `deliver`, by pump(). Worker::on_fetched follows, perhaps at once.
  virtual void fetch(RecvOp& op, void* hold);
  // Delivers what has come of a message that is being fetched; may call Worker::on_fetched. Called after
  // Worker::note_piece, and before a fetch is cancelled.
  virtual void pump(RecvOp& op);

  // -- ending -----------------------------------------------------------------------------------------------

  // Takes an operation back: its endpoint closes, or its peer has closed or ended. True: nothing of it will
  // be touched or told any more. False: the library cannot, and its completion must be waited for. The peer
  // still gets a message in the place of one that was taken back (Arrival::is_lost), because it counts them.
  virtual bool cancel_send(SendOp& op);
  virtual bool cancel_fetch(RecvOp& op);
  // After all links were given up: comes to rest in bounded time, so that the destructor may follow. False if
  // it does not; then abandon() follows.
  virtual bool finish();
  // From now on nothing shared may be touched or ended, not even by the destructor. The library does not come to
  // rest, or this is a child of fork() and the library belongs to the parent.
  virtual void abandon();
};

}  // namespace tutti::message
