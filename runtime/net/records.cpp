// Sealing and opening. See records.hpp.
#include "runtime/net/records.hpp"

#include <sodium.h>

#include <cstring>

namespace tutti {
namespace {

struct Head {
  std::uint64_t length = 0;
  std::array<unsigned char, 8> check{};
};
static_assert(sizeof(Head) == kRecordHeadBytes);
static_assert(kRecordTagBytes == crypto_aead_aes256gcm_ABYTES);
static_assert(kRecordTagBytes == crypto_aead_chacha20poly1305_ietf_ABYTES);

// crypto_kdf of libsodium.
constexpr const char* kContext = "tuttiwir";
enum KeyNumber : std::uint64_t { cipher_key = 1, length_key = 2, next_root = 3 };

unsigned char* bytes_of(std::span<std::byte> bytes) { return reinterpret_cast<unsigned char*>(bytes.data()); }

}  // namespace

Status forged_record() {
  return {StatusCode::refused,
          "a record of its connection was changed, lost or repeated on the way (TUTTI_WIRE_SECURITY)"};
}

RecordKeys::RecordKeys(const WireTerms& terms, const WireKey& key) : terms_(terms), root_(key) {
  static_assert(sizeof(AesState) == sizeof(crypto_aead_aes256gcm_state));
  take_keys();
}

RecordKeys::~RecordKeys() {
  sodium_memzero(root_.data(), root_.size());
  sodium_memzero(cipher_.data(), cipher_.size());
  sodium_memzero(&aes_, sizeof aes_);
}

void RecordKeys::take_keys() {
  static_assert(sizeof root_ == crypto_kdf_KEYBYTES);
  crypto_kdf_derive_from_key(cipher_.data(), cipher_.size(), cipher_key, kContext, root_.data());
  crypto_kdf_derive_from_key(length_key_.data(), length_key_.size(), length_key, kContext, root_.data());
  if (terms_.uses_aes) {
    crypto_aead_aes256gcm_beforenm(reinterpret_cast<crypto_aead_aes256gcm_state*>(&aes_), cipher_.data());
  }
}

void RecordKeys::advance() {
  if (++number_ % kRecordsPerKey != 0) return;
  WireKey next{};
  crypto_kdf_derive_from_key(next.data(), next.size(), next_root, kContext, root_.data());
  root_ = next;
  take_keys();
}

RecordKeys::Nonce RecordKeys::nonce() const {
  Nonce nonce{};
  std::memcpy(nonce.data() + 4, &number_, sizeof number_);
  return nonce;
}

RecordKeys::Check RecordKeys::check_of(std::uint64_t length) const {
  const std::array<std::uint64_t, 2> input{number_, length};
  Check check{};
  static_assert(sizeof check == crypto_shorthash_BYTES && sizeof length_key_ == crypto_shorthash_KEYBYTES);
  crypto_shorthash(check.data(), reinterpret_cast<const unsigned char*>(input.data()), sizeof input,
                   length_key_.data());
  return check;
}

// One place for both directions and ciphers: the bytes between head and tag are the message, or with `auth` a part of the
// associated data.
bool RecordKeys::apply(std::span<std::byte> record, bool is_sealing) const {
  const bool is_encrypted = terms_.security == WireSecurity::encrypt;
  const std::size_t length = record.size() - kRecordExtraBytes;
  unsigned char* const head = bytes_of(record);
  unsigned char* const text = head + kRecordHeadBytes;
  unsigned char* const tag = text + length;
  const std::size_t text_bytes = is_encrypted ? length : 0;
  const std::size_t associated_bytes = kRecordHeadBytes + (is_encrypted ? 0 : length);
  const Nonce nonce = this->nonce();
  const auto* aes = reinterpret_cast<const crypto_aead_aes256gcm_state*>(&aes_);
  if (is_sealing) {
    return (terms_.uses_aes
                ? crypto_aead_aes256gcm_encrypt_detached_afternm(text, tag, nullptr, text, text_bytes, head,
                                                                 associated_bytes, nullptr, nonce.data(), aes)
                : crypto_aead_chacha20poly1305_ietf_encrypt_detached(text, tag, nullptr, text, text_bytes,
                                                                     head, associated_bytes, nullptr,
                                                                     nonce.data(), cipher_.data())) == 0;
  }
  return (terms_.uses_aes
              ? crypto_aead_aes256gcm_decrypt_detached_afternm(text, nullptr, text, text_bytes, tag, head,
                                                               associated_bytes, nonce.data(), aes)
              : crypto_aead_chacha20poly1305_ietf_decrypt_detached(text, nullptr, text, text_bytes, tag, head,
                                                                   associated_bytes, nonce.data(),
                                                                   cipher_.data())) == 0;
}

void RecordKeys::seal(std::span<std::byte> record) {
  TUTTI_ASSERT(record.size() > kRecordExtraBytes && record.size() <= kMaxRecordBytes + kRecordExtraBytes,
               "callers cut the stream");
  Head head;
  head.length = record.size() - kRecordExtraBytes;
  head.check = check_of(head.length);
  std::memcpy(record.data(), &head, sizeof head);
  static_cast<void>(apply(record, true));  // always succeeds
  advance();
}

Result<std::size_t> RecordKeys::record_bytes(std::span<const std::byte, kRecordHeadBytes> head) const {
  Head parsed;
  std::memcpy(&parsed, head.data(), sizeof parsed);
  const Check expected = check_of(parsed.length);
  if (sodium_memcmp(expected.data(), parsed.check.data(), expected.size()) != 0 || parsed.length == 0 ||
      parsed.length > kMaxRecordBytes)
    return forged_record();
  return static_cast<std::size_t>(parsed.length) + kRecordExtraBytes;
}

Result<std::span<std::byte>> RecordKeys::open(std::span<std::byte> record) {
  if (!apply(record, false)) return forged_record();
  advance();
  return record.subspan(kRecordHeadBytes, record.size() - kRecordExtraBytes);
}

}  // namespace tutti
