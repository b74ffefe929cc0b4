// Carries out the lowered form of one operation on the control blocks of its group: straight through the plan, in one
// epoch of its slot, or in several where the vector is longer than the staging memory.
// Knows no endpoint protocol, no selection and no way of waiting.
//
// Which form runs is found out by the ranks themselves. Where buffers may be mapped, every rank announces in
// line 0 of the first epoch where its buffers lie; if all lie in shared memory that epoch runs the mapped
// plan, else the staged plan. All ranks read the same announcements, so all decide alike; a rank whose own
// buffers cannot be mapped knows the answer and does not wait for the others.
//
// An area is written again two epochs later. All peers have ended epoch e - 2 if this rank heard from all of
// them in epoch e - 1 (Schedule::hears_from_all: they had entered it); otherwise it looks at the lines where
// they say so.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "runtime/base/call.hpp"
#include "runtime/kernels/kernels.hpp"
#include "runtime/schedule/chunk_map.hpp"
#include "runtime/scheduler/control_block.hpp"
#include "runtime/scheduler/lowered_plan.hpp"

namespace tutti {

// From how many bytes on operations behave how; equal on all ranks of a group.
struct LoweredLimits {
  std::size_t announce_bytes = std::size_t{8} << 10U;  // buffers may be mapped: announce where they lie
  std::size_t stream_bytes = std::size_t{16} << 20U;   // stores into buffers of calls pass the caches by
  // One pass over several sources and destinations goes piece by piece, so that what was computed is stored
  // everywhere while it is in the first cache. After each streamed piece the store buffers drain.
  std::size_t piece_bytes = std::size_t{16} << 10U;
  std::size_t streamed_piece_bytes = std::size_t{32} << 10U;
  static constexpr std::size_t kMostPieceBytes = std::size_t{64} << 10U;

  bool operator==(const LoweredLimits&) const = default;
};

// Where a step finds its memory, whatever the buffers of the call and the area of its epoch are.
struct ResolvedPlace {
  // Areas: as ControlBlocks::Area has them; staging: the same for what has its place there anew in each epoch.
  enum Origin : std::uint32_t { input, output, own_area, others_area, own_staging, others_staging };
  using Origins = std::array<std::uintptr_t, 6>;
  std::uintptr_t distance = 0;
  Origin origin = own_area;

  std::byte* in(const Origins& origins) const {
    return reinterpret_cast<std::byte*>(origins[origin] + distance);
  }
  bool is_shared() const { return origin >= own_area; }
};

// A step of a lowered plan for one count.
struct ResolvedStep {
  LoweredStep::Kind kind = LoweredStep::Kind::copy;
  std::uint8_t source_count = 0;
  std::uint16_t more_stores = 0;  // the steps behind it, so many, say where else the same value goes
  bool is_after_publish = false;  // await: the step before it is a publish
  bool is_receive_only = false;   // await: no publish comes before it
  bool is_plain = false;          // copy, reduce: little, and to one place
  bool is_by_stores = false;      // copy, reduce: StagingStores choose how it is written
  std::uint32_t index = 0;        // of the plan's step
  std::uint32_t first_source = 0;
  std::size_t bytes = 0;     // copy, reduce
  std::size_t count = 0;     // the same in elements
  ResolvedPlace at;          // copy, reduce: where to; publish, await: the line
  ResolvedPlace ahead = {};  // await: what is read next of what the line stands for
  std::size_t ahead_bytes = 0;
};

struct ResolvedEpoch {
  std::vector<ResolvedStep> steps;
  std::vector<ResolvedPlace> sources;
  std::size_t staged_bytes = 0;  // what it takes of the staging memory of its area
  // Lines that it writes on the control blocks: those that it publishes, then what it stages. Of that not all
  // where it is much: a core has few fetches under way.
  static constexpr std::size_t kMostWritten = 34;
  std::vector<ResolvedPlace> written;
  // Line 0 tells first where the buffers lie, and if all ranks' were shared, so many bytes of each, the plan
  // would be another.
  bool is_announced = false;
  std::size_t input_bytes = 0, output_bytes = 0;
};

class LoweredRun {
 public:
  // An operation as far as a run needs it. Pointers stay valid until the run has ended.
  struct Work {
    const Call* call = nullptr;
    KernelFn kernel = nullptr;
    std::size_t element_bytes = 1;
    std::byte* input = nullptr;
    std::byte* output = nullptr;
    std::uint64_t digest = 0;  // of this rank's calls up to this one
    std::uint32_t slot = 0;
    std::size_t vector_bytes = 0;  // what LoweredLimits are compared with
    // While it is not zero, advance() ends as soon as something has been done.
    const std::atomic<std::uint32_t>* wanting = nullptr;
  };
  enum class Progress : std::uint8_t {
    complete,
    blocked,   // waits for a peer, or makes way for others
    mismatch,  // `peer` has made another call, or other calls before
    revoked,   // `peer` has failed and no longer lets its buffers be touched
  };

