// How peers reach a driver: the addresses it listens at, and the secret that a connector must know.
// Knows no socket.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "runtime/base/status.hpp"
#include "runtime/net/network.hpp"
#include "transports/message/tcp/wire.hpp"

namespace tutti::tcp {

inline constexpr std::size_t kMaxPlaces = 16;

struct Address {
  Secret secret{};
  std::vector<SocketAddress> places;
};

std::vector<std::byte> to_bytes(const Address& address);
// Errors: invalid_argument if the bytes are not one.
Result<Address> parse_address(std::span<const std::byte> bytes);

}  // namespace tutti::tcp
