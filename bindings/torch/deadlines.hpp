// Ends operations at their deadlines where no thread waits for them. Knows no collective.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <queue>
#include <vector>

#include "bindings/torch/execution.hpp"

namespace tutti::torch_binding {

// One for the process, with one thread while there are operations to watch.
class Deadlines {
 public:
  static Deadlines& instance();
  // Any thread. Leaves settled executions alone.
  void watch(RunningClock::time_point deadline, std::weak_ptr<Execution> execution);

 private:
  struct Entry {
    RunningClock::time_point deadline;
    std::weak_ptr<Execution> execution;
    bool operator<(const Entry& other) const { return deadline > other.deadline; }  // the earliest on top
  };

  void serve();
  void forget_settled();

  std::mutex mutex_;
  std::condition_variable has_earlier_;
  std::priority_queue<Entry> entries_;
  std::size_t most_entries_ = 64;  // before settled ones are collected
  bool is_serving_ = false;
};

}  // namespace tutti::torch_binding
