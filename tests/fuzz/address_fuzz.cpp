// Fuzz target: the addresses that ranks tell each other, of memory transports and of message transports. Any
// bytes are refused, or are an address that is written as the same bytes and can be compared.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "transports/memory/address.hpp"
#include "transports/message/address.hpp"

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

template <class Address>
void check(std::span<const std::byte> bytes, const tutti::Result<Address>& address, const Address& other) {
  if (!address) return require(!address.status().message().empty());
  const auto again = to_bytes(*address);
  require(std::equal(again.begin(), again.end(), bytes.begin(), bytes.end()));
  require(check_reach(*address, *address).is_ok());
  if (const auto reach = check_reach(*address, other); !reach) require(!reach.message().empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  check(bytes, tutti::memory::parse_address(bytes), tutti::memory::Address{});
  check(bytes, tutti::message::parse_address(bytes), tutti::message::Address{1, "TCP", {}});
  return 0;
}
