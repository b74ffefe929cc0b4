// Packing calls into fingerprints and reading them back for error messages.
#include "runtime/scheduler/fingerprint.hpp"

#include <fmt/format.h>

namespace tutti {
namespace {

constexpr std::uint64_t kMix = 0x9E3779B97F4A7C15ULL;  // odd constant of Fibonacci hashing

std::uint64_t mix(std::uint64_t hash, std::uint64_t value) { return ((hash ^ value) * kMix) ^ (hash >> 29U); }

}  // namespace

std::uint32_t fingerprint_of(const Call& call, std::uint32_t contract) {
  // The root alone has the counts: the lengths of its messages tell whether they are right.
  std::uint64_t hash = call.has_counts_at_root ? mix(contract, ~std::uint64_t{0}) : mix(contract, call.count);
  const bool shares_counts = call.collective != Collective::alltoall && !call.has_counts_at_root;
  if (shares_counts) {
    for (std::uint64_t count : call.counts) hash = mix(hash, count);
  }
  const std::uint32_t root = is_rooted(call.collective) ? call.root : 0U;
  const auto op = is_reducing(call.collective) ? static_cast<std::uint32_t>(call.op.op) : 0U;
  if (call.dtype == Dtype::opaque) hash = mix(hash, element_bytes(call));
  hash = mix(hash, root);
  return (static_cast<std::uint32_t>(call.collective) << 28U) |
         (static_cast<std::uint32_t>(call.dtype) << 23U) | (op << 19U) | ((root & 63U) << 13U) |
         static_cast<std::uint32_t>(hash >> 51U);
}

std::string describe_word(std::uint64_t word) {
  const auto fingerprint = static_cast<std::uint32_t>(word);
  const std::uint32_t collective = fingerprint >> 28U, dtype = (fingerprint >> 23U) & 31U,
                      op = (fingerprint >> 19U) & 15U;
  if (collective >= kCollectiveCount || dtype >= kDtypeCount || op >= kOpCount)
    return fmt::format("a foreign message {:#x}", word);
  const auto kind = static_cast<Collective>(collective);
  std::string text = fmt::format("{} ({}", to_string(kind), to_string(static_cast<Dtype>(dtype)));
  if (is_reducing(kind)) text += fmt::format(", {}", to_string(static_cast<Op>(op)));
  if (is_rooted(kind)) text += fmt::format(", root {}", (fingerprint >> 13U) & 63U);
  return text + fmt::format("), operation {}", word >> 32U);
}

}  // namespace tutti
