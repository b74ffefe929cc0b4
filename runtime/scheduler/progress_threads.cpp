// The life of progress threads: start, naps, sleep, end.
#include "runtime/scheduler/progress_threads.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include "runtime/base/log.hpp"
#include "runtime/base/thread.hpp"
#include "runtime/scheduler/engine.hpp"

namespace tutti {
namespace {

// A thread that has run out of work naps so often before it sleeps for good.
constexpr std::uint32_t kNaps = 20;
constexpr std::chrono::microseconds kNap{50};
// One that stands back checks from time to time whether callers still come by, each time half as often. After
// so many checks it tries again.
constexpr std::uint32_t kMostChecks = 30;
constexpr std::chrono::milliseconds kFirstLongNap{2}, kLongestLongNap{16};

}  // namespace

ProgressThreads::ProgressThreads(Engine& engine, ProgressThreadOptions options)
    : engine_(engine), options_(std::move(options)) {}

ProgressThreads::~ProgressThreads() {
  is_stopping_.store(true, std::memory_order_seq_cst);
  calls_.fetch_add(1, std::memory_order_seq_cst);
  calls_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ProgressThreads::call() {
  if (!is_started_.load(std::memory_order_acquire)) start();
  calls_.fetch_add(1, std::memory_order_seq_cst);
  calls_.notify_all();
}

void ProgressThreads::start() {
  const std::lock_guard lock(start_mutex_);
  if (is_started_.load(std::memory_order_relaxed)) return;
  threads_ = start_threads(
      "tutti-progress", options_.count, [this](std::uint32_t number) { run(number); }, "progress threads",
      "calls make progress while they wait");
  is_started_.store(true, std::memory_order_release);
}

void ProgressThreads::run(std::uint32_t number) {
  if (options_.on_start) options_.on_start(number);
  std::uint32_t naps = 0, checks_left = 0, turns = 0;
  std::chrono::milliseconds long_nap = kFirstLongNap;
  while (!is_stopping()) {
    const std::uint32_t seen = calls_.load(std::memory_order_seq_cst);
    const std::uint32_t turns_before = std::exchange(turns, engine_.caller_turns());
    if (checks_left > 0 && turns != turns_before && !engine_.owes_callbacks()) {
      --checks_left;
      std::this_thread::sleep_for(long_nap);
      long_nap = std::min(2 * long_nap, kLongestLongNap);
    } else if (engine_.has_work_for_threads()) {
      checks_left = engine_.tend(*this) == Engine::Tended::in_the_way ? kMostChecks : 0;
      long_nap = kFirstLongNap;
      naps = checks_left > 0 ? kNaps : 0;
    } else if (naps < kNaps) {
      ++naps;
      std::this_thread::sleep_for(kNap);
    } else {
      calls_.wait(seen, std::memory_order_seq_cst);
    }
  }
}

}  // namespace tutti
