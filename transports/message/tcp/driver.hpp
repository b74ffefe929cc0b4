// Carrying messages over TCP connections of our own, one to each peer.
// Knows no receive and no context; see transports/message/wire_driver.hpp.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "transports/message/operations.hpp"
#include "transports/message/tcp/connection.hpp"
#include "transports/message/tcp/greeter.hpp"
#include "transports/message/tcp/objects.hpp"
#include "transports/message/tcp/poller.hpp"
#include "transports/message/wire_driver.hpp"

namespace tutti::tcp {

class TcpDriver final : public message::WireDriver, private Greeter::Owner {
 public:
  TcpDriver(Poller poller, std::chrono::milliseconds silence, const Security& security = {})
      : poller_(std::move(poller)), greeter_(poller_, *this, silence, security) {}

  Greeter& greeter() { return greeter_; }
  // A connection that has been made in another way; for tests.
  void adopt(std::uint64_t instance, Socket socket, const WireSession& session = {}) {
    on_connected(instance, std::move(socket), session);
  }

  Status start(message::Worker& worker) override;
  bool progress(Poll which) override;
  bool arm() override;

  std::unique_ptr<message::Link> connect(message::Peer& peer, std::span<const std::byte> address) override;
  void disconnect(std::unique_ptr<message::Link> link) override;

  Sent send(message::Link& link, message::SendOp& op) override;
  void notify(message::Link& link, const message::Notice& notice) override;
  void flush(message::Link& link) override;

  void release(void* hold) override;
  void fetch(message::RecvOp& op, void* hold) override;
  void pump(message::RecvOp& op) override;

  bool cancel_send(message::SendOp& op) override;
  bool cancel_fetch(message::RecvOp& op) override;
  void abandon() override { poller_.abandon(); }

 private:
  void on_connected(std::uint64_t instance, Socket socket, const WireSession& session) override;
  void on_unreachable(std::uint64_t instance, const Status& why) override;
  bool is_connected(std::uint64_t instance) const override;

  void poll_sockets(bool reads_blindly);
  Connection& find_connection(std::uint64_t instance);
  Sent send_to_self(const message::SendOp& op);

  Poller poller_;
  Greeter greeter_;
  message::Worker* worker_ = nullptr;
  message::Pool<Outgoing> outgoings_;
  Input::Stores stores_;
  std::unordered_map<std::uint64_t, std::unique_ptr<Connection>> connections_;
  std::vector<Connection*> open_;
  std::uint32_t calls_ = 0;  // of progress() since the last arm()
};

}  // namespace tutti::tcp
