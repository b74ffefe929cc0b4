// Short calls of one signature on the control blocks of their group, worked out once: every step with its addresses,
// run straight through. Where a peer keeps a call waiting it becomes an ordinary operation that goes on at
// that step. Knows no way of choosing, and of waiting only a few turns of a shared CPU.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "runtime/base/call.hpp"
#include "runtime/base/work.hpp"
#include "runtime/scheduler/lowered_run.hpp"
#include "runtime/scheduler/operation.hpp"

namespace tutti {

class GroupContext;

// What a call's epoch depends on, and its buffers do not.
struct CallSignature {
  std::uint64_t count = 0;
  std::uint32_t root = 0;
  Collective collective = Collective::allreduce;
  Dtype dtype = Dtype::f32;
  Op op = Op::sum;

  explicit CallSignature(const Call& call)
      : count(call.count), root(call.root), collective(call.collective), dtype(call.dtype), op(call.op.op) {}
  bool operator==(const CallSignature&) const = default;

  struct Hash {
    std::size_t operator()(const CallSignature& of) const {
      const std::uint64_t kind = static_cast<std::uint64_t>(of.collective) << 16U |
                                 static_cast<std::uint64_t>(of.dtype) << 8U |
                                 static_cast<std::uint64_t>(of.op) | std::uint64_t{of.root} << 32U;
      return std::hash<std::uint64_t>()((of.count * 0x9E3779B97F4A7C15U) ^ kind);
    }
  };
};

class LoweredCall final : public PersistentCall {
 public:
  // With the lane held. Null for calls that are long, more than one epoch, or not on linked control blocks. The group
  // outlives it.
  static std::unique_ptr<LoweredCall> make(GroupContext& group, const Prepared& prepared, const Call& call);
  // Threading: as GroupContext::submit().
  bool run(const Call& call, WorkRef* unfinished) override;

 private:
  LoweredCall(GroupContext& group, const Prepared& prepared, Dtype dtype);
  bool run_with_lane(const Call& call, WorkRef* unfinished);
  void fetch_lines_of_next(std::uint32_t sequence) const;
  std::uint32_t slot_of(std::uint32_t sequence) const;
  ControlBlocks& control_blocks() const;
  ResolvedPlace::Origins origins(const ControlBlocks::Area& area, std::uint64_t epoch,
                                 const LoweredBuffers& buffers) const;
  bool may_enter(std::uint32_t control_slot) const;
  bool may_be_mapped(const LoweredBuffers& buffers) const;
  // A step that is local work, with all stores that belong to it.
  void compute(const ResolvedStep* step, const ResolvedPlace::Origins& origins) const;
  bool await_others_turn(const LoweredStep& step, const ControlBlocks::Area& area, std::uint64_t epoch,
                         std::uint64_t digest);

  GroupContext& group_;
  Prepared prepared_;
  const Schedule& shape_;
  const bool hears_from_all_;
  const bool keeps_slot_;
  const std::size_t piece_bytes_;  // whole elements
  const std::size_t element_bytes_;
  ResolvedEpoch epoch_;
};

}  // namespace tutti
