// The 64-bit word that every message of an operation carries: sequence number and fingerprint of the call. It
// is readable again, so that a rank that receives another call's message can say which call that was. Knows
// no transport.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/base/call.hpp"

namespace tutti {

// Layout of the fingerprint: collective 4 bits, dtype 5, op 4, low bits of the root 6, hash of count and
// contract 13. In place is not part of it (ranks may differ), nor are counts that ranks need not share
// (alltoallv).
std::uint32_t fingerprint_of(const Call& call, std::uint32_t contract);
inline std::uint64_t make_word(std::uint32_t sequence, std::uint32_t fingerprint) {
  return (std::uint64_t{sequence} << 32U) | fingerprint;
}

// "allreduce (f32, sum), operation 7"
std::string describe_word(std::uint64_t word);

}  // namespace tutti
