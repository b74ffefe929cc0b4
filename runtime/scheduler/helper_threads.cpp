// The life of helper threads, and how they share a pass.
#include "runtime/scheduler/helper_threads.hpp"

#include <algorithm>
#include <bit>
#include <utility>

#include <linux/futex.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "runtime/base/log.hpp"
#include "runtime/base/relax.hpp"
#include "runtime/base/thread.hpp"

namespace tutti {
namespace {

using namespace std::chrono_literals;

// A helper without work polls so long: passes of one epoch follow each other within that.
constexpr std::chrono::nanoseconds kLinger = 50us;
constexpr std::uint32_t kPollsPerReading = 16;
// The first and the longest time that helpers stand back.
constexpr std::chrono::nanoseconds kFirstBack = 2ms, kLongestBack = 256ms;
// While helpers are at work all the time, whether they are in the way is judged so often.
constexpr std::chrono::nanoseconds kBetweenJudgements = 1ms;
// A wake-up costs its caller a microsecond or two. So each thread wakes two, and those wake others.
constexpr std::uint32_t kWokenByEach = 2;
// A helper that takes longer with a part has lost its CPU. Some 50 us of polls.
constexpr std::uint32_t kPollsForPart = 1500;

std::int64_t now_ns() { return std::chrono::steady_clock::now().time_since_epoch() / 1ns; }

// How often threads of this process lost their CPU to others.
long count_preemptions() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_nivcsw;
}

std::uint32_t* futex_word(std::atomic<std::uint32_t>& word) {
  static_assert(std::atomic<std::uint32_t>::is_always_lock_free && sizeof word == sizeof(std::uint32_t));
  return reinterpret_cast<std::uint32_t*>(&word);
}

}  // namespace

HelperThreads::HelperThreads(HelperOptions options) : options_(std::move(options)) {}

HelperThreads::~HelperThreads() {
  is_stopping_.store(true, std::memory_order_seq_cst);
  number_.fetch_add(1, std::memory_order_seq_cst);
  wake(~0U >> 1U);
  for (std::thread& thread : threads_) thread.join();
}

bool HelperThreads::should_share(std::size_t read_bytes) const {
  if (read_bytes < kLeastAwakeBytes || options_.count == 0) return false;
  if (read_bytes < kLeastBytes &&
      sleepers_.load(std::memory_order_relaxed) >= awake_limit_.load(std::memory_order_relaxed))
    return false;
  const std::int64_t back_until = back_until_ns_.load(std::memory_order_relaxed);
  return back_until == 0 || now_ns() >= back_until;
}

std::size_t HelperThreads::run(Pass pass, std::size_t first, const std::atomic<std::uint32_t>* wanting) {
  // Several parts for each thread, so that all end nearly together.
  const std::size_t share = (pass.bytes - first) / (std::size_t{8} * (options_.count + 1));
  pass.part_bytes = std::bit_floor(std::clamp(share, kLeastPartBytes, kMostPartBytes));
  const bool has_helpers = !is_taken_.exchange(true, std::memory_order_acquire);
  if (has_helpers) open(pass, first);
  std::size_t own_next = first;
  const auto take = [&] {
    return has_helpers ? next_.fetch_add(pass.part_bytes, std::memory_order_relaxed)
                       : std::exchange(own_next, own_next + pass.part_bytes);
  };
  for (bool has_done = false;; has_done = true) {
    if (has_done && wanting != nullptr && wanting->load(std::memory_order_relaxed) != 0) break;
    const std::size_t at = take();
    if (at >= pass.bytes) break;
    pass.part(pass.context, at, std::min(pass.part_bytes, pass.bytes - at), true);
  }
  if (!has_helpers) return std::min(own_next, pass.bytes);
  close();
  const std::size_t end = std::min(next_.load(std::memory_order_relaxed), pass.bytes);
  is_taken_.store(false, std::memory_order_release);
  return end;
}

void HelperThreads::open(const Pass& pass, std::size_t first) {
  if (!is_started_) start();
  pass_ = pass;
  next_.store(first, std::memory_order_relaxed);
  inside_.fetch_and(~kClosed, std::memory_order_release);
  number_.fetch_add(1, std::memory_order_seq_cst);
  wake(kWokenByEach);
}

