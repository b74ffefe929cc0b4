// Cards to bytes and back. Knows no UCX; see card.hpp.
#include "transports/ucx/card.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "transports/ucx/wire.hpp"

namespace tutti::ucx {

namespace {

// "tuttiucx" and the sizes of what travels: read with another byte order, or by another build, it differs.
constexpr std::uint64_t kMagic =
    0x7475747469756378ULL + (std::uint64_t{sizeof(MessageHeader)} << 8U) + sizeof(Notice);

struct FixedPart {
  std::uint64_t magic = kMagic;
  std::uint64_t instance = 0;
  std::uint32_t ucx_major = 0;
  std::uint32_t ucx_minor = 0;
  std::uint64_t worker_address_bytes = 0;
};

}  // namespace

std::vector<std::byte> to_bytes(const Card& card) {
  const FixedPart fixed{kMagic, card.instance, card.ucx_major, card.ucx_minor, card.worker_address.size()};
  std::vector<std::byte> bytes(sizeof(fixed) + card.worker_address.size());
  std::memcpy(bytes.data(), &fixed, sizeof(fixed));
  std::copy(card.worker_address.begin(), card.worker_address.end(), bytes.begin() + sizeof(fixed));
  return bytes;
}

Result<Card> parse_card(std::span<const std::byte> bytes) {
  FixedPart fixed;
  if (bytes.size() <= sizeof(fixed)) return invalid_argument("not an address of this transport");
  std::memcpy(&fixed, bytes.data(), sizeof(fixed));
  const std::span<const std::byte> rest = bytes.subspan(sizeof(fixed));
  if (fixed.magic != kMagic || fixed.instance == 0 || rest.size() != fixed.worker_address_bytes) {
    return invalid_argument("not an address of this transport");
  }
  return Card{fixed.instance, fixed.ucx_major, fixed.ucx_minor, {rest.begin(), rest.end()}};
}

// UCX does not promise that worker addresses of different releases can be read.
Status check_reach(const Card& mine, const Card& theirs) {
  if (mine.ucx_major == theirs.ucx_major && mine.ucx_minor == theirs.ucx_minor) return {};
  return unsupported(fmt::format("another version of UCX: {}.{} here and {}.{} there", mine.ucx_major,
                                 mine.ucx_minor, theirs.ucx_major, theirs.ucx_minor));
}

}  // namespace tutti::ucx
