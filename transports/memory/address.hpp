// The address of a memory transport as bytes: its instance, and the node that shares memory.
// Knows no system call: reach() is computed from two addresses alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/base/status.hpp"
#include "transports/memory/instance.hpp"

namespace tutti::memory {

struct Address {
  enum class Kind : std::uint64_t { inproc = 1, shm = 2 };
  std::uint64_t layout = kLayoutMagic;
  Kind kind = Kind::inproc;
  std::uint32_t pid = 0;
  std::uint32_t uid = 0;
  Nonce node;   // of what shares memory: the fabric, or the node
  Nonce nonce;  // of the instance
  // shm: what the socket's name is made of. Every user of the machine can read it, but not the nonce.
  Nonce socket_name;
};

std::vector<std::byte> to_bytes(const Address& address);
// Errors: invalid_argument if the bytes are not an address.
Result<Address> parse_address(std::span<const std::byte> bytes);

// Ok, or unsupported with the reason why the two cannot share memory.
Status check_reach(const Address& mine, const Address& theirs);

// Any text as 128 bits.
Nonce hash_text(std::string_view text);

}  // namespace tutti::memory
