// A peer's memory as endpoints and windows see it: segments that are still to come, and whether the peer is gone.
// Knows no protocol.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "transports/memory/host.hpp"
#include "transports/memory/instance.hpp"
#include "transports/memory/layout.hpp"
#include "transports/memory/peer.hpp"
#include "transports/transport.hpp"

namespace tutti::memory {

// A place in the segment that is mapped as `memory`; null if it is not within.
inline std::byte* place_in(ByteRange memory, std::uint64_t place, std::size_t bytes) {
  const std::uint64_t offset = offset_of(place);
  const bool is_sound = place != 0 && offset <= memory.size() && bytes <= memory.size() - offset;
  return is_sound ? memory.data() + offset : nullptr;
}

class PeerMemory {
 public:
  PeerMemory(Host* host, std::shared_ptr<Peer> peer) : host_(host), peer_(std::move(peer)) {}

  Peer& peer() const { return *peer_; }
  const std::shared_ptr<Peer>& shared_peer() const { return peer_; }

  // Empty until it can be mapped. Looks for news of the peer's memory if it is not there.
  ByteRange segment(std::uint32_t index);
  // The same for a segment that is awaited again and again: looks for news only now and then.
  ByteRange await_segment(std::uint32_t index);
  // The first page of the peer's memory; null until it is mapped.
  InstancePage* page();
  // A place in the peer's link memory; null until it is mapped.
  std::byte* at(std::uint64_t place, std::size_t bytes);
  // The block of so many bytes that the peer has announced under that key; null until that is done and mapped.
  // `seen_version`: of the directory in which it was not, kept by the caller from one call to the next; kNoVersion at
  // first.
  static constexpr std::uint64_t kNoVersion = ~std::uint64_t{0};
  std::byte* find_announced(const Nonce& key, std::uint64_t context, std::size_t bytes, Found* found,
                            std::uint64_t* seen_version);

  // Has the peer died? Asks the system.
  void check() {
    is_dead_ = is_dead_ || peer_->is_gone();
    is_lost_ = is_lost_ || peer_->is_cut_off();
  }
  // Its memory, or ours for it, cannot be had: for an endpoint the peer is as good as gone.
  void give_up() { is_lost_ = true; }
  bool is_gone() const { return is_dead_ || is_lost_; }
  // The same, or its transport has ended.
  bool has_ended() const { return is_lost_ || has_died(); }
  // For windows, which share this: what one of them could not have does not count for the others.
  bool has_died() const {
    return is_dead_ || (page_ != nullptr && page_->is_alive.load(std::memory_order_acquire) == 0);
  }
  // The next await_segment() looks for news, whatever came before.
  void expect_news() { attempts_ = 0; }

 private:
  Host* host_;
  std::shared_ptr<Peer> peer_;
  InstancePage* page_ = nullptr;
  std::uint32_t attempts_ = 0;
  bool is_dead_ = false, is_lost_ = false;
};

// A member of a window.
struct WindowPeer {
  PeerMemory memory;
  Nonce nonce;
};
// By rank; null: this rank. Windows with the same members share the list.
using WindowPeers = std::vector<std::unique_ptr<WindowPeer>>;

}  // namespace tutti::memory
