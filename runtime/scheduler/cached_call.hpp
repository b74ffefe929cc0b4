// Short calls of one signature: one resolved epoch, run straight through without an operation. Where a peer
// keeps a call waiting it becomes an operation that goes on at that step. Knows no way of choosing, and of
// waiting only polls and a few turns of a shared CPU.
#pragma once

#include <cstdint>
#include <memory>

#include "runtime/base/call.hpp"
#include "runtime/base/work.hpp"
#include "runtime/scheduler/epoch_steps.hpp"
#include "runtime/scheduler/operation.hpp"
#include "runtime/scheduler/resolved_call.hpp"

namespace tutti {

class GroupContext;

class CachedEpoch final : public CachedCall {
 public:
  // Null for calls that are long, scaled, or more than one epoch. The group outlives it.
  static std::unique_ptr<CachedEpoch> make(GroupContext& group, const Prepared& prepared, const Call& call);
  // Once the control blocks are linked, before the first run(). Takes the progress lock.
  void resolve();
  // Threading: as GroupContext::submit().
  bool run(const Call& call, Completion completion, WorkRef* unfinished) override;

 private:
  struct Driver;
  CachedEpoch(GroupContext& group, const Prepared& prepared);
  bool run_with_lock(const Call& call, Completion completion, WorkRef* unfinished);
  bool run_pass(const ResolvedStep& step, const std::uintptr_t* origins) const;
  bool has_come_after_yields(const FlagLine& flag, std::uint32_t line, const ControlBlocks::Area& area,
                             std::uint64_t epoch, std::uint64_t digest) const;
  void fetch_lines_of_next(std::uint32_t sequence) const;
  void record_begin(std::uint32_t sequence, std::uint64_t digest) const;
  void record_end(std::uint32_t sequence, bool has_waited, SteadyClock::time_point begun) const;

  GroupContext& group_;
  const Prepared prepared_;
  ResolvedCall& resolved_;
  ControlBlocks& control_blocks_;
  const ResolvedEpoch& epoch_;
  const bool is_announced_, hears_from_all_;
};

}  // namespace tutti
