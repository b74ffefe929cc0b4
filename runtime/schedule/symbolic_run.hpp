// Runs the schedules of all ranks symbolically under the issue rule of schedule.hpp; part of the verifier.
// Knows no promise of any collective: it starts from given values and hands back what each location holds.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "runtime/base/status.hpp"
#include "runtime/schedule/happens_before.hpp"
#include "runtime/schedule/schedule.hpp"
#include "runtime/schedule/values.hpp"
#include "runtime/schedule/verify.hpp"

namespace tutti::detail {

// Conditions of issue only ever become true, so one greedy run decides freedom from deadlock for every
// timing. All conflicting steps are ordered (checked beside it), so it also decides every value.
class SymbolicRun {
 public:
  // The schedules have passed check_structure and outlive the run.
  SymbolicRun(std::span<const Schedule> ranks, Algebra algebra);

  // Executes everything, or says which step could not, or what it computed wrongly.
  Status run();

  Value value(std::uint32_t rank, Buffer buffer, std::uint32_t atom) const;
  const ValueTable& values() const { return values_; }
  // After run(): the round in which a step completes, and the step number at the other end of a message.
  std::uint32_t depth(std::uint32_t rank, std::uint32_t step) const {
    return depth_[first_step_[rank] + step];
  }
  std::uint32_t partner_step(std::uint32_t rank, std::uint32_t step) const {
    return number_of(partner_[first_step_[rank] + step]);
  }
  // Of compressed schedules, after run(): the values that were rounded, before that, in the order of each step's atoms.
  struct Rounding {
    std::uint32_t rank = 0, step = 0;
    Value value = kUnwritten;
  };
  const std::vector<Rounding>& roundings() const { return roundings_; }
  VerifyReport report() const;

 private:
  // Steps of all ranks are numbered through; a thread is one channel of one rank.
  using StepId = std::uint32_t;
  static constexpr StepId kNone = ~0U;

  const Schedule& schedule_of(StepId id) const { return ranks_[rank_of_[id]]; }
  const Step& step_of(StepId id) const { return schedule_of(id).steps[number_of(id)]; }
  std::uint32_t number_of(StepId id) const { return id - first_step_[rank_of_[id]]; }
  std::uint32_t thread_of(StepId id) const { return rank_of_[id] * channels_ + step_of(id).channel; }

  void index_steps();
  void start_values();
  Status match_messages();
  Status match_signals();

  void wake(std::uint32_t thread);
  Status advance(std::uint32_t thread);
  // Executes the step as far as it can; `is_blocked` means that the thread has to wait in front of it.
  Status issue(StepId id, bool& is_blocked);
  void complete(StepId id, std::uint32_t depth);
  Status transfer(StepId send, StepId recv);
  Status compute(StepId id);
  void enter_step(StepId id);  // lowered: clocks and depth
  // The value a slice's atom k holds, or why it must not be read.
  Status load(StepId id, const Slice& slice, std::uint32_t k, Value& value);
  Status store(StepId id, const Slice& slice, std::uint32_t k, Value value);
  Status check_access(StepId id, std::uint32_t owner, std::uint32_t where, bool is_write);
  Status fail(StepId id, const std::string& why) const;
  Status check_shape(StepId id, const Slice& source, StepId to, const Slice& dst);

  StepId blocked_by(StepId id, std::string& reason) const;
  Status explain_deadlock() const;

  std::span<const Schedule> ranks_;
  std::uint32_t channels_ = 1;  // of the rank with most
  bool is_lowered_ = false;
  bool is_alltoall_ = false;
  ValueTable values_;

  std::vector<StepId> first_step_;      // by rank
  std::vector<std::uint32_t> rank_of_;  // by step, as all that follow
  std::vector<std::uint32_t> pending_;  // dependencies not complete
  std::vector<std::uint32_t> depth_;    // longest chain of messages behind it
  std::vector<std::uint8_t> issued_, done_;
  std::vector<StepId> partner_;  // the other end of a message; of a wait the signal
  std::vector<std::uint32_t> first_dependent_;
  std::vector<StepId> dependents_;
  std::vector<std::uint32_t> thread_begin_, cursor_;  // by thread, into thread_steps_
  std::vector<StepId> thread_steps_;
  std::vector<std::uint32_t> awake_;  // work list of threads
  std::vector<std::uint8_t> is_awake_;
  // Lowered schedules: threads that wait for a line; depth of what a thread has waited for; clocks of steps
  // that another thread joins.
  std::vector<std::vector<std::uint32_t>> waiters_;
  std::vector<std::uint32_t> thread_depth_;
  std::vector<std::uint32_t> snapshot_;

  std::vector<std::size_t> memory_base_;  // by rank
  std::vector<Value> memory_;
  std::vector<Rounding> roundings_;
  std::vector<std::uint64_t> sent_atoms_;
  std::uint64_t messages_ = 0, rounds_ = 0;
  std::string not_v_safe_;
  HappensBefore order_;
};

}  // namespace tutti::detail
