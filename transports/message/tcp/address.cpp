// Addresses to bytes and back. Knows no socket; see address.hpp.
#include "transports/message/tcp/address.hpp"

#include <netinet/in.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace tutti::tcp {

namespace {

// An IPv4 address takes the first four bytes of `host`.
struct Place {
  std::uint16_t family = 0;  // 4 or 6
  std::uint16_t port = 0;
  std::array<std::byte, 16> host{};
};

Place to_place(const SocketAddress& address) {
  Place place;
  place.port = address.port();
  if (address.family() == AF_INET) {
    place.family = 4;
    std::memcpy(place.host.data(), &reinterpret_cast<const sockaddr_in&>(address.storage).sin_addr, 4);
  } else {
    place.family = 6;
    std::memcpy(place.host.data(), &reinterpret_cast<const sockaddr_in6&>(address.storage).sin6_addr, 16);
  }
  return place;
}

SocketAddress to_socket_address(const Place& place) {
  SocketAddress address;
  if (place.family == 4) {
    auto& v4 = reinterpret_cast<sockaddr_in&>(address.storage);
    v4.sin_family = AF_INET;
    std::memcpy(&v4.sin_addr, place.host.data(), 4);
    address.bytes = sizeof v4;
  } else {
    auto& v6 = reinterpret_cast<sockaddr_in6&>(address.storage);
    v6.sin6_family = AF_INET6;
    std::memcpy(&v6.sin6_addr, place.host.data(), 16);
    address.bytes = sizeof v6;
  }
  return address.with_port(place.port);
}

}  // namespace

std::vector<std::byte> to_bytes(const Address& address) {
  const std::size_t count = std::min(address.places.size(), kMaxPlaces);
  std::vector<std::byte> bytes(sizeof(Secret) + count * sizeof(Place));
  std::memcpy(bytes.data(), address.secret.data(), sizeof(Secret));
  for (std::size_t i = 0; i < count; ++i) {
    const Place place = to_place(address.places[i]);
    std::memcpy(bytes.data() + sizeof(Secret) + i * sizeof(Place), &place, sizeof(Place));
  }
  return bytes;
}

Result<Address> parse_address(std::span<const std::byte> bytes) {
  const Status malformed = invalid_argument("not an address of the tcp transport");
  if (bytes.size() <= sizeof(Secret)) return malformed;
  Address address;
  std::memcpy(address.secret.data(), bytes.data(), sizeof(Secret));
  const std::span<const std::byte> places = bytes.subspan(sizeof(Secret));
  if (places.size() % sizeof(Place) != 0 || places.size() / sizeof(Place) > kMaxPlaces) return malformed;
  for (std::size_t at = 0; at < places.size(); at += sizeof(Place)) {
    Place place;
    std::memcpy(&place, places.data() + at, sizeof(Place));
    if ((place.family != 4 && place.family != 6) || place.port == 0) return malformed;
    address.places.push_back(to_socket_address(place));
  }
  return address;
}

}  // namespace tutti::tcp
