// State that the endpoints and windows of one transport share: finished events, the sleep flag, a bounce buffer.
// Knows no protocol. Everything here belongs to the transport's owner.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "transports/memory/instance.hpp"
#include "transports/memory/peer_memory.hpp"
#include "transports/queues.hpp"
#include "transports/transport.hpp"

namespace tutti::memory {

class MemoryEndpoint;
class MemoryWindow;

// Endpoints to one peer that were opened in a row, before any of them was used: contexts for the same kind of
// traffic in turn, such as the slots of a group. Memory that one of them needs is prepared on all, so that
// the next turn allocates nothing.
struct Siblings {
  // More contexts than anybody takes turns with: what one context needs is not to be prepared a thousand
  // times.
  static constexpr std::size_t kMaxMembers = 8;
  std::vector<MemoryEndpoint*> members;  // those that are open
  bool is_used = false;                  // and complete
};

struct Worker {
  static constexpr std::size_t kBounceBytes = std::size_t{64} << 10U;
  using Bounce = std::array<std::byte, kBounceBytes>;

  bool is_armed = false;
  bool uses_fence = false;  // the sleeper cannot use membarrier: publishing must order itself
  std::uint32_t control_seen = 0;
  std::uint32_t notices_seen = 0;
  std::uint32_t idle_count = 0;
  std::uint32_t arm_count = 0;
  std::uint32_t open_count = 0;
  std::vector<MemoryEndpoint*> endpoints;  // all that are open
  std::vector<MemoryEndpoint*> active;     // those with something pending
  std::vector<MemoryWindow*> windows;      // all that are open
  Fifo<Event> waiting;                     // events that found no room
  std::size_t next_active = 0;             // where progress() goes on, so that everybody has a turn
  std::deque<std::weak_ptr<WindowPeers>> peer_lists;  // of windows, the last used first
  std::shared_ptr<Siblings> last_siblings;            // of the endpoint that was opened last
  // Control bytes handed out by the last progress(); entries are kept for later ones.
  std::deque<std::array<std::byte, kControlBytes>> control_bytes;
  std::size_t control_bytes_count = 0;
  // Made with the first endpoint.
  std::unique_ptr<Bounce> bounce_buffer;

  ByteRange bounce() { return *bounce_buffer; }
  ConstByteRange keep_control(ConstByteRange bytes) {
    if (control_bytes_count == control_bytes.size()) control_bytes.emplace_back();
    std::byte* to = control_bytes[control_bytes_count++].data();
    std::memcpy(to, bytes.data(), bytes.size());
    return {to, bytes.size()};
  }
};

}  // namespace tutti::memory
