// The address of a message transport as bytes: its instance, the driver's dialect and the driver's own
// address. Knows no system call: reach() is computed from two addresses alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/status.hpp"

namespace tutti::message {

struct Address {
  std::uint64_t instance = 0;  // random, never 0
  std::string dialect;  // "UCX 1.13": what must be equal at both ends; text, since it is shown to people
  std::vector<std::byte> driver_address;  // what WireDriver::connect() is given
};

std::vector<std::byte> to_bytes(const Address& address);
// Errors: invalid_argument if the bytes are not an address.
Result<Address> parse_address(std::span<const std::byte> bytes);

// Ok, or unsupported with the reason why the two cannot talk.
Status check_reach(const Address& mine, const Address& theirs);

}  // namespace tutti::message
