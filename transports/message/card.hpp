// The address of an instance as bytes: who it is, which library speaks there, and the library's own address.
// Knows no system call: reach() is computed from two cards alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/status.hpp"

namespace tutti::message {

struct Card {
  std::uint64_t instance = 0;  // random, never 0
  std::string dialect;  // "UCX 1.13": what must be equal at both ends; text, since it is shown to people
  std::vector<std::byte> address;
};

std::vector<std::byte> to_bytes(const Card& card);
// Errors: invalid_argument if the bytes are not a card.
Result<Card> parse_card(std::span<const std::byte> bytes);

// Ok, or unsupported with the reason why the two cannot talk.
Status check_reach(const Card& mine, const Card& theirs);

}  // namespace tutti::message
