// Services of the transport for its endpoints and windows. Knows no protocol.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "transports/memory/instance.hpp"
#include "transports/memory/peer.hpp"

namespace tutti::memory {

class MemoryEndpoint;
class MemoryWindow;

// An entry of the directory that has been closed, until no peer may read its memory any more: each has closed its
// own side, or has ended.
struct RetiredEntry {
  struct Side {
    std::shared_ptr<Peer> peer;
    Nonce nonce;  // in the peer's entry
    Found found;  // the peer's entry, if it was found
  };
  std::uint64_t context = 0;
  DirectoryEntry* entry = nullptr;
  std::vector<Side> sides;            // that may still read it
  std::vector<std::uint64_t> blocks;  // places of link memory
};

class Host {
 public:
  virtual ~Host() = default;
  virtual Instance& instance() = 0;
  // Looks after connections now and then: a peer's memory was not there yet.
  virtual void service() = 0;
  virtual void forget(MemoryEndpoint* endpoint) = 0;
  virtual void forget(MemoryWindow* window) = 0;
  // Wakes the owner of `page` if it sleeps.
  virtual void wake(InstancePage* page) = 0;
  virtual void retire(RetiredEntry&& retired) = 0;
  // False in a child of fork(), which must not touch what it shares with its parent's peers.
  virtual bool is_own_process() const = 0;
};

}  // namespace tutti::memory
