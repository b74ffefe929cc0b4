// A call signature on the control blocks of its group, resolved: every step with the memory that it works on.
// An epoch that runs (epoch_steps.hpp) needs no further lookup. Runs nothing and waits for nothing.
//
// Steps name their memory as a distance from an origin. Origins change from call to call (buffers) and from
// epoch to epoch (areas); distances follow from the plan and the counts alone.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/base/call.hpp"
#include "runtime/scheduler/control_block.hpp"
#include "runtime/scheduler/lowered_limits.hpp"
#include "runtime/scheduler/lowered_plan.hpp"

namespace tutti {

struct ResolvedPlace {
  // Areas: as ControlBlocks::Area has them. Staging: the same, and the epoch's offset in the staging buffer.
  // From peer_buffers on: input and output of each rank, for the direct form.
  enum Origin : std::uint32_t {
    input,
    output,
    own_area,
    others_area,
    own_staging,
    others_staging,
    peer_buffers
  };
  std::uintptr_t distance = 0;
  std::uint32_t origin = own_area;

  std::byte* in(const std::uintptr_t* origins) const {
    return reinterpret_cast<std::byte*>(origins[origin] + distance);
  }
  // Memory of this rank that others will read.
  bool is_in_own_area() const { return origin == own_area || origin == own_staging; }
};

struct ResolvedStep {
  LoweredStep::Kind kind = LoweredStep::Kind::copy;
  std::uint8_t source_count = 0;
  std::uint16_t more_stores = 0;  // the steps behind it, so many, say where else the same value goes
  bool is_after_signal = false;   // wait: the step before it is a signal
  bool is_receive_only = false;   // wait: no signal comes before it
  bool is_plain = false;          // copy, reduce: one pass to one place, through the caches
  bool is_by_stores = false;      // copy, reduce: StagingStores choose how it is written
  // Wait: the distance in steps to the next wait, for another peer, with no signal in between; 0: there is none.
  std::uint16_t next_wait = 0;
  std::uint32_t peer = 0;  // wait
  std::uint32_t line = 0;  // signal, wait
  std::uint32_t first_source = 0;
  std::size_t bytes = 0;     // copy, reduce
  std::size_t count = 0;     // the same in elements
  ResolvedPlace at;          // copy, reduce: the destination; signal, wait: the flag line
  ResolvedPlace ahead = {};  // wait: the peer's staging that is read next
  std::size_t ahead_bytes = 0;
};

struct ResolvedEpoch {
  bool is_resolved = false;
  std::uint64_t length = 0;  // elements, of every block where ranks have blocks
  std::vector<ResolvedStep> steps;
  std::vector<ResolvedPlace> sources;
  std::uint32_t wait_count = 0;
  std::size_t staged_bytes = 0;  // it takes so much of the staging buffer of its area
  // Cache lines that it writes on control blocks: flag lines first, then staged payload. Capped, because a
  // core has few outstanding misses.
  static constexpr std::size_t kMostWritten = 34;
  std::vector<ResolvedPlace> written;

  void clear() {  // keeps its memory
    is_resolved = false;
    wait_count = 0;
    steps.clear();
    sources.clear();
    written.clear();
  }
};

// Where a rank's buffers lie in shared memory, as it announces in flag line 0.
struct Announcement {
  SegmentRange input, output;
  bool is_shared() const { return input.bytes != 0 && output.bytes != 0; }
};

// Everything that calls of one signature share on control blocks. Not thread-safe: with the progress lock
// held. Control blocks and limits outlive it.
class ResolvedCall {
 public:
  explicit ResolvedCall(const LoweredLimits& limits) : limits_(limits) {}
  // Makes it that of another signature, and keeps its memory. While no operation uses it.
  void reset(std::shared_ptr<const LoweredPlans> plans, ControlBlocks& control_blocks, const Call& call,
             std::size_t vector_bytes);

  const LoweredPlans& plans() const { return *plans_; }
  const Schedule& shape() const { return plans_->staged->shape; }
  ControlBlocks& control_blocks() const { return *control_blocks_; }
  const LoweredLimits& limits() const { return limits_; }
  std::uint64_t count() const { return count_; }
  std::size_t element_bytes() const { return element_bytes_; }

  // The epoch in the staged form that begins at element `first`, and the one epoch of the direct form.
  // Resolved at the first call; that allocates. The control blocks are linked.
  const ResolvedEpoch& staged(std::uint64_t first = 0);
  const ResolvedEpoch& direct();
  // Is one epoch all? It is whole() once staged() has been asked for it.
  bool is_one_epoch() const { return length_ == count_; }
  const ResolvedEpoch& whole() const { return staged_[0]; }

  // Memory that resolved epochs take, about.
  std::size_t bytes() const {
    const auto bytes_of = [](const LoweredPlan& plan) {
      return plan.steps.size() * sizeof(ResolvedStep) + plan.slices.size() * sizeof(ResolvedPlace);
    };
    return bytes_of(*plans_->staged) + (is_announced_ ? bytes_of(*plans_->direct) : 0);
  }

  // Must ranks announce where their buffers lie, because the direct form may run?
  bool is_announced() const { return is_announced_; }
  Announcement announcement(const LoweredBuffers& buffers) const;
  // The readers of what this rank writes on its control block in the epoch that begins at element `first`. All read
  // announcements.
  ControlBlocks::Readers readers(std::uint64_t first = 0) const {
    return is_announced_ && first == 0 ? nullptr : readers_;
  }
  // Are the buffers so large that stores into them are nt_stores?
  bool streams() const { return streams_; }

  // The origins of an epoch but for peers' buffers. `at_least`: as many entries as the array has.
  void set_origins(std::uintptr_t* origins, const ControlBlocks::Area& area, std::uint64_t epoch,
                   const ResolvedEpoch& resolved, const LoweredBuffers& buffers) const {
    const std::size_t offset = control_blocks_->staging_place(epoch, resolved.staged_bytes, all_ranks_write_);
    origins[ResolvedPlace::input] = reinterpret_cast<std::uintptr_t>(buffers.input);
    origins[ResolvedPlace::output] = reinterpret_cast<std::uintptr_t>(buffers.output);
    origins[ResolvedPlace::own_area] = area.own;
    origins[ResolvedPlace::others_area] = area.others;
    origins[ResolvedPlace::own_staging] = area.own + offset;
    origins[ResolvedPlace::others_staging] = area.others + offset;
  }

 private:
  std::shared_ptr<const LoweredPlans> plans_;
  ControlBlocks* control_blocks_ = nullptr;
  const LoweredLimits& limits_;
  ControlBlocks::Readers readers_ = nullptr;
  std::uint64_t count_ = 0, length_ = 0;  // of the call, of an epoch but the last
  std::size_t element_bytes_ = 1;
  bool is_announced_ = false, streams_ = false, all_ranks_write_ = false;
  std::size_t input_bytes_ = 0, output_bytes_ = 0;  // that buffers must span to be shared
  std::array<ResolvedEpoch, 2> staged_;             // all but the last, and the last where it is shorter
  ResolvedEpoch direct_;
};

}  // namespace tutti
