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
  if (!lock_.try_acquire()) return;
  Stall stall;
  bool is_due = false;
  // A waiting thread holds a reference, so the operation is still the one it waits for.
  Operation* operation = nullptr;
  if (waiting != nullptr) {
    operation = &pool_.at(waiting->pooled().id);
  } else if (const Operation* const some = any_under_way(); some != nullptr) {
    operation = &pool_.at(some->pooled().id);
  }
  if (operation != nullptr && !operation->is_complete()) {
    Operation::StallRecord& record = operation->stall_record();
    if (record.first == Clock::time_point{}) record = {now, options_.stall_report, 0};
    const auto lasted = std::chrono::duration_cast<std::chrono::milliseconds>(now - record.first);
    if (lasted >= record.next_report) {
      is_due = true;
      // Doubled, but one comes when the operation is old enough for a warning, and one at the group's
      // deadline.
      record.next_report *= 2;
      for (const std::chrono::milliseconds age : {options_.stall_warning, operation->group().timeout()}) {
        if (lasted < age) record.next_report = std::min(record.next_report, age);
      }
      operation->note_stalled();
      stall = stall_of(*operation);
      stall.is_attended = waiting != nullptr;
      stall.lasted = lasted;
      stall.number = record.reports++;
    }
  }
  lock_.release();
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
  stall.context = operation.group().context();
  stall.rank = operation.group().rank();
  stall.timeout = operation.group().timeout();
  stall.sequence = operation.sequence();
  stall.is_message = operation.call().collective == Collective::send_recv;
  stall.awaited_rank = operation.first_awaited_rank();
  stall.call = operation.describe();
  return stall;
}

std::vector<Stall> Engine::list_under_way(std::size_t at_most, std::chrono::milliseconds patience) {
  std::vector<Stall> listed;
  const Clock::time_point deadline = Clock::now() + patience;
  if (!lock_.acquire_before(deadline)) return listed;
  for (const std::vector<Operation*>* const operations : {&active_, &waiting_}) {
    for (const Operation* operation : *operations) {
      if (operation != nullptr && !operation->is_complete() && listed.size() < at_most)
        listed.push_back(stall_of(*operation));
    }
  }
  lock_.release();
  return listed;
}

}  // namespace tutti
