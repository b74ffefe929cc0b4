// Fuzz target: any bytes are either refused as the cause of a failure, or are what encoding gives, but for a
// rank that the group does not have.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "runtime/scheduler/abort_notice.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::uint32_t kRanks = 4;
  const tutti::ConstByteRange bytes = std::as_bytes(std::span(data, size));
  const auto cause = tutti::decode_abort_notice(bytes, kRanks);
  if (!cause) return 0;
  if (cause->is_ok() || cause->peer() < tutti::Status::kNoPeer || cause->peer() >= int{kRanks}) std::abort();
  const auto again = tutti::encode_abort_notice(*cause);
  const auto same = tutti::decode_abort_notice(again, kRanks);
  if (again.size() != bytes.size() || !same || same->to_string() != cause->to_string()) std::abort();
  return 0;
}
