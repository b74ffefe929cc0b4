// Encoding and decoding of control frames. Knows no socket.
#include "runtime/job/control_frame.hpp"

#include <fmt/format.h>

namespace tutti {
namespace {

constexpr std::uint16_t kMagic = 0x5454;  // "TT"
constexpr std::size_t kCompactAtBytes = std::size_t{1} << 16U;
constexpr std::size_t kMostKeptBytes = 4096;  // of an empty buffer

Status malformed(std::string what) {
  return Status(StatusCode::refused, "malformed control frame: " + std::move(what));
}

}  // namespace

void clear_buffer(std::string& buffer) {
  buffer.clear();
  if (buffer.capacity() > kMostKeptBytes) std::string().swap(buffer);
}

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

std::string FrameParser::take_rest() {
  buffer_.erase(0, std::exchange(consumed_, 0));
  return std::exchange(buffer_, {});
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
  if (consumed_ == buffer_.size()) {
    clear_buffer(buffer_);
    consumed_ = 0;
  } else if (consumed_ >= kCompactAtBytes) {
    buffer_.erase(0, std::exchange(consumed_, 0));
  }
  return std::optional<Frame>(std::move(frame));
}

}  // namespace tutti
