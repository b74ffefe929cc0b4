// Which steps of all ranks wait for which: by dependencies, channels, messages and flags. Knows no time and no price.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/base/status.hpp"
#include "runtime/schedule/schedule.hpp"

namespace tutti::detail {

// How the schedule of one rank follows from another's: peers shifted by their distance, or combined with it.
enum class Symmetry : std::uint8_t { shift, exclusive_or };
constexpr std::uint32_t displacement(Symmetry symmetry, std::uint32_t from, std::uint32_t to,
                                     std::uint32_t size) {
  return symmetry == Symmetry::shift ? (to + size - from) % size : from ^ to;
}

// Steps are numbered through: those of rank 0 first, each rank's in program order.
class StepGraph {
 public:
  using StepId = std::uint32_t;
  static constexpr StepId kNone = ~0U;

  // `size`: of the job; the ranks may be the first ones, which stand for all (see walk()). Keeps the span.
  // Errors: invalid_argument where messages do not match, or nobody signals what a rank waits for.
  static Result<StepGraph> make(std::span<const Schedule> ranks, Symmetry symmetry, std::uint32_t size);

  std::uint32_t size() const { return static_cast<std::uint32_t>(rank_of_.size()); }
  std::span<const Schedule> ranks() const { return ranks_; }
  std::uint32_t rank_of(StepId id) const { return rank_of_[id]; }
  const Schedule& schedule_of(StepId id) const { return ranks_[rank_of_[id]]; }
  const Step& step_of(StepId id) const { return schedule_of(id).steps[id - first_step_[rank_of_[id]]]; }
  bool is_first_of_rank(StepId id) const { return id == first_step_[rank_of_[id]]; }

  // How many steps each waits for: its dependencies, the step before it in its channel, and the signal of a wait.
  const std::vector<std::uint32_t>& waits() const { return waits_; }
  // The next step of its channel, which goes on once this one is issued; kNone: it is the last.
  StepId next_of(StepId id) const { return next_[id]; }
  // The steps that depend on its end.
  std::span<const StepId> dependents_of(StepId id) const {
    return std::span(dependents_)
        .subspan(dependents_begin_[id], dependents_begin_[id + 1] - dependents_begin_[id]);
  }
  // The other side of a message.
  StepId partner_of(StepId id) const { return partner_[id]; }
  bool has_flags() const { return !waiters_.empty(); }
  std::span<const StepId> waiters_of(StepId signal) const { return waiters_[signal]; }
  StepId signal_of(StepId wait) const { return signal_of_[wait]; }

 private:
  explicit StepGraph(std::span<const Schedule> ranks) : ranks_(ranks) {}
  void index_steps();
  Status match_messages(Symmetry symmetry, std::uint32_t size);
  Status match_flags();

  std::span<const Schedule> ranks_;
  std::vector<StepId> first_step_;      // by rank
  std::vector<std::uint32_t> rank_of_;  // by step, as all that follow
  std::vector<std::uint32_t> waits_;
  std::vector<StepId> next_, partner_;
  std::vector<std::uint32_t> dependents_begin_;
  std::vector<StepId> dependents_;
  std::vector<std::vector<StepId>> waiters_;  // empty: no rank signals
  std::vector<StepId> signal_of_;
};

}  // namespace tutti::detail
