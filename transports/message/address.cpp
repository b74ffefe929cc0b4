// Addresses to bytes and back. Knows no library; see address.hpp.
#include "transports/message/address.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "transports/message/wire.hpp"

namespace tutti::message {

namespace {

// "tuttimsg" and the sizes of what travels: read with another byte order, or by another build, it differs.
constexpr std::uint64_t kMagic =
    0x74757474696d7367ULL + (std::uint64_t{sizeof(MessageHeader)} << 8U) + sizeof(Notice);

struct FixedPart {
  std::uint64_t magic = kMagic;
  std::uint64_t instance = 0;
  std::uint64_t dialect_bytes = 0;
  std::uint64_t address_bytes = 0;
};

}  // namespace

std::vector<std::byte> to_bytes(const Address& address) {
  const FixedPart fixed{kMagic, address.instance, address.dialect.size(), address.driver_address.size()};
  std::vector<std::byte> bytes(sizeof(fixed) + address.dialect.size() + address.driver_address.size());
  std::memcpy(bytes.data(), &fixed, sizeof(fixed));
  if (!address.dialect.empty()) {
    std::memcpy(bytes.data() + sizeof(fixed), address.dialect.data(), address.dialect.size());
  }
  std::copy(address.driver_address.begin(), address.driver_address.end(),
            bytes.end() - static_cast<std::ptrdiff_t>(address.driver_address.size()));
  return bytes;
}

Result<Address> parse_address(std::span<const std::byte> bytes) {
  FixedPart fixed;
  if (bytes.size() <= sizeof(fixed)) return invalid_argument("not an address of this transport");
  std::memcpy(&fixed, bytes.data(), sizeof(fixed));
  const std::span<const std::byte> rest = bytes.subspan(sizeof(fixed));
  if (fixed.magic != kMagic || fixed.instance == 0 || fixed.dialect_bytes > rest.size() ||
      fixed.address_bytes != rest.size() - fixed.dialect_bytes) {
    return invalid_argument("not an address of this transport");
  }
  const std::span<const std::byte> dialect = rest.first(fixed.dialect_bytes);
  const std::span<const std::byte> address = rest.subspan(fixed.dialect_bytes);
  return Address{fixed.instance,
                 {reinterpret_cast<const char*>(dialect.data()), dialect.size()},
                 {address.begin(), address.end()}};
}

Status check_reach(const Address& mine, const Address& theirs) {
  if (mine.dialect == theirs.dialect) return {};
  return unsupported(fmt::format("{} here and {} there", mine.dialect, theirs.dialect));
}

}  // namespace tutti::message
