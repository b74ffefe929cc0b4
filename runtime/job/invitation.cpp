// The text of an invitation. See agreement.hpp.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "runtime/job/agreement.hpp"

namespace tutti {
namespace {

constexpr std::string_view kPrefix = "tutti-join-";
constexpr std::size_t kMaxBytes = 65536;

int digit_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

}  // namespace

std::string to_text(const Invitation& invitation) {
  const std::string bytes = encode(invitation);
  std::string text(kPrefix);
  for (const char byte : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return text;
}

Result<Invitation> parse_invitation(std::string_view text) {
  const Status malformed =
      invalid_argument("invitation: this is not a text that CommGroup::invitation() returned");
  if (!text.starts_with(kPrefix) || text.size() > kMaxBytes) return malformed;
  text.remove_prefix(kPrefix.size());
  std::string bytes;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2) {
    const int high = digit_value(text[i]), low = digit_value(text[i + 1]);
    if (high < 0 || low < 0) return malformed;
    bytes += static_cast<char>(high * 16 + low);
  }
  Invitation invitation;
  const bool is_whole = text.size() % 2 == 0 && decode(bytes, invitation) && !invitation.lineage.empty() &&
                        !invitation.membership.members.empty();
  if (!is_whole) return malformed;
  return invitation;
}

}  // namespace tutti
