// Encoding and decoding of control frames. Knows no socket.
#include "runtime/job/control_frame.hpp"

#include <fmt/format.h>

namespace tutti {
namespace {

constexpr std::uint16_t kMagic = 0x5454;  // "TT"
constexpr std::size_t kCompactAtBytes = std::size_t{1} << 16U;

Status malformed(std::string what) {
  return Status(StatusCode::refused, "malformed control frame: " + std::move(what));
}

bool get_code(ByteReader& reader, StatusCode& code) {
  std::uint8_t value = 0;
  if (!reader.get(value) || value > static_cast<std::uint8_t>(StatusCode::internal)) return false;
  code = static_cast<StatusCode>(value);
  return true;
}

void put_flag(ByteWriter& writer, bool flag) { writer.put(static_cast<std::uint8_t>(flag ? 1 : 0)); }

bool get_flag(ByteReader& reader, bool& flag) {
  std::uint8_t value = 0;
  if (!reader.get(value) || value > 1) return false;
  flag = value == 1;
  return true;
}

void put_claim(ByteWriter& writer, const MemberClaim& claim) {
  writer.put(claim.rank);
  writer.put(claim.size);
  writer.put(claim.pid);
  writer.put_text(claim.host);
  writer.put_text(claim.build_id);
  put_flag(writer, claim.is_moving);
}

bool get_claim(ByteReader& reader, MemberClaim& claim) {
  return reader.get(claim.rank) && reader.get(claim.size) && reader.get(claim.pid) &&
         reader.get_text(claim.host) && reader.get_text(claim.build_id) && get_flag(reader, claim.is_moving);
}

}  // namespace

void append_frame(std::string& out, const Frame& frame) {
  TUTTI_ASSERT(frame.payload.size() <= kMaxPayloadBytes, "callers check the size of what they send");
  ByteWriter header;
  header.put(kMagic);
  header.put(static_cast<std::uint8_t>(frame.type));
  header.put(std::uint8_t{0});
  header.put(static_cast<std::uint32_t>(frame.payload.size()));
  header.put(frame.source);
  header.put(frame.target);
  out += header.take();
  out += frame.payload;
}

Result<std::optional<Frame>> FrameParser::next() {
  ByteReader reader(std::string_view(buffer_).substr(consumed_));
  std::uint16_t magic = 0;
  std::uint8_t type = 0, zero = 0;
  std::uint32_t payload_bytes = 0;
  Frame frame;
  if (!reader.get(magic) || !reader.get(type) || !reader.get(zero) || !reader.get(payload_bytes) ||
      !reader.get(frame.source) || !reader.get(frame.target)) {
    return std::optional<Frame>();
  }
  if (magic != kMagic || zero != 0) return malformed("this is not tutti's protocol");
  if (type < static_cast<std::uint8_t>(FrameType::hello) ||
      type > static_cast<std::uint8_t>(kLastFrameType)) {
    return malformed(fmt::format("unknown type {}", type));
  }
  if (payload_bytes > limit_)
    return malformed(fmt::format("{} bytes of payload, at most {} allowed", payload_bytes, limit_));
  if (reader.left_bytes() < payload_bytes) return std::optional<Frame>();
  frame.type = static_cast<FrameType>(type);
  frame.payload.assign(buffer_, consumed_ + kFrameHeaderBytes, payload_bytes);
  consumed_ += kFrameHeaderBytes + payload_bytes;
  if (consumed_ == buffer_.size() || consumed_ >= kCompactAtBytes) {
    buffer_.erase(0, consumed_);
    consumed_ = 0;
  }
  return std::optional<Frame>(std::move(frame));
}

std::string encode(const HelloPayload& payload) {
  ByteWriter writer;
  writer.put(payload.version);
  writer.put(payload.nonce);
  writer.put_text(payload.job);
  return writer.take();
}

bool decode(std::string_view bytes, HelloPayload& payload) {
  ByteReader reader(bytes);
  return reader.get(payload.version) && reader.get(payload.nonce) && reader.get_text(payload.job) &&
         reader.is_at_end();
}

std::string encode(const MemberClaim& claim) {
  ByteWriter writer;
  put_claim(writer, claim);
  return writer.take();
}

std::string encode(const ChallengePayload& payload) {
  ByteWriter writer;
  writer.put(payload.nonce);
  return writer.take();
}

bool decode(std::string_view bytes, ChallengePayload& payload) {
  ByteReader reader(bytes);
  return reader.get(payload.nonce) && reader.is_at_end();
}

std::string encode(const ProofPayload& payload) {
  ByteWriter writer;
  writer.put(payload.proof);
  return writer.take();
}

bool decode(std::string_view bytes, ProofPayload& payload) {
  ByteReader reader(bytes);
  return reader.get(payload.proof) && reader.is_at_end();
}

std::string encode(const ClaimPayload& payload) {
  ByteWriter writer;
  writer.put(payload.proof);
  put_claim(writer, payload.claim);
  return writer.take();
}

bool decode(std::string_view bytes, ClaimPayload& payload) {
  ByteReader reader(bytes);
  return reader.get(payload.proof) && get_claim(reader, payload.claim) && reader.is_at_end();
}

std::string encode(const ArrivedPayload& payload) {
  ByteWriter writer;
  for (const MemberClaim& claim : payload.claims) put_claim(writer, claim);
  return writer.take();
}

bool decode(std::string_view bytes, ArrivedPayload& payload) {
  ByteReader reader(bytes);
  payload.claims.clear();
  while (!reader.is_at_end()) {
    if (!get_claim(reader, payload.claims.emplace_back())) return false;
  }
  return true;
}

std::string encode(const GonePayload& payload) {
  ByteWriter writer;
  writer.put(payload.rank);
  put_flag(writer, payload.is_dead);
  put_flag(writer, payload.may_return);
  writer.put_text(payload.text);
  return writer.take();
}

bool decode(std::string_view bytes, GonePayload& payload) {
  ByteReader reader(bytes);
  return reader.get(payload.rank) && get_flag(reader, payload.is_dead) &&
         get_flag(reader, payload.may_return) && reader.get_text(payload.text) && reader.is_at_end();
}

std::string encode(const RanksPayload& payload) {
  ByteWriter writer;
  for (const std::int32_t rank : payload.ranks) writer.put(rank);
  return writer.take();
}

bool decode(std::string_view bytes, RanksPayload& payload) {
  ByteReader reader(bytes);
  payload.ranks.clear();
  while (!reader.is_at_end()) {
    if (!reader.get(payload.ranks.emplace_back())) return false;
  }
  return true;
}

std::string encode(const PathPayload& payload) {
  ByteWriter writer;
  for (const PathStep& step : payload.steps) {
    writer.put(step.rank);
    writer.put_text(step.addresses);
  }
  return writer.take();
}

bool decode(std::string_view bytes, PathPayload& payload) {
  ByteReader reader(bytes);
  payload.steps.clear();
  while (!reader.is_at_end()) {
    PathStep& step = payload.steps.emplace_back();
    if (!reader.get(step.rank) || !reader.get_text(step.addresses)) return false;
  }
  return true;
}

std::string encode(const TracePayload& payload) {
  ByteWriter writer;
  writer.put(payload.number);
  writer.put(payload.rank);
  writer.put(payload.hop);
  writer.put(payload.next_hop);
  return writer.take();
}

bool decode(std::string_view bytes, TracePayload& payload) {
  ByteReader reader(bytes);
  return reader.get(payload.number) && reader.get(payload.rank) && reader.get(payload.hop) &&
         reader.get(payload.next_hop) && reader.is_at_end();
}

std::string encode(const StatusPayload& payload) {
  ByteWriter writer;
  writer.put(payload.code);
  writer.put_text(payload.message);
  writer.put(payload.peer);
  return writer.take();
}

bool decode(std::string_view bytes, StatusPayload& payload) {
  ByteReader reader(bytes);
  return get_code(reader, payload.code) && reader.get_text(payload.message) && reader.get(payload.peer) &&
         reader.is_at_end();
}

std::string encode(const GatherPayload& payload) {
  ByteWriter writer;
  writer.put(payload.number);
  for (const std::string& value : payload.values) writer.put_text(value);
  return writer.take();
}

bool decode(std::string_view bytes, GatherPayload& payload) {
  ByteReader reader(bytes);
  payload.values.clear();
  if (!reader.get(payload.number)) return false;
  while (!reader.is_at_end()) {  // each value takes 4 bytes at least, so their number is bounded by the frame
    if (!reader.get_text(payload.values.emplace_back())) return false;
  }
  return true;
}

std::string encode(const EntriesPayload& payload) {
  ByteWriter writer;
  writer.put(payload.number);
  for (const auto& [rank, value] : payload.entries) {
    writer.put(rank);
    writer.put_text(value);
  }
  return writer.take();
}

bool decode(std::string_view bytes, EntriesPayload& payload) {
  ByteReader reader(bytes);
  payload.entries.clear();
  if (!reader.get(payload.number)) return false;
  while (!reader.is_at_end()) {
    auto& [rank, value] = payload.entries.emplace_back();
    if (!reader.get(rank) || !reader.get_text(value)) return false;
  }
  return true;
}

std::string encode(const FailurePayload& payload) {
  ByteWriter writer;
  writer.put(payload.group);
  writer.put(payload.dead_rank);
  writer.put(payload.peer);
  writer.put(payload.code);
  writer.put_text(payload.message);
  return writer.take();
}

bool decode(std::string_view bytes, FailurePayload& payload) {
  ByteReader reader(bytes);
  return reader.get(payload.group) && reader.get(payload.dead_rank) && reader.get(payload.peer) &&
         get_code(reader, payload.code) && payload.code != StatusCode::ok &&
         reader.get_text(payload.message) && reader.is_at_end();
}

}  // namespace tutti
