// The connection to one peer: its socket, what it sends and what it receives, and how it ends.
// Knows no other connection and no greeting.
#pragma once

#include <cstdint>
#include <string_view>

#include "transports/message/tcp/channel.hpp"
#include "transports/message/tcp/input.hpp"
#include "transports/message/tcp/objects.hpp"
#include "transports/message/tcp/output.hpp"
#include "transports/message/tcp/poller.hpp"
#include "transports/message/tcp/socket.hpp"
#include "transports/message/worker.hpp"

namespace tutti::tcp {

class Connection final : public Watcher {
 public:
  enum class State : std::uint8_t {
    waiting,  // for a socket; what is sent waits, too
    open,
    ended,
  };

  Connection(message::Worker& worker, Poller& poller, message::Pool<Outgoing>& outgoings,
             Input::Stores& stores, std::uint64_t peer)
      : worker_(worker),
        poller_(poller),
        peer_(peer),
        remote_(&worker.find_peer(peer)),
        output(worker, outgoings, channel_),
        input(worker, stores, output, channel_, *this, peer) {}
  ~Connection() override { close(); }

  State state() const { return state_; }
  std::uint64_t peer() const { return peer_; }
  void open(Socket socket, const WireSession& session);
  // Everything under way fails. Without a reason nobody needs to be told that the peer is lost.
  void end(std::string_view reason);

  void on_ready() override { is_ready = true; }
  // Writes and reads. True if something moved.
  bool push();
  bool pull();
  // False if there is something to do before anybody sleeps.
  bool arm();
  // Does anything wait for what the peer says? If the socket takes no more, the peer may wait for us to read.
  bool is_awaited() const {
    return remote_->awaited_count != 0 || !output.is_empty() || output.has_announced();
  }
  // Whether the poller hears of what happens to the socket: arriving data costs more then.
  void watch();
  void ignore();

  bool is_ready = false;  // there may be something to read

 private:
  void close();

  message::Worker& worker_;
  Poller& poller_;
  const std::uint64_t peer_;
  message::Peer* const remote_;
  State state_ = State::waiting;
  Socket socket_;
  Channel channel_;
  bool is_watched_ = false;
  bool wants_write_ = false;

 public:
  Output output;
  Input input;
};

}  // namespace tutti::tcp
