// Turns in negotiating: of the queue's own thread, and of threads of the program. See tensor_scheduler.hpp.
#include <algorithm>
#include <chrono>
#include <utility>

#include "runtime/base/work.hpp"
#include "runtime/group/work_access.hpp"
#include "runtime/training/tensor_backlog.hpp"

namespace tutti {
namespace {

// How long a rank without tensors pauses: as long as the first tensor after a pause may wait for it.
constexpr std::chrono::microseconds kLongestPause{5000};
// A thread that waits for its tensor drives an agreement so long before it looks up.
constexpr std::chrono::milliseconds kHelpTime{20};

}  // namespace

// -- the own thread -----------------------------------------------------------------------------------------------

void TensorScheduler::run() {
  set_may_spin(false);
  Status cause;
  try {
    for (;;) {
      pause();
      std::unique_lock turn(negotiating_);
      if (!round_ && !take_due()) continue;  // a thread of the program was quicker
      if (!round_) begin();
      if (round_->failure) throw Error(*round_->failure);
      const Work agreement = round_->agreement;
      const std::uint64_t cycle = cycle_count();
      // A thread that sleeps must not keep others from going on once ranks agree.
      turn.unlock();
      if (block_.is_open()) agree_in_blocks(round_->mine.words);  // the own thread alone has turns
      wait(agreement);
      turn.lock();
      if (cycle_count() == cycle && !finish()) break;
    }
    cause = Status(StatusCode::aborted, "a rank has closed the tensor queue");
  } catch (const Error& error) {
    cause = Status(error.code(), error.what(), error.peer());
    tell_other_blocks(error);
  }
  {
    const std::lock_guard turn(negotiating_);
    has_ended_ = true;
  }
  fail_all(cause);
}

// Ranks of other blocks wait in operations that a failure of this one's does not fail.
void TensorScheduler::tell_other_blocks(const Error& cause) {
  if (!block_.is_open()) return;
  try {
    if (!control_.failure()) control_.abort(cause.what());
  } catch (const Error&) {  // it has failed meanwhile
  }
}

// Sleeps until it is needed. Tensors that come meanwhile share the next cycle.
void TensorScheduler::pause() {
  std::unique_lock lock(mutex_);
  for (;;) {
    sleeps_until_ = due_for_own_thread();
    const Clock::time_point now = Clock::now();
    if (now >= sleeps_until_) break;
    changed_.wait_for(lock, sleep_until_reading(sleeps_until_, now));
  }
  sleeps_until_ = Clock::time_point::min();
  is_called_ = false;
}

// When the next cycle begins, for a thread of the program.
Clock::time_point TensorScheduler::due() const {
  if (is_closing_ || is_urgent_) return Clock::time_point::min();
  const std::chrono::microseconds pause = has_news() ? cycle_time_ : std::max(cycle_time_, idle_);
  return last_cycle_ + pause;
}

// Half a cycle later: a thread of the program that is at it needs no other one.
Clock::time_point TensorScheduler::due_for_own_thread() const {
  if (is_called_ || is_closing_ || is_urgent_) return Clock::time_point::min();
  if (block_.is_open()) return due();
  // Not earlier after a beginning than without: it would be woken up by each call of a thread that is at it.
  return begun_ ? *begun_ + cycle_time_ + cycle_time_ / 2 : due() + cycle_time_ / 2;
}

// Without mutex_.
void TensorScheduler::call_own_thread() {
  {
    const std::lock_guard lock(mutex_);
    is_called_ = true;
  }
  changed_.notify_all();
}

// Without mutex_. It may sleep for longer than it should since something has come.
void TensorScheduler::wake_own_thread_if_due() {
  bool is_needed = false;
  {
    const std::lock_guard lock(mutex_);
    is_needed = due_for_own_thread() < sleeps_until_;
  }
  if (is_needed) changed_.notify_all();
}

// -- threads of the program ---------------------------------------------------------------------------------------

void TensorScheduler::advance() {
  if (!is_in_callback()) take_turn(std::chrono::milliseconds(0));
  wake_own_thread_if_due();
}

void TensorScheduler::help(TensorWork& work, Clock::time_point until) {
  {
    const std::lock_guard lock(mutex_);
    is_urgent_ |= has_news();
  }
  if (block_.is_open()) wake_own_thread_if_due();
  if (take_turn(kHelpTime)) return;
  // Where a cycle is due, another thread is at it.
  const Clock::time_point now = Clock::now();
  Clock::time_point next;
  {
    const std::lock_guard lock(mutex_);
    next = due();
    if (next <= now) next = now + cycle_time_;
  }
  work.sleep(std::min(until, next));
}

// Begins a cycle where it is due, waits for its agreement, and finishes it. False: there was nothing to do here,
// or another thread is at it.
bool TensorScheduler::take_turn(std::chrono::milliseconds at_most) {
  if (block_.is_open()) return false;  // three operations, each of which has to be waited for
  const std::unique_lock turn(negotiating_, std::try_to_lock);
  if (!turn || has_ended_) return false;
  if (!round_ && take_due()) begin();
  if (!round_) return false;
  const bool is_agreed = wait_for_agreement(at_most);
  if (round_->failure || (is_agreed && needs_own_thread())) {
    call_own_thread();
    return false;
  }
  // Functions of the program that run in it do so in a callback.
  if (is_agreed) call_back([this](const Status&) { finish(); }, {});
  return true;
}

// False: there is none yet, or it has failed, which the own thread deals with.
bool TensorScheduler::wait_for_agreement(std::chrono::milliseconds at_most) {
  if (round_->failure) return false;
  try {
    const bool is_complete =
        at_most.count() == 0 ? round_->agreement.test() : round_->agreement.wait_for(at_most);
    if (!is_complete) return false;
    const WorkState* const state = WorkAccess::state_of(round_->agreement);
    if (state == nullptr || state->status()) return true;
    round_->agreement.wait();  // throws its failure
  } catch (const Error& error) {
    round_->failure = error;
  }
  return false;
}

// -- a cycle, with negotiating_ held ------------------------------------------------------------------------------

// Is a cycle due? Then it has to begin.
bool TensorScheduler::take_due() {
  const std::lock_guard lock(mutex_);
  const Clock::time_point now = Clock::now();
  if (now < due()) return false;
  is_urgent_ = false;
  begun_ = now;
  return true;
}

void TensorScheduler::begin() {
  round_.emplace(Round{contribute(), {}, {}});
  if (size_ == 1 || block_.is_open()) return;
  try {
    round_->agreement = control_.iallreduce(std::span(round_->mine.words), Op::bor, kAwaited);
  } catch (const Error& error) {
    round_->failure = error;
  }
}

// Requests of new tensors and the end take messages that have to be waited for, and functions of the program expect
// the own thread.
bool TensorScheduler::needs_own_thread() {
  constexpr std::uint64_t kWithoutWaiting = has_tensors | was_idle;
  if ((round_->mine.words[0] & ~kWithoutWaiting) != 0) return true;
  if (backlog_ != nullptr && backlog_->has_any(&is_for_own_thread)) return true;
  const std::lock_guard lock(mutex_);
  return own_count_ > 0 || (joining_ && zeros_on_device_);
}

// It has a function of the program, makes a group for its factor, or waits for row counts: none of that may be done in a
// callback. Nor may calls on GPUs, which also a rank that has joined takes part in.
bool TensorScheduler::is_for_own_thread(const Entry& entry) {
  return entry.call.allocate || entry.request.signature.is_device || !entry.sent_rows.empty();
}

// False: it was the last one.
bool TensorScheduler::finish() {
  Contribution mine = std::move(round_->mine);
  round_.reset();
  cycles_.fetch_add(1, std::memory_order_relaxed);
  const std::uint64_t flags = mine.words[0];
  {
    const std::lock_guard lock(mutex_);
    // All ranks come here at about the same time, so their next cycles begin together, too.
    last_cycle_ = Clock::now();
    begun_.reset();
    idle_ = (flags & has_tensors) != 0 ? std::chrono::microseconds(0)
                                       : std::min(kLongestPause, std::max(cycle_time_, idle_ * 2));
  }
  if ((flags & is_leaving) != 0) return false;
  evict_agreed(mine.evicted());
  const bool timeline_begins = timing_->follow(flags);
  if ((flags & TensorTiming::kAlignsClocks) != 0) align_clocks();
  // First, since it may fail: what is taken below is lost to fail_all().
  std::optional<ResponseList> decisions;
  if ((flags & has_requests) != 0) {
    coordinated_.fetch_add(1, std::memory_order_relaxed);
    decisions = coordinate(std::move(mine.requests));
  }
  // Where all ranks have joined, none holds a bit back, and none has a tensor.
  std::vector<Ready> ready;
  if ((flags & has_tensors) != 0) ready = take_ready(mine.not_ready());
  if (decisions) accept(*std::move(decisions), ready);
  note_ready(ready, timeline_begins);
  if (autotuner_) autotune(ready);
  settled_.notify_all();
  warn_of_stalls();
  exchange_rows(ready);
  execute(std::move(ready), mine);
  return true;
}

}  // namespace tutti
