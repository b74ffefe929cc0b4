// The address of an instance as bytes: who it is, which UCX speaks there, and UCX's own address.
// Knows no system call: reach() is computed from two cards alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/base/status.hpp"

namespace tutti::ucx {

struct Card {
  std::uint64_t instance = 0;  // random, never 0
  std::uint32_t ucx_major = 0;
  std::uint32_t ucx_minor = 0;
  std::vector<std::byte> worker_address;
};

std::vector<std::byte> to_bytes(const Card& card);
// Errors: invalid_argument if the bytes are not a card.
Result<Card> parse_card(std::span<const std::byte> bytes);

// Ok, or unsupported with the reason why the two cannot talk.
Status check_reach(const Card& mine, const Card& theirs);

}  // namespace tutti::ucx
