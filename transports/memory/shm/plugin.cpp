// The shm transport: instances in memfd segments, peers met through their mailboxes. Knows no message
// protocol.
#include "transports/memory/shm/plugin.hpp"

#include <sys/prctl.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "transports/memory/memory_transport.hpp"
#include "transports/memory/shm/mailbox.hpp"
#include "transports/memory/shm/remote_peer.hpp"
#include "transports/memory/shm/segment.hpp"

namespace tutti {

namespace {

using namespace memory;
using namespace shm;

// Identifies a node: one boot of one kernel, and one network namespace, in which abstract sockets can meet.
std::string find_node_id() {
  std::string boot;
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::getline(file, boot);
  std::array<char, 64> net{};
  const ssize_t n = ::readlink("/proc/self/ns/net", net.data(), net.size());
  return boot + " " + std::string(net.data(), n > 0 ? static_cast<std::size_t>(n) : 0);
}

// A segment of a peer that we have not opened yet.
struct PendingSegment {
  SegmentNote note;
  OwnedFd fd;
};
// More than there are peers on a node as a rule.
constexpr std::size_t kPendingSegmentsReserved = 1024;

class ShmTransport final : public MemoryTransport {
 public:
  ShmTransport(const ShmOptions& options, std::shared_ptr<Instance> own, const Address& own_address,
               std::unique_ptr<Mailbox> mailbox)
      : MemoryTransport(std::move(own), own_address),
        registry_(options.registry),
        mailbox_(std::move(mailbox)) {
    if (registry_) registry_->add(shared_instance());
    caps_.name = "shm";
    caps_.alpha_ns = 200;
    caps_.beta_ps_per_byte = 150;
    choose_single_copy(options.memory.single_copy);
    pending_segments_.reserve(kPendingSegmentsReserved);
    shared_instance()->set_segment_hook([this] { push_segments(); });
  }
  ~ShmTransport() override { shared_instance()->set_segment_hook({}); }

 private:
  void choose_single_copy(SingleCopy wanted) {
    caps_.detail = "memfd segments; ";
    if (wanted == SingleCopy::off) {
      caps_.detail += "single copy off by configuration: staged ring";
      return;
    }
    const std::string why = probe_single_copy();
    may_copy_ = why.empty();
    caps_.detail +=
        may_copy_ ? "single copy by process_vm_readv" : "single copy unavailable (" + why + "): staged ring";
    if (may_copy_ && wanted == SingleCopy::on) ::prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
  }

  Result<std::shared_ptr<Peer>> attach(const Address& theirs) override {
    if (registry_) {
      if (std::shared_ptr<Instance> found = registry_->find(theirs.nonce)) {
        return std::shared_ptr<Peer>(std::make_shared<SameProcessPeer>(std::move(found), may_copy_));
      }
    }
    const std::lock_guard lock(mutex_);
    std::shared_ptr<RemotePeer>& peer = peers_[theirs.nonce];
    if (!peer) {
      peer = std::make_shared<RemotePeer>(instance().nonce(), theirs, may_copy_);
      for (PendingSegment& pending : pending_segments_) {
        if (pending.note.from == theirs.nonce) peer->take(pending.note, pending.fd);
      }
      std::erase_if(pending_segments_,
                    [&](const PendingSegment& pending) { return pending.note.from == theirs.nonce; });
    }
    const Result<bool> pushed = peer->push(instance());  // what is left of it is repeated by service()
    if (!pushed) return pushed.status();
    return std::shared_ptr<Peer>(peer);
  }

  // Takes segments of peers, also of some that we have not opened yet, and sends what could not be sent. Runs
  // whenever a rank waits: allocates nothing.
  void service() override {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock || !is_own_process()) return;
    const Status received = mailbox_->receive([this](const SegmentNote& note, OwnedFd fd) {
      const auto found = peers_.find(note.from);
      if (found != peers_.end()) {
        found->second->take(note, fd);
      } else {
        pending_segments_.push_back({note, std::move(fd)});
      }
    });
    const bool is_news = !received || is_delayed_;
    is_delayed_ = !received;
    for (auto it = peers_.begin(); it != peers_.end();) {
      const std::shared_ptr<RemotePeer>& peer = it->second;
      const bool is_used = peer.use_count() > 1;
      if (is_news) peer->set_delay(received);
      if (is_used) static_cast<void>(peer->push(instance()));  // the peer keeps the error
      it = !is_used && peer->is_gone() ? peers_.erase(it) : std::next(it);
    }
  }

  void push_segments() {
    const std::lock_guard lock(mutex_);
    for (const auto& [nonce, peer] : peers_) {
      if (peer.use_count() > 1) static_cast<void>(peer->push(instance()));  // service() repeats it
    }
  }

  std::shared_ptr<InstanceRegistry> registry_;
  bool may_copy_ = false;
  std::mutex mutex_;  // of everything below
  std::unique_ptr<Mailbox> mailbox_;
  bool is_delayed_ = false;                             // peers were told that the mailbox has no descriptors
  std::map<Nonce, std::shared_ptr<RemotePeer>> peers_;  // that were opened here
  std::vector<PendingSegment> pending_segments_;        // of peers that were not opened yet and may be dead
};

}  // namespace

void prepare_shm_process() { static_cast<void>(register_membarrier()); }

Result<std::unique_ptr<Transport>> make_shm_transport(const ShmOptions& options) {
  const Nonce nonce = make_nonce();
  const Nonce socket_name = make_nonce();
  Result<std::unique_ptr<Mailbox>> mailbox = Mailbox::open(socket_name, nonce);
  if (!mailbox) return mailbox.status().with_context("shm");
  Result<std::shared_ptr<Instance>> instance =
      Instance::make(make_memfd_source(), nonce, sanitize(options.memory));
  if (!instance) return instance.status().with_context("shm");
  Address address;
  address.kind = Address::Kind::shm;
  address.node = hash_text(options.node_id.empty() ? "node " + find_node_id() : "given " + options.node_id);
  address.pid = static_cast<std::uint32_t>(::getpid());
  address.uid = static_cast<std::uint32_t>(::geteuid());
  address.socket_name = socket_name;
  return std::unique_ptr<Transport>(
      std::make_unique<ShmTransport>(options, std::move(*instance), address, std::move(*mailbox)));
}

}  // namespace tutti
