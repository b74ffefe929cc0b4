// A peer instance in this process, reached through its own mapping. Knows no endpoint.
#pragma once

#include <memory>
#include <span>
#include <utility>

#include "transports/memory/peer.hpp"

namespace tutti::memory {

class LocalPeer : public Peer {
 public:
  explicit LocalPeer(std::shared_ptr<Instance> instance) : instance_(std::move(instance)) {}

  ByteRange segment(std::uint32_t index) override {
    if (index >= instance_->segment_count()) return {};
    const Segment& segment = instance_->segment(index);
    return {segment.base, segment.bytes};
  }
  bool is_gone() override { return instance_->page()->is_alive.load(std::memory_order_acquire) == 0; }
  bool is_other_process() const override { return false; }
  Access access() const override { return Access::direct; }
  Copied copy(std::span<const iovec>, std::span<const iovec>) override { return Copied::failed; }

 private:
  std::shared_ptr<Instance> instance_;
};

}  // namespace tutti::memory
