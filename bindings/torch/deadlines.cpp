// The watching thread. Knows no collective.
#include "bindings/torch/deadlines.hpp"

#include <c10/util/Exception.h>

#include <algorithm>
#include <string>
#include <thread>
#include <utility>

#include "tutti/detail/process.hpp"

namespace tutti::torch_binding {
namespace {

// While another thread waits for an operation: that thread keeps the deadline until it gives up.
constexpr std::chrono::milliseconds kAgainAfter{100};
constexpr std::size_t kFewestEntries = 64;

}  // namespace

Deadlines& Deadlines::instance() { return tutti::detail::of_process<Deadlines>(); }

void Deadlines::watch(RunningClock::time_point deadline, std::weak_ptr<Execution> execution) {
  const std::lock_guard lock(mutex_);
  if (entries_.size() >= most_entries_) forget_settled();
  const bool is_earliest = entries_.empty() || deadline < entries_.top().deadline;
  entries_.push({deadline, std::move(execution)});
  if (is_serving_) {
    if (is_earliest) has_earlier_.notify_one();
    return;
  }
  std::thread thread;
  const std::string failure = tutti::detail::start_thread(&thread, "tutti-deadlines", [this] { serve(); });
  is_serving_ = failure.empty();
  if (is_serving_) {
    thread.detach();
  } else {
    TORCH_WARN_ONCE("tutti: ", failure,
                    ". Operations that nobody waits for do not end at their timeout now.");
  }
}

void Deadlines::forget_settled() {
  std::priority_queue<Entry> rest;
  for (; !entries_.empty(); entries_.pop()) {
    const std::shared_ptr<Execution> execution = entries_.top().execution.lock();
    if (execution != nullptr && !execution->is_settled()) rest.push(entries_.top());
  }
  entries_ = std::move(rest);
  most_entries_ = std::max(kFewestEntries, 2 * entries_.size());
}

void Deadlines::serve() {
  std::unique_lock lock(mutex_);
  while (!entries_.empty()) {
    const auto now = RunningClock::now();
    const auto deadline = entries_.top().deadline;
    std::shared_ptr<Execution> execution = entries_.top().execution.lock();
    const bool is_over = execution == nullptr || execution->is_settled();
    if (!is_over && deadline > now) {
      execution = nullptr;  // not kept while nothing happens
      has_earlier_.wait_for(lock,
                            std::min<RunningClock::duration>(deadline - now, RunningClock::kLongestSleep));
      continue;
    }
    entries_.pop();
    lock.unlock();
    const bool is_ended = is_over || execution->end_overdue();
    std::weak_ptr<Execution> again = execution;
    execution = nullptr;
    lock.lock();
    if (!is_ended) entries_.push({now + kAgainAfter, std::move(again)});
  }
  is_serving_ = false;
}

}  // namespace tutti::torch_binding
