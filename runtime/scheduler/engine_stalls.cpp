// Reports of operations that make no progress. Knows no way of waiting.
#include <algorithm>

#include <fmt/format.h>
#include <sched.h>

#include "runtime/base/trace.hpp"
#include "runtime/scheduler/engine.hpp"
#include "runtime/scheduler/group_context.hpp"
#include "runtime/scheduler/operation.hpp"

namespace tutti {

void Engine::report_stall(const Operation* waiting, Clock::time_point now) {
  if (!options_.on_stall) return;
  if (!try_acquire()) return;
  Stall stall;
  bool is_due = false;
  // A waiting thread holds a reference, so the operation is still the one it waits for.
  Operation* operation = nullptr;
  if (waiting != nullptr) {
    operation = operations_[waiting->id_].get();
  } else if (const Operation* const some = any_under_way(); some != nullptr) {
    operation = operations_[some->id_].get();
  }
  if (operation != nullptr && !operation->is_complete()) {
    if (operation->first_stalled_ == Clock::time_point{}) {
      operation->first_stalled_ = now;
      operation->next_report_ = options_.stall_report;
      operation->stall_reports_ = 0;
    }
    const auto lasted =
        std::chrono::duration_cast<std::chrono::milliseconds>(now - operation->first_stalled_);
    if (lasted >= operation->next_report_) {
      is_due = true;
      // Doubled, but one comes when the operation is old enough for a warning, and one at the group's
      // deadline.
      operation->next_report_ *= 2;
      for (const std::chrono::milliseconds age : {options_.stall_warning, operation->group_->timeout()}) {
        if (lasted < age) operation->next_report_ = std::min(operation->next_report_, age);
      }
      stall = stall_of(*operation);
      stall.is_attended = waiting != nullptr;
      stall.lasted = lasted;
      stall.number = operation->stall_reports_++;
    }
  }
  release();
  if (!is_due) return;
  if (options_.trace != nullptr) {
    options_.trace->mark("stalled",
                         fmt::format("{} (operation {} of rank {}) has waited {} ms for rank {}", stall.call,
                                     stall.sequence, stall.rank, stall.lasted.count(), stall.awaited_rank));
  }
  options_.on_stall(stall);
}

Stall Engine::stall_of(const Operation& operation) {
  Stall stall;
  stall.context = operation.group_->context();
  stall.rank = operation.group_->rank();
  stall.timeout = operation.group_->timeout();
  stall.sequence = operation.sequence_;
  stall.is_message = operation.call_.collective == Collective::send_recv;
  stall.awaited_rank = operation.first_awaited_rank();
  stall.call = operation.describe();
  return stall;
}

std::vector<Stall> Engine::list_under_way(std::size_t at_most, std::chrono::milliseconds patience) {
  std::vector<Stall> listed;
  const Clock::time_point deadline = Clock::now() + patience;
  wanting_.fetch_add(1, std::memory_order_relaxed);
  bool is_held = false;
  while (!(is_held = try_acquire()) && Clock::now() < deadline) ::sched_yield();
  wanting_.fetch_sub(1, std::memory_order_relaxed);
  if (!is_held) return listed;
  for (const std::vector<Operation*>* const operations : {&active_, &waiting_}) {
    for (const Operation* operation : *operations) {
      if (operation != nullptr && !operation->is_complete() && listed.size() < at_most)
        listed.push_back(stall_of(*operation));
    }
  }
  release();
  return listed;
}

}  // namespace tutti
