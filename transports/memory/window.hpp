// A window over memory that all members of a context can map: a block in each rank's link memory says what it
// exposes. Knows no message.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "transports/memory/host.hpp"
#include "transports/memory/layout.hpp"
#include "transports/memory/peer_memory.hpp"
#include "transports/memory/worker.hpp"
#include "transports/queues.hpp"
#include "transports/transport.hpp"

namespace tutti::memory {

class MemoryWindow final : public SharedWindow {
 public:
  MemoryWindow(Host* host, Worker* worker, std::uint64_t context, std::shared_ptr<WindowPeers> peers)
      : host_(host), worker_(worker), context_(context), peers_(std::move(peers)), sides_(peers_->size()) {}
  ~MemoryWindow() override { close(); }
  MemoryWindow(const MemoryWindow&) = delete;
  MemoryWindow& operator=(const MemoryWindow&) = delete;

  // Allocates and announces the block. Errors: resource_exhausted.
  Status announce();

  void expose(std::uint32_t number, const SegmentRange& range) override;
  std::optional<SegmentRange> query(std::uint32_t peer, std::uint32_t number) override;
  ByteRange segment(std::uint32_t peer, std::uint32_t number) override;
  PeerBell bell(std::uint32_t peer) override;
  void wake(std::uint32_t peer) override;
  bool is_gone(std::uint32_t peer) override;
  Status trouble(std::uint32_t peer) const override;
  void notify(ConstByteRange bytes) override;
  void close() override;

  void poll_notices(EventSink& out);

 private:
  // A peer's side. A node with many ranks and groups has very many of them, so it is small.
  struct Side {
    const WindowBlock* block = nullptr;     // null until the peer has opened its side
    const DirectoryEntry* entry = nullptr;  // the same
    // The entry's state when it was found; before that, the version of the directory in which it was not.
    std::uint64_t state = PeerMemory::kNoVersion;

    bool is_closed() const {
      return entry != nullptr && entry->state.load(std::memory_order_acquire) != state;
    }
  };
  PeerMemory& memory(std::uint32_t peer) const { return (*peers_)[peer]->memory; }
  bool is_self(std::uint32_t peer) const { return (*peers_)[peer] == nullptr; }
  std::uint32_t size() const { return static_cast<std::uint32_t>(sides_.size()); }
  bool find(std::uint32_t peer);
  void wake_if_asleep(std::uint32_t peer);
  void wake_all();
  bool has_read_notice(std::uint32_t peer) const { return !notices_read_.empty() && notices_read_[peer]; }

  Host* host_;
  Worker* worker_;
  std::uint64_t context_;
  std::shared_ptr<WindowPeers> peers_;
  std::vector<Side> sides_;         // by rank; this rank's is unused
  std::vector<bool> notices_read_;  // by rank; empty: none
  WindowBlock* block_ = nullptr;
  std::uint64_t block_place_ = 0;
  DirectoryEntry* entry_ = nullptr;
  bool is_closed_ = true;  // until it is announced
};

}  // namespace tutti::memory
