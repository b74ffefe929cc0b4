// Encoding and parsing of the notice. Knows no group; see abort_notice.hpp.
#include "runtime/scheduler/abort_notice.hpp"

#include <algorithm>
#include <cstring>
#include <string>

namespace tutti {
namespace {

constexpr std::size_t kMostBytes = 256;

struct Head {
  std::uint32_t mark = 0;
  std::uint32_t code = 0;
  std::int32_t peer = Status::kNoPeer;
};
constexpr std::uint32_t kMark = 0x6c617374;

}  // namespace

std::vector<std::byte> encode_abort_notice(const Status& cause) {
  const Head head{kMark, static_cast<std::uint32_t>(cause.code()), cause.peer()};
  const std::string& text = cause.message();
  const std::size_t text_bytes = std::min(text.size(), kMostBytes - sizeof head);
  std::vector<std::byte> bytes(sizeof head + text_bytes);
  std::memcpy(bytes.data(), &head, sizeof head);
  std::memcpy(bytes.data() + sizeof head, text.data(), text_bytes);
  return bytes;
}

bool is_abort_notice(ConstByteRange bytes) {
  std::uint32_t mark = 0;
  if (bytes.size() < sizeof mark) return false;
  std::memcpy(&mark, bytes.data(), sizeof mark);
  return mark == kMark;
}

std::optional<Status> decode_abort_notice(ConstByteRange bytes, std::uint32_t size) {
  Head head;
  if (bytes.size() < sizeof head || bytes.size() > kMostBytes) return {};
  std::memcpy(&head, bytes.data(), sizeof head);
  if (head.mark != kMark || head.code == 0 || head.code > static_cast<std::uint32_t>(StatusCode::internal))
    return {};
  std::string text(reinterpret_cast<const char*>(bytes.data()) + sizeof head, bytes.size() - sizeof head);
  const bool is_member = head.peer >= 0 && static_cast<std::uint32_t>(head.peer) < size;
  return Status(static_cast<StatusCode>(head.code), std::move(text), is_member ? head.peer : Status::kNoPeer);
}

}  // namespace tutti
