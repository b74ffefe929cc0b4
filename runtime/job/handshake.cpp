// Challenge and response with libsodium. Knows no socket.
#include "runtime/job/handshake.hpp"

#include <fmt/format.h>
#include <sodium.h>

#include <set>

namespace tutti {
namespace {

constexpr std::size_t kStrongDigits = 32;      // of hexadecimal text
constexpr std::size_t kDifferentDigits = 8;    // of which random text has at least so many, almost surely
constexpr unsigned long long kStretchOps = 3;  // of Argon2id
constexpr std::size_t kStretchBytes = std::size_t{16} << 20U;

// The secret is text of any length; BLAKE2b takes keys of 16 to 64 bytes.
Proof derive_key(std::string_view secret) {
  Proof key{};
  crypto_generichash(key.data(), key.size(), reinterpret_cast<const unsigned char*>(secret.data()),
                     secret.size(), nullptr, 0);
  return key;
}

Proof authenticate(std::string_view secret, const std::string& message) {
  Proof key = derive_key(secret);
  Proof mac{};
  crypto_generichash(mac.data(), mac.size(), reinterpret_cast<const unsigned char*>(message.data()),
                     message.size(), key.data(), key.size());
  sodium_memzero(key.data(), key.size());
  return mac;
}

std::string_view name_of(ProofRole role) {
  switch (role) {
    case ProofRole::member:
      return "member";
    case ProofRole::hub:
      return "hub";
    case ProofRole::claim:
      break;
  }
  return "claim";
}

}  // namespace

Result<Nonce> make_nonce() {
  if (sodium_init() < 0) return internal_error("libsodium cannot get random numbers");
  Nonce nonce{};
  randombytes_buf(nonce.data(), nonce.size());
  return nonce;
}

Proof prove(std::string_view secret, ProofRole role, const Nonce& member, const Nonce& hub,
            const MemberClaim& claim) {
  ByteWriter writer;  // lengths in front, so that no two inputs look alike
  writer.put_text(name_of(role));
  writer.put(member);
  writer.put(hub);
  writer.put_text(encode(claim));
  return authenticate(secret, writer.take());
}

WireSession make_control_session(std::string_view secret, const WireTerms& terms, const Nonce& member,
                                 const Nonce& hub, bool is_member) {
  ByteWriter transcript;
  transcript.put(member);
  transcript.put(hub);
  WireKey key = derive_key(derive_key(secret), "control");
  WireSession session = make_session(terms, key, transcript.take(), is_member);
  forget(key);
  return session;
}

WireKey make_data_key(std::string_view secret) { return derive_key(derive_key(secret), "data"); }

bool is_equal(const Proof& a, const Proof& b) { return sodium_memcmp(a.data(), b.data(), a.size()) == 0; }

bool is_strong_secret(std::string_view secret) {
  constexpr std::string_view kDigits = "0123456789abcdefABCDEF";
  return secret.size() >= kStrongDigits && secret.find_first_not_of(kDigits) == std::string_view::npos &&
         std::set<char>(secret.begin(), secret.end()).size() >= kDifferentDigits;
}

Result<std::string> strengthen_secret(const std::string& secret, std::string_view job) {
  if (secret.empty() || is_strong_secret(secret)) return secret;
  if (sodium_init() < 0) return internal_error("libsodium cannot get random numbers");
  // Another salt for every job, so that no table of guesses serves for two.
  std::array<unsigned char, crypto_pwhash_SALTBYTES> salt{};
  crypto_generichash(salt.data(), salt.size(), reinterpret_cast<const unsigned char*>(job.data()), job.size(),
                     nullptr, 0);
  std::array<unsigned char, 32> key{};
  if (crypto_pwhash(key.data(), key.size(), secret.data(), secret.size(), salt.data(), kStretchOps,
                    kStretchBytes, crypto_pwhash_ALG_ARGON2ID13) != 0) {
    return Status(
        StatusCode::resource_exhausted,
        fmt::format("TUTTI_SECRET: no {} MiB of memory to stretch it; a random one of {} hexadecimal "
                    "digits needs none",
                    kStretchBytes >> 20U, kStrongDigits));
  }
  return fmt::format("{:02x}", fmt::join(key, ""));
}

std::string name_from_secret(std::string_view secret, std::string_view job) {
  ByteWriter writer;
  writer.put_text("name");
  writer.put_text(job);
  const Proof name = authenticate(secret, writer.take());
  return fmt::format("{:02x}", fmt::join(name.begin(), name.begin() + 16, ""));
}

}  // namespace tutti
