// Connection setup: listens, connects, exchanges greetings, and hands over sockets that are ready for frames.
// Knows no frame.
//
// A connector tries all addresses of its peer side by side; the first that answers is the one. An acceptor
// refuses a connector that does not prove to know the secret of its address. If two peers connect to each other at once, the
// one with the lower instance number is the connector. It answers the other only if its own attempts fail. So there
// is one connection.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/base/running_clock.hpp"
#include "runtime/base/status.hpp"
#include "runtime/net/network.hpp"
#include "transports/message/tcp/address.hpp"
#include "transports/message/tcp/greeting.hpp"
#include "transports/message/tcp/poller.hpp"
#include "transports/message/tcp/socket.hpp"
#include "transports/message/tcp/wire.hpp"

namespace tutti::tcp {

class Greeter {
 public:
  class Owner {
   public:
    virtual ~Owner() = default;
    virtual void on_connected(std::uint64_t instance, Socket socket, const WireSession& session) = 0;
    // resource_exhausted where this process has no room for the connection; else peer_failed.
    virtual void on_unreachable(std::uint64_t instance, const Status& why) = 0;
    // There is a connection, or was one.
    virtual bool is_connected(std::uint64_t instance) const = 0;
  };

  // `silence`: a host that has not answered for so long is given up.
  Greeter(Poller& poller, Owner& owner, std::chrono::milliseconds silence, const Security& security = {});
  ~Greeter();
  Greeter(const Greeter&) = delete;
  Greeter& operator=(const Greeter&) = delete;

  // One listening socket for each address, at any port of the range. Errors: unsupported if none of them can
  // be had.
  Status listen(const std::vector<SocketAddress>& addresses, const std::optional<PortRange>& ports = {});
  const Address& address() const { return address_; }
  // From now on incoming connections are accepted, under this instance number.
  void start(std::uint64_t instance);

  // Tells the owner one way or the other, perhaps at once.
  void call(std::uint64_t instance, const Address& theirs);
  // Drops the call; the owner is told nothing more.
  void forget(std::uint64_t instance);

  // True while a deadline is running.
  bool is_busy() const { return !pending_.empty() || !calls_.empty() || is_accept_paused_; }
  void check_deadlines();

 private:
  class Listener;
  class PendingConnection;
  class Attempt;
  // All attempts to reach one peer. None: it is calling us, and has been answered.
  struct Call {
    Address theirs;
    std::vector<std::unique_ptr<Attempt>> attempts;
    std::string reasons;  // why others have failed
    bool has_no_room = false;
  };

  void accept_from(Listener& listener);
  void hear(PendingConnection& pending);
  void advance(Attempt& attempt);
  bool admit(PendingConnection& pending);
  void answer(PendingConnection& pending);
  bool has_answered(std::uint64_t instance) const;
  bool has_many(std::uint64_t instance) const;
  void remove(const PendingConnection& pending);
  void remove_all_of(std::uint64_t instance);
  void begin_attempts(std::uint64_t instance, Call& call);
  void give_up(Attempt& attempt, const std::string& why);
  void end_call(std::uint64_t instance);
  void listen_again();

  Poller& poller_;
  Owner& owner_;
  const std::chrono::milliseconds silence_;
  const Security security_;
  std::uint64_t instance_ = 0;
  Address address_;
  std::vector<std::unique_ptr<Listener>> listeners_;
  std::vector<std::unique_ptr<PendingConnection>> pending_;
  std::unordered_map<std::uint64_t, Call> calls_;
  bool is_accept_paused_ = false;
  Clock::time_point accept_paused_until_{};
};

}  // namespace tutti::tcp
