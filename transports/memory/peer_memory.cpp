// Waiting for a peer's segments; see peer_memory.hpp.
#include "transports/memory/peer_memory.hpp"

namespace tutti::memory {

ByteRange PeerMemory::segment(std::uint32_t index) {
  const ByteRange memory = peer_->segment(index);
  if (!memory.empty()) return memory;
  host_->service();  // its descriptor may be waiting
  return peer_->segment(index);
}

// Looking for new descriptors costs system calls. A peer that died may still have left its memory there.
ByteRange PeerMemory::await_segment(std::uint32_t index) {
  constexpr std::uint32_t kAttemptsPerService = 64;
  const ByteRange memory = peer_->segment(index);
  if (!memory.empty() || (attempts_++ % kAttemptsPerService != 0 && !is_dead_)) return memory;
  const ByteRange found = segment(index);
  if (found.empty() && !peer_->trouble()) is_lost_ = true;
  return found;
}

InstancePage* PeerMemory::page() {
  if (page_ != nullptr) return page_;
  const ByteRange memory = await_segment(0);
  if (memory.size() >= sizeof(InstancePage)) page_ = reinterpret_cast<InstancePage*>(memory.data());
  return page_;
}

std::byte* PeerMemory::at(std::uint64_t place, std::size_t bytes) {
  return place_in(await_segment(segment_of(place)), place, bytes);
}

std::byte* PeerMemory::find_announced(const Nonce& key, std::uint64_t context, std::size_t bytes,
                                      Found* found, std::uint64_t* seen_version) {
  InstancePage* const directory = page();
  if (directory == nullptr) return nullptr;
  const std::uint64_t version = directory->directory_version.load(std::memory_order_acquire);
  if (version == *seen_version) return nullptr;
  bool is_sure = true;
  const Found entry = find_block(
      *directory, key, context, [this](std::uint64_t place, std::size_t size) { return at(place, size); },
      &is_sure);
  if (entry.entry == nullptr) {
    if (is_sure) *seen_version = version;
    return nullptr;
  }
  std::byte* const block = at(entry.place, bytes);  // null: its segment will be mapped
  if (block != nullptr) *found = entry;
  return block;
}

}  // namespace tutti::memory
