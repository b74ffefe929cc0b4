// The greetings of one connection, signed and checked, and the session that follows from them. Knows no socket.
//
// The tag of a greeting covers it and all before it on the connection. Each end adds a random number, so an old greeting
// proves nothing, and both ends derive the same keys.
#pragma once

#include <string>

#include "runtime/net/wire_security.hpp"
#include "transports/message/tcp/wire.hpp"

namespace tutti::tcp {

// The protection of this process's connections.
struct Security {
  WireSecurity mode = WireSecurity::off;
  WireKey
      key{};  // that all ranks of the job have; zeros: none, and the secrets of addresses alone prove anything
};

class GreetingChain {
 public:
  GreetingChain(const Security& security, const Secret& acceptor);
  ~GreetingChain();
  GreetingChain(const GreetingChain&) = default;
  GreetingChain& operator=(const GreetingChain&) = default;

  // Adds our own greeting: of a hello and an answer the nonce and the offer, of any the tag.
  void sign(Greeting& greeting);
  // Adds the other end's. False if its tag is wrong; then the connection is to be dropped.
  bool check(const Greeting& greeting);
  // After the last of them.
  WireSession session(bool is_connector) const;

 private:
  std::array<std::byte, 16> tag_of(const Greeting& greeting) const;
  void add(const Greeting& greeting);

  WireKey key_;
  WireSecurity mode_;
  std::string transcript_;
  WireTerms terms_;
  WireOffer offer_;  // of the first greeting
};

}  // namespace tutti::tcp
