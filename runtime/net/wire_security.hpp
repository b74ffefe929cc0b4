// Protection of the connections between nodes (TUTTI_WIRE_SECURITY): what two ends agree on, and the keys of one connection.
// Pure functions but for make_offer(), which asks the CPU. Knows no socket and no handshake.
//
// A connection's keys follow from a secret of the job and a transcript of its handshake, which holds a random number of
// either side. So no two connections share a key. Each direction has its own, so a reflected record does not verify.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <tuple>

#include "runtime/base/config.hpp"
#include "runtime/base/status.hpp"

namespace tutti {

enum class WireSecurity : std::uint8_t {
  off,  // both ends prove that they know the job's secret; what follows is neither authenticated nor encrypted
  auth,  // and each record is authenticated: nobody can change, add, drop, repeat or reorder anything unnoticed
  encrypt,  // and nobody can read it
};
std::string_view to_string(WireSecurity security);
std::string_view describe(WireSecurity security);  // "authenticated"
// TUTTI_WIRE_SECURITY. Errors: invalid_argument naming the variable.
Result<WireSecurity> read_wire_security(const Environment& environment);

// The mode that one end asks for, and its cipher. As bytes of a handshake, which authenticates them.
struct WireOffer {
  std::uint8_t security = 0;  // WireSecurity
  bool has_aes = false;       // this CPU has instructions for AES; else the cipher is ChaCha20
  bool is_valid() const { return security <= static_cast<std::uint8_t>(WireSecurity::encrypt); }
  static auto fields(auto& self) { return std::tie(self.security, self.has_aes); }
};
WireOffer make_offer(WireSecurity security);

// Equal on both ends.
struct WireTerms {
  WireSecurity security = WireSecurity::off;
  bool uses_aes = false;
};
// The stricter mode, so that ends which differ can still tell each other so; AES where both ends have it.
WireTerms combine(const WireOffer& a, const WireOffer& b);

using WireKey = std::array<unsigned char, 32>;
void fill_randomly(std::span<std::byte> bytes);
// In constant time; both of one length.
bool is_equal(std::span<const std::byte> a, std::span<const std::byte> b);
void forget(WireKey& key);  // overwrites it
// Keyed BLAKE2b. Different purposes give independent keys.
WireKey derive_key(const WireKey& key, std::string_view purpose);

struct WireSession {
  WireTerms terms;
  WireKey sending{};
  WireKey receiving{};
  bool is_sealed() const { return terms.security != WireSecurity::off; }
};
// `key`: a secret that both ends know; `transcript`: of their handshake, equal on both ends and in no other connection.
WireSession make_session(const WireTerms& terms, const WireKey& key, std::string_view transcript,
                         bool is_connector);

}  // namespace tutti
