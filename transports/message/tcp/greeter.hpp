// How two instances find each other: listens, connects, exchanges greetings, and hands over sockets on which
// frames may follow. Knows no frame.
//
// A connector tries all addresses of its peer side by side; the first that answers is the one. An acceptor
// does not let in who does not show the secret of its address. Of two peers that call each other at once the one
// with the lower instance number is the connector: the other's calls are answered only if its own lead
// nowhere, so that there is one connection.
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
#include "transports/message/tcp/poller.hpp"
#include "transports/message/tcp/socket.hpp"
#include "transports/message/tcp/wire.hpp"

namespace tutti::tcp {

class Greeter {
 public:
  class Owner {
   public:
    virtual ~Owner() = default;
    virtual void on_met(std::uint64_t instance, Socket socket) = 0;
    // resource_exhausted where this process has no room for the connection; else peer_failed.
    virtual void on_unreachable(std::uint64_t instance, const Status& why) = 0;
    // There is a connection, or was one.
    virtual bool is_met(std::uint64_t instance) const = 0;
  };

  // `silence`: a host that has not answered for so long is given up.
  Greeter(Poller& poller, Owner& owner, std::chrono::milliseconds silence);
  ~Greeter();
  Greeter(const Greeter&) = delete;
  Greeter& operator=(const Greeter&) = delete;

  // One listening socket for each address, at any port of the range. Errors: unsupported if none of them can
  // be had.
  Status listen(const std::vector<SocketAddress>& addresses, const std::optional<PortRange>& ports = {});
  const Address& address() const { return address_; }
  // From now on strangers are heard, as whom they have called.
  void start(std::uint64_t instance);

  // Tells the owner one way or the other, perhaps at once.
  void call(std::uint64_t instance, const Address& theirs);
  // What it would have told does not matter any more.
  void forget(std::uint64_t instance);

  // Is anybody to be waited for, with an eye on the clock?
  bool is_busy() const { return !guests_.empty() || !calls_.empty() || is_deaf_; }
  void check_deadlines();

 private:
  class Listener;
  class Guest;
  class Attempt;
  // All attempts to reach one peer. None: it is calling us, and has been answered.
  struct Call {
    Address theirs;
    std::vector<std::unique_ptr<Attempt>> attempts;
    std::string reasons;  // why others have failed
    bool has_no_room = false;
  };

  void accept_from(Listener& listener);
  void hear(Guest& guest);
  void advance(Attempt& attempt);
  bool admit(Guest& guest);
  void answer(Guest& guest);
  bool has_answered(std::uint64_t instance) const;
  void remove(const Guest& guest);
  void remove_all_of(std::uint64_t instance);
  void begin_attempts(std::uint64_t instance, Call& call);
  void give_up(Attempt& attempt, const std::string& why);
  void end_call(std::uint64_t instance);
  void listen_again();

  Poller& poller_;
  Owner& owner_;
  const std::chrono::milliseconds silence_;
  std::uint64_t instance_ = 0;
  Address address_;
  std::vector<std::unique_ptr<Listener>> listeners_;
  std::vector<std::unique_ptr<Guest>> guests_;
  std::unordered_map<std::uint64_t, Call> calls_;
  bool is_deaf_ = false;
  Clock::time_point deaf_until_{};
};

}  // namespace tutti::tcp