  // For plans of so many slices, on control blocks of so many ranks. While nothing runs.
  void reserve(std::size_t control_blocks, std::size_t slices) {
    bases_.reserve(first_area + 3 * control_blocks);
    placed_.reserve(slices);
  }
  // To be filled in before start().
  Work& work() { return work_; }
  // Nothing is done yet. The control blocks are linked and the slot is free. The arguments outlive the run.
  void start(const LoweredPlans& plans, ControlBlocks& control_blocks, const LoweredLimits& limits);
  // The current epoch of the slot has been begun, and its staged plan carried out up to that step.
  void resume(const LoweredPlans& plans, ControlBlocks& control_blocks, const LoweredLimits& limits,
              std::uint32_t step);
  // Instead of start(): what the run would do where buffers are not shared. False if that is more than one
  // epoch.
  bool resolve(const LoweredPlans& plans, ControlBlocks& control_blocks, const LoweredLimits& limits,
               ResolvedEpoch* found);
  // What line 0 carries of a rank whose buffers are not shared.
  static void tell_unshared(FlagLine& line);
  // Runs until the end or until a peer has not published for `polls` looks at its line.
  Progress advance(std::uint32_t polls);
  // Would advance() get any further? Touches nothing.
  bool has_news() const;
  // The rank that it waits for.
  std::uint32_t peer() const { return peer_; }
  bool has_moved() const { return has_moved_; }  // in the last advance()

 private:
  enum class Phase : std::uint8_t { enter, announce, collect, run, leave };

  // What a rank tells in line 0.
  struct Announcement {
    SegmentRange input, output;
  };
  void begin(const LoweredPlans& plans, ControlBlocks& control_blocks, const LoweredLimits& limits);
  void begin_epoch();
  void bind_epoch();
  void bind_bases();
  void bind_window();
  void find_window();
  bool has_come(const FlagLine& line);  // false also when its owner makes another call: is_mismatch_
  void publish(FlagLine& line);
  bool may_enter();
  void announce();
  bool collect();
  bool find_buffers(std::uint32_t peer, const Announcement& said);
  // Memory that steps work on is found by number: own input and output, then the area of each rank's control block,
  // then the mapped input and output of each rank.
  enum Base : std::uint32_t { own_input, own_output, first_area };
  struct Placed {
    std::uint32_t base = 0;
    std::size_t offset_bytes = 0;
    std::size_t bytes = 0;
  };
  Placed place(const LoweredSlice& at, std::uint32_t k) const;
  ResolvedPlace resolve(const Placed& placed) const;
  // What the step after an await reads of that peer's staging memory; nothing if the line itself carries it.
  void resolve_ahead(const LoweredStep& await, std::uint32_t index, ResolvedStep* found) const;
  void resolve_atom(std::uint32_t index, std::uint32_t k, std::uint32_t more_stores,
                    ResolvedEpoch* found) const;
  static void note_staged(ResolvedPlace at, std::size_t bytes, ResolvedEpoch* found);

  enum class StepEnd : std::uint8_t { done, interrupted, revoked };
  StepEnd step(const LoweredStep& step);
  // False where they make way for others; called again, they go on behind atom_ and offset_.
  bool compute(const LoweredStep& step);
  bool compute_pieces(const LoweredStep& step, std::uint32_t k, std::size_t bytes);
  enum class StoreWay : std::uint8_t { cached, streamed, chosen };  // chosen: by StagingStores
  struct Stores {
    std::array<std::byte*, 256> at;
    std::array<StoreWay, 256> ways;
    std::uint32_t count = 0, cached_count = 0;  // where streams_, so many cached ones come first
  };
  Stores stores_of(const LoweredStep& step, std::uint32_t k, std::span<const std::byte* const> from) const;
  StreamKernelFn stream_kernel(const LoweredStep& step, const Stores& stores) const;
  bool is_wanted() const {
    return work_.wanting != nullptr && work_.wanting->load(std::memory_order_relaxed) != 0;
  }
  std::byte* address(const Placed& placed) const { return bases_[placed.base] + placed.offset_bytes; }
  Placed placed(std::uint32_t slice, std::uint32_t k) const {
    return k == 0 ? placed_[slice] : place(plan_->slices[slice], k);
  }
  // Where others will read: staging memory of this rank.
  bool is_own_area(const Placed& place) const { return place.base == first_area + control_blocks_->rank(); }
  // Do StagingStores choose how it is written?
  bool is_by_stores(const Placed& place) const {
    return is_own_area(place) && StagingStores::is_much(place.bytes, staged_bytes_);
  }
  bool may_touch();

  const LoweredPlan* plan_ = nullptr;
  const LoweredPlans* plans_ = nullptr;
  ControlBlocks* control_blocks_ = nullptr;
  const LoweredLimits* limits_ = nullptr;
  Work work_;
  ChunkMap map_;
  Phase phase_ = Phase::enter;
  bool is_mapped_ = false, carries_ = false, streams_ = false, has_moved_ = false, is_mismatch_ = false,
       is_announcing_ = false, all_mapped_ = false;
  bool is_over_input_ = false;  // what is written into the own output has been input of this rank
  std::uint32_t peer_ = 0;
  ControlBlocks::Area area_;  // of this epoch
  std::uint64_t epoch_ = 0;
  std::size_t pc_ = 0;
  std::uint32_t atom_ = 0;  // of the step at pc_, and where in it an interrupted pass goes on
  std::size_t offset_ = 0;
  std::size_t slot_bytes_ = 0, staged_bytes_ = 0;
  std::uint64_t done_count_ = 0, window_count_ = 0;  // elements (of a block)
  std::vector<std::byte*> bases_;                    // by Base

  // What a window looks like depends on the plan, the counts and the first element alone: kept for the next
  // run of the same signature.
  struct Window {
    std::uint64_t plan_number = 0, count = 0, first = 0;
    std::size_t element_bytes = 0;
    bool operator==(const Window&) const = default;
  };
  Window window_;
  // The memory that a call's buffers must span to be mapped.
  struct Extents {
    Window of;
    std::size_t input_bytes = 0, output_bytes = 0;
  };
  Extents extents_;
  const Extents& extents();
  std::vector<Placed> placed_;  // atom 0 of each slice of the plan
};

}  // namespace tutti
