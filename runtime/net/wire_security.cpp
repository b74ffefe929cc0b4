// Modes and keys. See wire_security.hpp.
#include "runtime/net/wire_security.hpp"

#include <fmt/format.h>
#include <sodium.h>

#include <algorithm>
#include <string>

namespace tutti {
namespace {

// Also chooses the functions that suit this CPU.
bool is_ready() {
  static const bool kIsReady = sodium_init() >= 0;
  return kIsReady;
}

}  // namespace

std::string_view to_string(WireSecurity security) {
  switch (security) {
    case WireSecurity::auth:
      return "auth";
    case WireSecurity::encrypt:
      return "encrypt";
    case WireSecurity::off:
      break;
  }
  return "off";
}

std::string_view describe(WireSecurity security) {
  return security == WireSecurity::off    ? "plain"
         : security == WireSecurity::auth ? "authenticated"
                                          : "encrypted";
}

Result<WireSecurity> read_wire_security(const Environment& environment) {
  const auto text = get_enum(environment, "TUTTI_WIRE_SECURITY");
  if (!text) return text.status();
  return *text == "encrypt" ? WireSecurity::encrypt
         : *text == "auth"  ? WireSecurity::auth
                            : WireSecurity::off;
}

WireOffer make_offer(WireSecurity security) {
  return {static_cast<std::uint8_t>(security), is_ready() && crypto_aead_aes256gcm_is_available() != 0};
}

WireTerms combine(const WireOffer& a, const WireOffer& b) {
  return {static_cast<WireSecurity>(std::max(a.security, b.security)), a.has_aes && b.has_aes};
}

void fill_randomly(std::span<std::byte> bytes) {
  TUTTI_ASSERT(is_ready(), "libsodium finds random numbers");
  randombytes_buf(bytes.data(), bytes.size());
}

bool is_equal(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && sodium_memcmp(a.data(), b.data(), a.size()) == 0;
}

void forget(WireKey& key) { sodium_memzero(key.data(), key.size()); }

WireKey derive_key(const WireKey& key, std::string_view purpose) {
  WireKey derived{};
  crypto_generichash(derived.data(), derived.size(), reinterpret_cast<const unsigned char*>(purpose.data()),
                     purpose.size(), key.data(), key.size());
  return derived;
}

WireSession make_session(const WireTerms& terms, const WireKey& key, std::string_view transcript,
                         bool is_connector) {
  // The terms are part of it: a key serves one mode and one cipher.
  const std::string session =
      fmt::format("session {} {} ", to_string(terms.security), terms.uses_aes ? 1 : 0).append(transcript);
  const WireKey forward = derive_key(key, "connector " + session);
  const WireKey backward = derive_key(key, "acceptor " + session);
  return {terms, is_connector ? forward : backward, is_connector ? backward : forward};
}

}  // namespace tutti
