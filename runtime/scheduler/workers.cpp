// The life of the workers: start, naps, sleep, end.
#include "runtime/scheduler/workers.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include "runtime/base/log.hpp"
#include "runtime/base/thread.hpp"
#include "runtime/scheduler/engine.hpp"

namespace tutti {
namespace {

// A worker that has run out of work looks so often whether there is more before it sleeps for good.
constexpr std::uint32_t kNaps = 20;
constexpr std::chrono::microseconds kNap{50};
// One that stands back looks from time to time whether callers still come by, each time half as often, and
// after so many looks it tries again.
constexpr std::uint32_t kLooksFromAfar = 30;
constexpr std::chrono::milliseconds kFirstNapAfar{2}, kLongestNapAfar{16};

}  // namespace

Workers::Workers(Engine& engine, WorkerOptions options) : engine_(engine), options_(std::move(options)) {}

Workers::~Workers() {
  is_stopping_.store(true, std::memory_order_seq_cst);
  calls_.fetch_add(1, std::memory_order_seq_cst);
  calls_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Workers::call() {
  if (!is_started_.load(std::memory_order_acquire)) start();
  calls_.fetch_add(1, std::memory_order_seq_cst);
  calls_.notify_all();
}

void Workers::start() {
  const std::lock_guard lock(start_mutex_);
  if (is_started_.load(std::memory_order_relaxed)) return;
  for (std::uint32_t worker = 0; worker < options_.count; ++worker) {
    Result<std::thread> thread = start_thread("tutti-worker", [this, worker] { run(worker); });
    if (!thread) {
      log_warn("{} of {} workers could be started ({}); calls make progress while they wait", threads_.size(),
               options_.count, thread.status().message());
      break;
    }
    threads_.push_back(*std::move(thread));
  }
  is_started_.store(true, std::memory_order_release);
}

void Workers::run(std::uint32_t worker) {
  if (options_.on_start) options_.on_start(worker);
  std::uint32_t naps = 0, looks_left = 0, turns = 0;
  std::chrono::milliseconds nap_afar = kFirstNapAfar;
  while (!is_stopping()) {
    const std::uint32_t seen = calls_.load(std::memory_order_seq_cst);
    const std::uint32_t turns_before = std::exchange(turns, engine_.caller_turns());
    if (looks_left > 0 && turns != turns_before && !engine_.owes_callbacks()) {
      --looks_left;
      std::this_thread::sleep_for(nap_afar);
      nap_afar = std::min(2 * nap_afar, kLongestNapAfar);
    } else if (engine_.has_work_for_workers()) {
      looks_left = engine_.tend(*this) == Engine::Tended::in_the_way ? kLooksFromAfar : 0;
      nap_afar = kFirstNapAfar;
      naps = looks_left > 0 ? kNaps : 0;
    } else if (naps < kNaps) {
      ++naps;
      std::this_thread::sleep_for(kNap);
    } else {
      calls_.wait(seen, std::memory_order_seq_cst);
    }
  }
}

}  // namespace tutti
