// Reading, writing and comparing addresses. Knows no instance behind them; see address.hpp.
#include "transports/memory/address.hpp"

#include <cstring>
#include <string>

namespace tutti::memory {

std::vector<std::byte> to_bytes(const Address& address) {
  std::vector<std::byte> bytes(sizeof(Address));
  std::memcpy(bytes.data(), &address, sizeof(Address));
  return bytes;
}

Result<Address> parse_address(std::span<const std::byte> bytes) {
  if (bytes.size() != sizeof(Address)) {
    return invalid_argument("a memory transport's address has " + std::to_string(sizeof(Address)) +
                            " bytes, not " + std::to_string(bytes.size()));
  }
  Address address;
  std::memcpy(&address, bytes.data(), sizeof(Address));
  if (address.kind != Address::Kind::inproc && address.kind != Address::Kind::shm) {
    return invalid_argument("not an address of a memory transport");
  }
  return address;
}

Status check_reach(const Address& mine, const Address& theirs) {
  if (mine.kind != theirs.kind) return unsupported("another transport");
  if (mine.layout != theirs.layout) return unsupported("another build of the library");
  if (mine.node != theirs.node) {
    return unsupported(mine.kind == Address::Kind::inproc ? "another process or fabric" : "another node");
  }
  if (mine.uid != theirs.uid) {
    return unsupported("another user (uid " + std::to_string(theirs.uid) + ", ours is " +
                       std::to_string(mine.uid) + ")");
  }
  return {};
}

Nonce hash_text(std::string_view text) {
  auto fnv = [text](std::uint64_t hash) {
    for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
    return hash;
  };
  return {fnv(0xcbf29ce484222325U), fnv(0x84222325cbf29ce4U)};
}

}  // namespace tutti::memory
