// What a library has to do for a message transport: carry messages between two processes, in whatever way it
// can. Knows no receive, no context and no matching; those are the engine's (worker.hpp), which hears of what
// arrives through the worker it has attached.
//
// All calls are made by the worker's owner. The driver calls the worker from within its own progress() only, or
// from within the call that the news is about.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "runtime/base/status.hpp"
#include "transports/message/operations.hpp"
#include "transports/message/wire.hpp"

namespace tutti::message {

class Worker;
class Peer;
class Inbox;

// A message that has arrived, or at least its beginning.
struct Arrival {
  const std::byte* data = nullptr;  // all of it, unless is_remote
  void* hold = nullptr;             // what the driver gets back by release() or fetch(); null: nothing
  std::uint64_t bytes = 0;
  std::uint64_t word = 0;
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

  virtual std::string_view name() const = 0;  // "ucx", for the log
  // From now on what arrives goes to the worker. Errors: unsupported with the library's reason.
  virtual Status start(Worker& worker) = 0;

  // True if something moved. May be called again from within what it calls.
  virtual bool progress() = 0;
  // The same, for one of many calls in a row: peers of whom nothing is awaited (Peer::awaited_count) need not
  // be looked at in each of them.
  virtual bool look() { return progress(); }
  // False if something is to be done before anybody sleeps on event_fd().
  virtual bool arm() = 0;
  virtual int event_fd() const = 0;

  // -- connections ------------------------------------------------------------------------------------------

  // Begins to connect; what is sent at once goes when the peer answers. The end of a connection, or that it
  // cannot be made, is told by Peer::note_failure. Null: told already.
  virtual std::unique_ptr<Link> connect(Peer& peer, std::span<const std::byte> address) = 0;
  // Gives a connection up: what is under way on it completes, within some calls of progress, as failed.
  virtual void disconnect(Link& link) = 0;
  virtual bool is_disconnecting(Link& link) = 0;
  // The peer has ended in an orderly way: what waits for an answer of its will not get one, and fails.
  virtual void note_goodbye(const Peer& peer) = 0;
  // The peer has closed a context: the same for what waits in it.
  virtual void note_closed(const Inbox& inbox) = 0;

  // -- sending ----------------------------------------------------------------------------------------------

  enum class Sent : std::uint8_t { done, pending, failed };
  // The op and what it refers to stay until Worker::on_sent, if the answer is `pending`. `failed` was told to
  // the peer.
  virtual Sent send(Link& link, SendOp& op) = 0;
  // Notices arrive after everything sent before. One that cannot be sent is dropped: whoever is not there
  // needs none.
  virtual void notify(Link& link, const Notice& notice) = 0;
  // Progresses until everything sent on the link has left this process, as patiently as the worker closes
  // endpoints.
  virtual void flush(Link& link) = 0;

  // -- receiving --------------------------------------------------------------------------------------------

  // Gives back what an arrival holds; a remote message completes at its sender, one way or the other.
  virtual void release(void* hold) = 0;
  // Fetches a remote message into op.bounce, or else into op.ranges; has_pieces(): into op.sink. Later, or at
  // once, Worker::on_fetched.
  virtual void fetch(RecvOp& op, void* hold) = 0;
  // Is a sink with `deliver` served in pieces, by pump()? Otherwise it needs op.bounce.
  virtual bool has_pieces() const = 0;
  // Hands what has come of a message that is being fetched to its sink; may call Worker::on_fetched. Called
  // when Worker::note_piece was.
  virtual void pump(RecvOp& op) = 0;

  // -- ending -----------------------------------------------------------------------------------------------

  // True if the op is the caller's again and nothing of it will be touched; false: its completion must be
  // waited for.
  virtual bool cancel(SendOp& op) = 0;
  virtual bool cancel(RecvOp& op) = 0;
  // Comes to rest after all connections were given up. False: it did not, and abandon() should follow.
  virtual bool finish() = 0;
  // Nothing of it may be touched any more, nor ended: it does not come to rest, or belongs to the parent.
  virtual void abandon() = 0;
};

}  // namespace tutti::message
