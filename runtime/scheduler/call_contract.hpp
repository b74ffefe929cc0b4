// The contract of a call, which all ranks of a group must share, and its digest. Knows no transport.
//
// Flag lines and match headers carry a 64-bit digest of all collectives that the rank has submitted to the group,
// this one included. Some ranks hear from nobody in a call, as the root of a broadcast or a leaf of a gather. The
// next call still finds that the one before differed. Messages between two ranks have a word that can be read
// again.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/base/call.hpp"

namespace tutti {

// The next value of a digest: one-to-one in the value for each digest, and in the digest for each value. So
// ranks that once differ keep differing while their calls are equal.
constexpr std::uint64_t extend_digest(std::uint64_t digest, std::uint64_t value) {
  const std::uint64_t mixed = (digest ^ value) * 0x9E3779B97F4A7C15ULL;  // odd constant of Fibonacci hashing
  return mixed ^ (mixed >> 32U);
}
std::uint64_t extend_digest(std::uint64_t digest, std::string_view text);

struct CallContract {
  std::uint64_t kind = 0;   // collective, dtype, op (8 bits each), 1 if it has counts by rank, 0 or 1 +
                            // the dtype on the wire (7 bits), root (32 bits)
  std::uint64_t count = 0;  // elements; the sum of counts by rank
  std::uint64_t hash = 0;   // of both, of counts by rank, and of `settings`
};

// `settings`: what else must be equal: what the group has agreed on, and the algorithm that was chosen. In
// place is no part of it (ranks may differ), nor are counts that ranks need not share (alltoallv).
// `wire_dtype` is set where its messages may travel so, whoever asked for it.
CallContract contract_of(const Call& call, std::uint64_t settings);

// "allreduce of 4 f32, sum"
std::string describe_contract(std::uint64_t kind, std::uint64_t count);

// Whether the rank `waiting` needs data of the rank `other` to end such a call, whatever the algorithm. False where
// counts by rank decide.
bool needs_data_of(std::uint64_t kind, std::uint64_t count, std::uint32_t waiting, std::uint32_t other);

// A message between two ranks: its number in the order of the pair, its collective and its dtype. Transports
// compare its length.
constexpr std::uint32_t message_kind(const CallContract& contract) {
  return static_cast<std::uint32_t>(contract.kind);
}
constexpr std::uint64_t make_message_word(std::uint32_t sequence, std::uint32_t kind) {
  return (std::uint64_t{sequence} << 32U) | kind;
}
// "send_recv of 4 f32, number 7"
std::string describe_message(std::uint64_t word, std::uint64_t bytes);

}  // namespace tutti