// Helpers inside end the part that they have.
void HelperThreads::close() {
  inside_.fetch_or(kClosed, std::memory_order_relaxed);
  std::uint32_t polls = 0;
  while (inside_.load(std::memory_order_acquire) != kClosed) {
    if (++polls < kPollsForPart) {
      relax();
    } else {
      ::sched_yield();
    }
  }
  if (polls >= kPollsForPart) stand_back();
}

void HelperThreads::start() {
  is_started_ = true;
  const std::uint32_t seen = number_.load(std::memory_order_relaxed);
  threads_ = start_threads(
      "tutti-helper", options_.count, [this, seen](std::uint32_t) { live(seen); }, "helper threads",
      "passes over data go on with those");
  awake_limit_.store(static_cast<std::uint32_t>(threads_.size()), std::memory_order_relaxed);
  log_info("{} helper threads take parts of long passes over data", threads_.size());
}

void HelperThreads::wake(std::uint32_t at_most) {
  if (sleepers_.load(std::memory_order_seq_cst) == 0) return;
  ::syscall(SYS_futex, futex_word(number_), FUTEX_WAKE_PRIVATE, at_most, nullptr, nullptr, 0);
}

void HelperThreads::stand_back() {
  if (!options_.stands_back) return;
  const std::int64_t back_ns =
      std::clamp(2 * back_ns_.load(std::memory_order_relaxed), kFirstBack / 1ns, kLongestBack / 1ns);
  back_ns_.store(back_ns, std::memory_order_relaxed);
  back_until_ns_.store(now_ns() + back_ns, std::memory_order_relaxed);
}

void HelperThreads::live(std::uint32_t seen) {
  if (options_.on_start) options_.on_start();
  SteadyClock::time_point idle_since = SteadyClock::now(), judged_at = idle_since;
  long preemptions = count_preemptions();
  for (std::uint32_t polls = 1; !is_stopping_.load(std::memory_order_relaxed); ++polls) {
    const std::uint32_t number = number_.load(std::memory_order_acquire);
    if (number != seen) {
      seen = number;
      join_pass();
      idle_since = SteadyClock::now();
      if (idle_since - judged_at < kBetweenJudgements) continue;
      judge(&preemptions);
      judged_at = idle_since;
    } else if (polls % kPollsPerReading != 0 || SteadyClock::now() - idle_since < kLinger) {
      relax();
    } else {
      judge(&preemptions);
      sleepers_.fetch_add(1, std::memory_order_seq_cst);
      ::syscall(SYS_futex, futex_word(number_), FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
      sleepers_.fetch_sub(1, std::memory_order_relaxed);
      preemptions = count_preemptions();
      judged_at = idle_since = SteadyClock::now();
    }
  }
}

void HelperThreads::join_pass() {
  // pass_ is read only while the pass is open: the caller waits for everyone who came in before it was closed.
  if ((inside_.fetch_add(1, std::memory_order_acquire) & kClosed) == 0) {
    const Pass pass = pass_;
    if (next_.load(std::memory_order_relaxed) + kWokenByEach * pass.part_bytes < pass.bytes)
      wake(kWokenByEach);
    std::uint64_t taken = 0;
    while ((inside_.load(std::memory_order_relaxed) & kClosed) == 0) {
      const std::size_t at = next_.fetch_add(pass.part_bytes, std::memory_order_relaxed);
      if (at >= pass.bytes) break;
      pass.part(pass.context, at, std::min(pass.part_bytes, pass.bytes - at), false);
      ++taken;
    }
    taken_parts_.fetch_add(taken, std::memory_order_relaxed);
  }
  inside_.fetch_sub(1, std::memory_order_release);
}

// Were threads of the process in need of a CPU since the last time?
void HelperThreads::judge(long* preemptions) {
  const long before = std::exchange(*preemptions, count_preemptions());
  if (*preemptions != before) {
    stand_back();
  } else {
    back_ns_.store(back_ns_.load(std::memory_order_relaxed) / 2, std::memory_order_relaxed);
  }
}

}  // namespace tutti
