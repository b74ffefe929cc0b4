// Reading, writing and comparing addresses. Knows no instance behind them; see card.hpp.
#include "transports/memory/card.hpp"

#include <cstring>
#include <string>

namespace tutti::memory {

std::vector<std::byte> to_bytes(const Card& card) {
  std::vector<std::byte> bytes(sizeof(Card));
  std::memcpy(bytes.data(), &card, sizeof(Card));
  return bytes;
}

Result<Card> parse_card(std::span<const std::byte> bytes) {
  if (bytes.size() != sizeof(Card)) {
    return invalid_argument("a memory transport's address has " + std::to_string(sizeof(Card)) +
                            " bytes, not " + std::to_string(bytes.size()));
  }
  Card card;
  std::memcpy(&card, bytes.data(), sizeof(Card));
  if (card.kind != Card::Kind::inproc && card.kind != Card::Kind::shm) {
    return invalid_argument("not an address of a memory transport");
  }
  return card;
}

Status check_reach(const Card& mine, const Card& theirs) {
  if (mine.kind != theirs.kind) return unsupported("another transport");
  if (mine.layout != theirs.layout) return unsupported("another build of the library");
  if (mine.node != theirs.node) {
    return unsupported(mine.kind == Card::Kind::inproc ? "another process or fabric" : "another node");
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
