// The inproc transport: private memory, peers found in the fabric. Knows no file descriptor.
#include "transports/memory/inproc/plugin.hpp"

#include <unistd.h>

#include <map>
#include <mutex>
#include <utility>

#include "transports/memory/local_peer.hpp"
#include "transports/memory/memory_transport.hpp"

namespace tutti {

namespace {

using namespace memory;

class InprocTransport final : public MemoryTransport {
 public:
  InprocTransport(std::shared_ptr<InprocFabric> fabric, std::shared_ptr<Instance> instance,
                  const Address& address)
      : MemoryTransport(std::move(instance), address), fabric_(std::move(fabric)) {
    fabric_->add(shared_instance());
    caps_.name = "inproc";
    caps_.detail = "threads of one process; large messages are read where they lie";
    caps_.alpha_ns = 100;
    caps_.beta_ps_per_byte = 100;
  }

 private:
  Result<std::shared_ptr<Peer>> attach(const Address& theirs) override {
    std::shared_ptr<Instance> found = fabric_->find(theirs.nonce);
    if (!found) return Status(StatusCode::peer_failed, "that transport no longer exists");
    const std::lock_guard lock(mutex_);
    std::weak_ptr<Peer>& known = peers_[theirs.nonce];
    std::shared_ptr<Peer> peer = known.lock();
    if (!peer) known = peer = std::make_shared<LocalPeer>(std::move(found));
    return peer;
  }

  std::shared_ptr<InprocFabric> fabric_;
  std::mutex mutex_;
  std::map<Nonce, std::weak_ptr<Peer>> peers_;
};

}  // namespace

std::shared_ptr<InprocFabric> make_inproc_fabric() { return std::make_shared<InprocFabric>(); }

Result<std::unique_ptr<Transport>> make_inproc_transport(std::shared_ptr<InprocFabric> fabric,
                                                         const MemoryOptions& options) {
  Result<std::shared_ptr<Instance>> instance =
      Instance::make(make_private_source(), make_nonce(), sanitize(options));
  if (!instance) return instance.status().with_context("inproc");
  Address address;
  address.kind = Address::Kind::inproc;
  address.node = fabric->id();
  address.pid = static_cast<std::uint32_t>(::getpid());
  address.uid = static_cast<std::uint32_t>(::getuid());
  return std::unique_ptr<Transport>(
      std::make_unique<InprocTransport>(std::move(fabric), std::move(*instance), address));
}

}  // namespace tutti
