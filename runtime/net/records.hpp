// A byte stream as authenticated records, encrypted or not. Knows no socket; parses bytes of anybody, so it is fuzzed.
//
// A record is a head, at most kMaxRecordBytes of the stream, and a tag. The tag is that of an AEAD (AES-256-GCM, or
// ChaCha20-Poly1305) whose nonce is the number of the record, so records verify in their order only. With `auth` the bytes
// are the AEAD's associated data and stay readable. The head holds the length and a check of it: a damaged length is found
// at once, instead of waiting for bytes that never come. Keys change every kRecordsPerKey records, far below the limits of
// either cipher.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/base/status.hpp"
#include "runtime/net/wire_security.hpp"

namespace tutti {

inline constexpr std::size_t kRecordHeadBytes = 16;
inline constexpr std::size_t kRecordTagBytes = 16;
inline constexpr std::size_t kRecordExtraBytes = kRecordHeadBytes + kRecordTagBytes;
inline constexpr std::size_t kMaxRecordBytes = std::size_t{64} << 10U;
inline constexpr std::uint64_t kRecordsPerKey = std::uint64_t{1} << 20U;

// The keys of one direction, and the number of its next record. Not movable in memory while in use, and used by one thread.
class RecordKeys {
 public:
  RecordKeys(const WireTerms& terms, const WireKey& key);
  ~RecordKeys();
  RecordKeys(const RecordKeys&) = default;
  RecordKeys& operator=(const RecordKeys&) = default;

  // `record`: room for a head, the bytes, and room for a tag. In place; 1 to kMaxRecordBytes bytes.
  void seal(std::span<std::byte> record);
  // The bytes of a whole record, from its head. Errors: refused if it is damaged or of another place in the stream.
  Result<std::size_t> record_bytes(std::span<const std::byte, kRecordHeadBytes> head) const;
  // The bytes of the stream, where they lie in the record. Errors: refused if it is not the next record of the other end.
  Result<std::span<std::byte>> open(std::span<std::byte> record);

 private:
  using Nonce = std::array<unsigned char, 12>;
  using Check = std::array<unsigned char, 8>;

  void take_keys();
  void advance();
  Nonce nonce() const;
  Check check_of(std::uint64_t length) const;
  bool apply(std::span<std::byte> record, bool is_sealing) const;

  // Expanded once: the round keys of AES cost more than a short record. As libsodium wants it: 16 bytes aligned.
  struct alignas(16) AesState {
    std::array<unsigned char, 512> bytes{};
  };
  WireTerms terms_;
  WireKey root_;  // the next root and all keys follow from it
  WireKey cipher_{};
  std::array<unsigned char, 16> length_key_{};
  AesState aes_;
  std::uint64_t number_ = 0;
};

// The error of a record that does not verify.
Status forged_record();

}  // namespace tutti
