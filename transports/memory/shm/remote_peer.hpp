// A peer instance in another process: its segments as mapped here, and reading its memory through the kernel.
// Knows no endpoint and no message.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>

#include "transports/memory/address.hpp"
#include "transports/memory/local_peer.hpp"
#include "transports/memory/peer.hpp"
#include "transports/memory/shm/mailbox.hpp"

namespace tutti::shm {

// process_vm_readv of one process, on data that both describe. `denied` if the system does not permit it.
memory::Peer::Copied copy_from_process(int pid, std::span<const iovec> local, std::span<const iovec> remote);

// Tries process_vm_readv on ourselves, which finds filters and missing system calls. Empty, or why not.
std::string probe_single_copy();

class RemotePeer final : public memory::Peer {
 public:
  // `may_copy`: the configuration and the probe permit single copies.
  RemotePeer(const memory::Nonce& self, const memory::Address& peer, bool may_copy)
      : may_copy_(may_copy), sender_(self, peer.nonce, peer.socket_name) {}
  ~RemotePeer() override;

  ByteRange segment(std::uint32_t index) override;
  Status trouble() override;
  bool is_gone() override;
  bool is_told() override;
  bool is_cut_off() override;
  bool is_other_process() const override { return true; }
  Access access() const override;
  Copied copy(std::span<const iovec> local, std::span<const iovec> remote) override;

  // A segment arrived: maps it at once, so that its descriptor is not kept.
  void take(const SegmentNote& note, const OwnedFd& fd);
  // Tells the peer about our segments; true when it knows all. Errors as SegmentSender::push.
  Result<bool> push(const memory::Instance& instance);
  // Why nothing can be taken at the moment.
  void set_delay(const Status& status);

 private:
  struct Mapped {
    std::atomic<std::byte*> base{nullptr};  // set last
    std::size_t bytes = 0;
  };
  // A peer has one segment or two, and may have many: the table behind its first part is made when needed.
  static constexpr std::uint32_t kPartSegments = 16;
  using Part = std::array<Mapped, kPartSegments>;
  Part* part_of(std::uint64_t index) {
    return index < kPartSegments ? &first_part_ : part_behind(index).load(std::memory_order_acquire);
  }
  std::atomic<Part*>& part_behind(std::uint64_t index) { return parts_behind_[index / kPartSegments - 1]; }

  std::atomic<bool> may_copy_;
  std::atomic<int> pid_{0};
  std::mutex mutex_;  // of all below, but for what is atomic
  Status refusal_;    // of a segment that could not be mapped
  Status delay_;      // of what waits in the mailbox
  Status silence_;    // of our segments that the peer could not be told
  bool is_told_ = false;
  SegmentSender sender_;
  Part first_part_;
  std::array<std::atomic<Part*>, memory::Instance::kMaxSegments / kPartSegments - 1> parts_behind_{};
};

// A peer in this process whose ordinary memory is nevertheless read through the kernel, as that of others.
class SameProcessPeer final : public memory::LocalPeer {
 public:
  SameProcessPeer(std::shared_ptr<memory::Instance> instance, bool may_copy)
      : LocalPeer(std::move(instance)), may_copy_(may_copy) {}
  Access access() const override { return may_copy_ ? Access::copied : Access::none; }
  Copied copy(std::span<const iovec> local, std::span<const iovec> remote) override;

 private:
  bool may_copy_;
};

}  // namespace tutti::shm
