// A window over memory that all members of a context can map: a block in each rank's link memory says what it
// exposes. Knows no message.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
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
  MemoryWindow(Host* host, Worker* worker, std::uint64_t context)
      : host_(host), worker_(worker), context_(context) {}
  ~MemoryWindow() override { close(); }
  MemoryWindow(const MemoryWindow&) = delete;
  MemoryWindow& operator=(const MemoryWindow&) = delete;

  // Peers in their order; null: this rank.
  void add_peer(std::shared_ptr<Peer> peer, const Nonce& nonce);
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
  struct Side {
    Side(Host* host, std::shared_ptr<Peer> peer, const Nonce& its_nonce)
        : memory(host, std::move(peer)), nonce(its_nonce) {}
    PeerMemory memory;
    Nonce nonce;
    Found found;
    const WindowBlock* block = nullptr;  // null until the peer has opened its side
    bool has_read_notice = false;
  };
  bool find(Side& side);
  void wake(Side& side);
  void wake_all();

  Host* host_;
  Worker* worker_;
  std::uint64_t context_;
  std::vector<std::unique_ptr<Side>> sides_;  // null: this rank
  WindowBlock* block_ = nullptr;
  std::uint64_t block_place_ = 0;
  DirectoryEntry* entry_ = nullptr;
  bool is_closed_ = true;  // until it is announced
};

}  // namespace tutti::memory
