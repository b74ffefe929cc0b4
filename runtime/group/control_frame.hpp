// The frames of control connections: header, incremental parser and the payloads, with limits on every
// length. Knows no socket. Everything a stranger can send passes through here, so it is fuzzed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/status.hpp"

namespace tutti {

enum class FrameType : std::uint8_t {
  hello = 1,      // member -> hub: HelloPayload
  challenge,      // hub -> member: ChallengePayload
  proof,          // member -> hub: ProofPayload
  refused,        // hub -> member: StatusPayload; the connection ends
  ready,          // hub -> member: StatusPayload whose message says who rank 0 is; every rank has joined
  goodbye,        // either way: this rank leaves and is not dead
  gather,         // member -> hub: GatherPayload with one value
  gathered,       // hub -> member: GatherPayload with all values in rank order
  gather_failed,  // hub -> member: GatherPayload without values, then why it can never complete
  who,      // member -> hub: GatherPayload without values; who is missing? number 0 asks about the start
  missing,  // hub -> member: GatherPayload with the names of the missing as one value
  failure,  // member -> hub: please stamp; hub -> member: stamped: FailurePayload
  message,  // member -> hub -> `target`: bytes of the layer above
};
inline constexpr FrameType kLastFrameType = FrameType::message;

struct Frame {
  FrameType type = FrameType::hello;
  std::int32_t source = 0;  // rank; set by the hub, which does not believe what members write here
  std::int32_t target = 0;  // rank
  std::string payload;
};

inline constexpr std::size_t kFrameHeaderBytes = 16;
inline constexpr std::size_t kMaxStrangerPayloadBytes = 4096;            // before the proof
inline constexpr std::size_t kMaxPayloadBytes = std::size_t{64} << 20U;  // after it

// Appends header and payload.
void append_frame(std::string& out, const Frame& frame);

// Cuts a stream into frames. After an error it stays in error: the connection must be closed.
class FrameParser {
 public:
  void set_limit(std::size_t max_payload_bytes) { limit_ = max_payload_bytes; }
  void feed(std::string_view bytes) { buffer_ += bytes; }
  // The next frame; nullopt: more bytes are needed. Errors: refused (unknown type, a length over the limit),
  // decided from the header alone, so a declared length never allocates.
  Result<std::optional<Frame>> next();

 private:
  std::size_t limit_ = kMaxStrangerPayloadBytes;
  std::size_t consumed_ = 0;
  std::string buffer_;
};

using Nonce = std::array<unsigned char, 32>;
using Proof = std::array<unsigned char, 32>;

inline constexpr std::uint32_t kControlProtocolVersion = 1;

struct HelloPayload {
  std::uint32_t version = kControlProtocolVersion;
  Nonce nonce{};
};
struct ChallengePayload {
  Nonce nonce{};
  Proof proof{};  // the hub knows the secret
};
// Who the member claims to be. Covered by its proof.
struct MemberClaim {
  std::int32_t rank = 0;
  std::int32_t size = 0;
  std::string build_id;
};
struct ProofPayload {
  Proof proof{};
  MemberClaim claim;
};
struct StatusPayload {
  StatusCode code = StatusCode::ok;
  std::string message;
};
struct GatherPayload {
  std::uint64_t number = 0;
  std::vector<std::string> values;
};
struct FailurePayload {
  std::uint64_t group = 0;      // 0: `dead_rank` is gone
  std::int32_t dead_rank = -1;  // world rank
  std::int32_t peer = -1;       // Status::peer
  StatusCode code = StatusCode::internal;
  std::string message;
};

std::string encode(const HelloPayload& payload);
std::string encode(const ChallengePayload& payload);
std::string encode(const ProofPayload& payload);
std::string encode(const StatusPayload& payload);
std::string encode(const GatherPayload& payload);
std::string encode(const FailurePayload& payload);

// Each takes exactly what its encode wrote; false for anything else (short, long, lengths that do not fit).
bool decode(std::string_view bytes, HelloPayload& payload);
bool decode(std::string_view bytes, ChallengePayload& payload);
bool decode(std::string_view bytes, ProofPayload& payload);
bool decode(std::string_view bytes, StatusPayload& payload);
bool decode(std::string_view bytes, GatherPayload& payload);
bool decode(std::string_view bytes, FailurePayload& payload);

// Sequential writer and reader of integers (native byte order: control connections never leave the node) and
// strings with a length in front. The layer above uses them for its messages.
class ByteWriter {
 public:
  template <class T>
  void put(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void put_text(std::string_view text) {
    put(static_cast<std::uint32_t>(text.size()));
    bytes_ += text;
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : bytes_(bytes) {}
  template <class T>
  bool get(T& value) {
    if (bytes_.size() < sizeof value) return false;
    bytes_.copy(reinterpret_cast<char*>(&value), sizeof value);
    bytes_.remove_prefix(sizeof value);
    return true;
  }
  bool get_text(std::string& text) {
    std::uint32_t text_bytes = 0;
    if (!get(text_bytes) || text_bytes > bytes_.size()) return false;
    text.assign(bytes_.substr(0, text_bytes));
    bytes_.remove_prefix(text_bytes);
    return true;
  }
  std::size_t left_bytes() const { return bytes_.size(); }
  bool is_at_end() const { return bytes_.empty(); }

 private:
  std::string_view bytes_;
};

}  // namespace tutti
