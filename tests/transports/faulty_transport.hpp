// A decorator that makes any transport behave as badly as its contract allows: it delays messages, reorders
// across endpoints and channels, answers `again` in storms, hands out few events at a time, and kills peers.
// Knows the seam only.
#pragma once

#include <cstdint>
#include <memory>

#include "transports/transport.hpp"

namespace tutti::test {

// Its faults are a function of `seed` and of the sequence of calls.
std::unique_ptr<Transport> make_faulty_transport(std::unique_ptr<Transport> inner, std::uint64_t seed);

// Ends a transport made by make_faulty_transport as a crash of its process would look to its peers: all
// endpoints close without warning, pending posts of its own complete as failed.
void kill(Transport* faulty);

}  // namespace tutti::test
