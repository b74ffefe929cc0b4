// Tags over a transcript. See greeting.hpp.
#include "transports/message/tcp/greeting.hpp"

#include <algorithm>
#include <cstring>
#include <string_view>

namespace tutti::tcp {

namespace {

std::string_view text_of(const auto& value) { return {reinterpret_cast<const char*>(&value), sizeof value}; }

}  // namespace

GreetingChain::GreetingChain(const Security& security, const Secret& acceptor)
    : key_(derive_key(security.key, std::string("tcp ").append(text_of(acceptor)))), mode_(security.mode) {}

GreetingChain::~GreetingChain() { forget(key_); }

std::array<std::byte, 16> GreetingChain::tag_of(const Greeting& greeting) const {
  Greeting bare = greeting;
  bare.tag = {};
  const WireKey full = derive_key(key_, transcript_ + std::string(text_of(bare)));
  std::array<std::byte, 16> tag{};
  std::memcpy(tag.data(), full.data(), tag.size());
  return tag;
}

void GreetingChain::add(const Greeting& greeting) {
  const WireOffer offer{greeting.security, greeting.has_aes != 0};
  if (greeting.kind == Greeting::Kind::hello) offer_ = offer;
  if (greeting.kind == Greeting::Kind::answer) terms_ = combine(offer_, offer);
  transcript_ += text_of(greeting);
}

void GreetingChain::sign(Greeting& greeting) {
  if (greeting.kind != Greeting::Kind::begin) {
    const WireOffer offer = make_offer(mode_);
    fill_randomly(greeting.nonce);
    greeting.security = offer.security;
    greeting.has_aes = offer.has_aes ? 1 : 0;
  }
  greeting.tag = tag_of(greeting);
  add(greeting);
}

bool GreetingChain::check(const Greeting& greeting) {
  if (!is_equal(tag_of(greeting), greeting.tag) || !WireOffer{greeting.security, false}.is_valid())
    return false;
  add(greeting);
  return true;
}

WireSession GreetingChain::session(bool is_connector) const {
  return make_session(terms_, key_, transcript_, is_connector);
}

}  // namespace tutti::tcp
