// Memory that an operation needs only while it runs. A frame belongs to a slot, whose operations run one after the
// other. So nothing grows after the first call of a signature, however many are under way. Knows no plan and no
// call.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/scheduler/lowered_run.hpp"
#include "transports/transport.hpp"

namespace tutti {

class Operation;

// Memory that grows and is kept, 64-byte aligned.
class ScratchMemory {
 public:
  // Its content is lost if it grows.
  void reserve(std::size_t bytes);
  std::byte* data() const { return data_; }
  std::size_t size() const { return bytes_; }
  ~ScratchMemory() { release(); }
  ScratchMemory() = default;
  ScratchMemory(const ScratchMemory&) = delete;
  ScratchMemory& operator=(const ScratchMemory&) = delete;

 private:
  void release();
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

// How large a frame has to be.
struct SlotNeeds {
  std::size_t channels = 0, steps = 0, ranges = 0;  // of a plan of messages
  std::size_t scratch_bytes = 0;
  std::size_t peers = 0;  // whose buffers an operation on control blocks finds

  bool covers(const SlotNeeds& other) const {
    return channels >= other.channels && steps >= other.steps && ranges >= other.ranges &&
           scratch_bytes >= other.scratch_bytes && peers >= other.peers;
  }
  SlotNeeds with(const SlotNeeds& other) const {
    return {std::max(channels, other.channels), std::max(steps, other.steps), std::max(ranges, other.ranges),
            std::max(scratch_bytes, other.scratch_bytes), std::max(peers, other.peers)};
  }
};

struct SlotFrame {
  struct Delivery {
    Operation* operation = nullptr;
    std::uint32_t step = 0;
  };

  SlotNeeds size;
  std::vector<std::uint32_t> cursor;       // next step, by channel
  std::vector<std::uint8_t> is_step_done;  // by step
  std::vector<ConstByteRange> ranges;      // by PlanStep::first_range
  std::vector<Delivery> deliveries;        // by step
  ScratchMemory scratch;
  LoweredRun run;

  // While no operation runs in it.
  void grow(const SlotNeeds& needs) {
    size = size.with(needs);
    cursor.reserve(size.channels);
    is_step_done.reserve(size.steps);
    ranges.resize(size.ranges);
    deliveries.resize(size.steps);
    scratch.reserve(size.scratch_bytes);
    run.reserve(size.peers);
  }
};

}  // namespace tutti
