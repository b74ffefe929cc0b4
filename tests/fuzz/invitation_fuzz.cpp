// Fuzz target: invitations to a running job. Any text is refused with one message for all (it may hold a secret), or
// read as an invitation that is written as the same text. The input is the text, and the bytes in it.
#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "runtime/job/agreement.hpp"

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

void check(std::string_view text) {
  const auto invitation = tutti::parse_invitation(text);
  if (!invitation) {
    require(invitation.status().message() == tutti::parse_invitation("").status().message());
    return;
  }
  require(to_text(*invitation) == text);
  require(!invitation->lineage.empty() && !invitation->membership.members.empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  check({reinterpret_cast<const char*>(data), size});
  std::string text = "tutti-join-";
  for (std::size_t i = 0; i < size; ++i) text += fmt::format("{:02x}", data[i]);
  check(text);
  return 0;
}
