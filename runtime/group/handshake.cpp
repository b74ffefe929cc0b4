// Challenge and response with libsodium. Knows no socket.
#include "runtime/group/handshake.hpp"

#include <sodium.h>

namespace tutti {
namespace {

// The secret is text of any length; BLAKE2b takes keys of 16 to 64 bytes.
Proof derive_key(std::string_view secret) {
  Proof key{};
  crypto_generichash(key.data(), key.size(), reinterpret_cast<const unsigned char*>(secret.data()),
                     secret.size(), nullptr, 0);
  return key;
}

Proof authenticate(std::string_view secret, std::string_view role, const Nonce& member, const Nonce& hub,
                   std::string_view claim) {
  ByteWriter writer;  // lengths in front, so that no two inputs look alike
  writer.put_text(role);
  writer.put(member);
  writer.put(hub);
  writer.put_text(claim);
  const std::string message = writer.take();
  Proof key = derive_key(secret);
  Proof mac{};
  crypto_generichash(mac.data(), mac.size(), reinterpret_cast<const unsigned char*>(message.data()),
                     message.size(), key.data(), key.size());
  sodium_memzero(key.data(), key.size());
  return mac;
}

}  // namespace

Result<Nonce> make_nonce() {
  if (sodium_init() < 0) return internal_error("libsodium cannot get random numbers");
  Nonce nonce{};
  randombytes_buf(nonce.data(), nonce.size());
  return nonce;
}

Proof prove_hub(std::string_view secret, const Nonce& member, const Nonce& hub, const MemberClaim& claim) {
  return authenticate(secret, "hub", member, hub, encode(claim));
}

Proof prove_member(std::string_view secret, const Nonce& member, const Nonce& hub, const MemberClaim& claim) {
  return authenticate(secret, "member", member, hub, encode(claim));
}

bool is_equal(const Proof& a, const Proof& b) { return sodium_memcmp(a.data(), b.data(), a.size()) == 0; }

}  // namespace tutti
