// Shared by inproc and shm: endpoints, progress, sleeping.
// Does not know how memory is obtained or a peer is found: the two transports derive that.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "transports/memory/address.hpp"
#include "transports/memory/endpoint.hpp"
#include "transports/memory/instance.hpp"
#include "transports/memory/peer.hpp"
#include "transports/memory/window.hpp"
#include "transports/memory/worker.hpp"
#include "transports/transport.hpp"

namespace tutti::memory {

class MemoryTransport : public Transport, protected Host {
 public:
  ~MemoryTransport() override;

  const TransportCaps& caps() const override { return caps_; }
  std::vector<std::byte> address() const override;
  Result<std::uint64_t> reach(std::span<const std::byte> mine,
                              std::span<const std::byte> theirs) const override;
  Result<Contact> meet(std::span<const std::byte> peer_address) override;
  Result<std::unique_ptr<Endpoint>> open(std::span<const std::byte> peer_address,
                                         std::uint64_t context) override;
  Result<std::unique_ptr<SharedWindow>> open_window(std::span<const ConstByteRange> addresses,
                                                    std::uint64_t context) override;
  std::size_t progress(std::span<Event> events) override;
  Waitable waitable() const override;
  ArmResult arm() override;

 protected:
  // `address` describes this instance; its nonce is filled in here.
  MemoryTransport(std::shared_ptr<Instance> instance, const Address& address);

  // The peer of an address that check_reach accepts; the derived transport caches it. Thread-safe.
  virtual Result<std::shared_ptr<Peer>> attach(const Address& address) = 0;

  Instance& instance() override { return *instance_; }
  const std::shared_ptr<Instance>& shared_instance() const { return instance_; }
  void service() override {}
  bool is_own_process() const override;
  TransportCaps caps_;

 private:
  void forget(MemoryEndpoint* endpoint) override;
  void forget(MemoryWindow* window) override;
  void wake(InstancePage* page) override;
  void retire(RetiredEntry&& retired) override;
  Result<std::shared_ptr<Peer>> find_peer(std::span<const std::byte> address, Nonce* nonce);
  Result<std::shared_ptr<WindowPeers>> find_peers(std::span<const ConstByteRange> addresses);
  void note_open();
  void poll_peers(EventSink& out);
  void housekeep();
  bool is_over(RetiredEntry& retired) const;
  bool is_over(RetiredEntry::Side& side, std::uint64_t context) const;
  void release(const RetiredEntry& retired);

  std::shared_ptr<Instance> instance_;
  Address address_;
  ::pid_t pid_;
  bool has_membarrier_ = false;
  Worker worker_;
  std::mutex retired_mutex_;
  std::vector<RetiredEntry> retired_;
};

// Lets sleepers of other processes order our stores for us, as long as this process lives. False: the kernel cannot.
bool register_membarrier();

// Rounds and bounds what a caller asked for, so that every later use can rely on it.
MemoryOptions sanitize(MemoryOptions options);

}  // namespace tutti::memory
