// Fuzz target: the addresses that ranks tell each other, of memory transports and of message transports. Any
// bytes are refused, or are an address that is written as the same bytes and can be compared.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "transports/memory/card.hpp"
#include "transports/message/card.hpp"

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

template <class Card>
void check(std::span<const std::byte> bytes, const tutti::Result<Card>& card, const Card& other) {
  if (!card) return require(!card.status().message().empty());
  const auto again = to_bytes(*card);
  require(std::equal(again.begin(), again.end(), bytes.begin(), bytes.end()));
  require(check_reach(*card, *card).is_ok());
  if (const auto reach = check_reach(*card, other); !reach) require(!reach.message().empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  check(bytes, tutti::memory::parse_card(bytes), tutti::memory::Card{});
  check(bytes, tutti::message::parse_card(bytes), tutti::message::Card{1, "TCP", {}});
  return 0;
}
