// Progress and waiting: events, and the way from spinning over yielding to sleep.
#include "runtime/scheduler/engine.hpp"

#include <algorithm>
#include <ctime>
#include <optional>

#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <fmt/format.h>

#include "runtime/base/relax.hpp"
#include "runtime/base/trace.hpp"
#include "runtime/scheduler/abort_notice.hpp"
#include "runtime/scheduler/group_context.hpp"
#include "runtime/scheduler/messenger.hpp"
#include "runtime/scheduler/operation.hpp"

namespace tutti {
namespace {

constexpr std::uint32_t kPollsPerClock = 64;  // polls between two readings of the clock
constexpr std::chrono::microseconds kBetweenHooks{5};
constexpr std::chrono::microseconds kLongestSleepWithHook{100};
constexpr std::uint32_t kThreadPolls =
    1000;  // of a progress thread without a CPU of its own, before it yields

void sleep_on(const Waitable& bell, std::uint32_t armed_value, std::chrono::microseconds at_most) {
  if (bell.futex_word != nullptr) {
    const timespec limit{at_most.count() / 1000000, (at_most.count() % 1000000) * 1000};
    syscall(SYS_futex, bell.futex_word, FUTEX_WAIT, armed_value, &limit, nullptr, 0);
  } else if (bell.fd >= 0) {
    pollfd waiting{bell.fd, POLLIN, 0};
    ::poll(&waiting, 1, static_cast<int>(std::max<std::int64_t>(1, at_most.count() / 1000)));
  } else {
    const auto pause = std::min(at_most, std::max(bell.longest_poll, std::chrono::microseconds(1)));
    const timespec limit{0, pause.count() * 1000};
    ::nanosleep(&limit, nullptr);
  }
}

// How often threads of this process lost their CPU to others.
long preemptions() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_nivcsw;
}

}  // namespace

struct Engine::Callback {
  WorkRef operation;
  CompletionCallback function;
};

struct Engine::Patience {
  std::chrono::microseconds at_most;  // of the next sleep
  std::uint32_t polls = 1, idle_polls = 0;
  std::uint32_t yields = 0;  // while it still polled
};

Engine::Engine(std::vector<std::unique_ptr<Transport>> transports, Options options)
    : transports_(std::move(transports)), options_(std::move(options)), pool_(*this), events_(64) {
  if (options_.helpers.count > 0) helpers_ = std::make_unique<HelperThreads>(options_.helpers);
  if (options_.progress_threads.count > 0)
    threads_ = std::make_unique<ProgressThreads>(*this, options_.progress_threads);
}

Engine::~Engine() {
  threads_.reset();
  TUTTI_ASSERT(active_.empty() && waiting_.empty(), "an engine is destroyed after its groups");
}

void Engine::add_group(GroupContext& group) {
  lock_.acquire();
  groups_.push_back(&group);
  lock_.release();
}

void Engine::remove_group(GroupContext& group) { std::erase(groups_, &group); }

void Engine::add_messenger(Messenger& messenger) {
  if (std::find(messengers_.begin(), messengers_.end(), &messenger) == messengers_.end())
    messengers_.push_back(&messenger);
}

void Engine::remove_messenger(Messenger& messenger) {
  std::erase(messengers_, &messenger);
  std::erase_if(corresponding_,
                [&messenger](const auto& entry) { return entry.second.messenger == &messenger; });
}

bool Engine::leave(std::chrono::milliseconds at_most) {
  if (!lock_.acquire_before(Clock::now() + at_most)) return false;
  for (const auto& transport : transports_) transport->leave();
  lock_.release();
  return true;
}

bool Engine::drive(std::uint32_t* failed_polls) {
  if (!lock_.try_acquire()) return false;
  bool has_moved = progress_once();
  if (failed_polls != nullptr)
    *failed_polls = !active_.empty() && active_.front()->is_lowered() ? options_.waiting.line_polls : 1;
  Operation* job = take_user_step();
  bool has_callbacks = !callbacks_.empty();
  lock_.release();
  while (job != nullptr) {
    job->run_user_step();
    has_moved = true;
    lock_.acquire();
    job->finish_user_step();
    progress_once();
    job = take_user_step();
    has_callbacks = !callbacks_.empty();
    lock_.release();
  }
  if (has_callbacks) run_callbacks();
  return has_moved;
}

void Engine::note_callback(Operation& operation) {
  owed_callbacks_.fetch_sub(1, std::memory_order_relaxed);
  callbacks_.push_back({WorkRef(&operation), operation.take_callback()});
}

void Engine::run_callbacks() {
  for (;;) {
    lock_.acquire();
    if (callbacks_.empty()) break;
    Callback due = std::move(callbacks_.front());
    callbacks_.erase(callbacks_.begin());
    lock_.release();
    call_back(due.function, due.operation->status());
    due.function = nullptr;  // what it holds is the program's, and ends without the lock
    lock_.acquire();
    auto& operation = static_cast<Operation&>(*due.operation.operator->());
    if (operation.has_callback_after()) note_callback(operation);  // given meanwhile
    lock_.release();
  }
  lock_.release();
}

Operation* Engine::take_user_step() {
  for (Operation* operation : active_) {
    if (operation->take_user_step()) return operation;
  }
  return nullptr;
}

void Engine::count_asleep() {
  for (const Operation* operation : active_) {
    ControlBlocks* const control_blocks = operation->awaited_flags();
    if (control_blocks != nullptr && control_blocks->count_sleeper(true)) counted_.push_back(control_blocks);
  }
}

void Engine::count_awake() {
  for (ControlBlocks* control_blocks : counted_) control_blocks->count_sleeper(false);
  counted_.clear();
}

bool Engine::progress_once() {
  bool has_moved = false;
  if (!counted_.empty()) count_awake();
  for (const auto& transport : transports_) {
    const std::size_t count = transport->progress(events_);
    for (std::size_t i = 0; i < count; ++i) on_event(events_[i]);
    has_moved = has_moved || count > 0;
  }
  if (!messengers_.empty()) has_moved = progress_messengers(false) || has_moved;
  if (has_failures_.exchange(false, std::memory_order_acq_rel)) fail_operations();
  // Advancing may complete an operation and thereby start the next of its slot, at the end of the list.
  for (std::size_t i = 0; i < active_.size(); ++i) {
    Operation& operation = *active_[i];
    if (operation.may_advance()) has_moved = operation.advance(options_.waiting.line_polls) || has_moved;
    if (operation.is_finished()) finish(operation);
    // A thread that waits for the lock gets it before the remaining operations advance. Only after progress, or
    // two alternating threads could advance the first operation only.
    if (has_moved && lock_.is_wanted()) break;
  }
  std::erase(active_, nullptr);
  count_under_way();
  return has_moved;
}

void Engine::on_event(const Event& event) {
  if (event.kind == Event::Kind::control) return on_control(event);
  if (Operation* operation = pool_.find(event.request); operation != nullptr)
    return operation->on_event(event);
  const auto found = corresponding_.find(event.endpoint);
  if (found != corresponding_.end() && event.kind == Event::Kind::failed)
    found->second.messenger->on_gone(found->second.peer, found->second.has_tag);
}

void Engine::on_control(const Event& event) {
  if (event.data.empty()) return;  // it was to wake us
  if (is_abort_notice(event.data)) {
    static_cast<void>(std::any_of(groups_.begin(), groups_.end(),
                                  [&](GroupContext* group) { return group->take_abort_notice(event); }));
    return;
  }
  const auto found = corresponding_.find(event.endpoint);
  if (found != corresponding_.end()) found->second.messenger->on_note(found->second.peer, event.data);
}

bool Engine::progress_messengers(bool before_sleep) {
  bool has_moved = false;
  for (Messenger* messenger : messengers_) has_moved = messenger->progress(before_sleep) || has_moved;
  std::erase_if(messengers_, [](const Messenger* messenger) { return !messenger->has_work(); });
  return has_moved;
}

void Engine::add_waiting(Operation& operation) {
  operation.queued().waiting_index = waiting_.size();
  waiting_.push_back(&operation);
  count_under_way();
}

void Engine::remove_waiting(Operation& operation) {
  Operation* const last = waiting_.back();
  waiting_[operation.queued().waiting_index] = last;
  last->queued().waiting_index = operation.queued().waiting_index;
  waiting_.pop_back();
  count_under_way();
}

void Engine::finish(Operation& operation) {
  const auto at = std::find(active_.begin(), active_.end(), &operation);
  if (at != active_.end()) *at = nullptr;
  operation.group().on_complete(operation);
}

bool Engine::start(Operation& operation) {
  active_.reserve(pool_.size());  // whatever number of them gets under way
  counted_.reserve(pool_.size());
  if (!operation.has_failed()) operation.advance(options_.waiting.line_polls);
  if (operation.is_finished()) return false;
  active_.push_back(&operation);
  count_under_way();
  return true;
}

void Engine::fail_operations() {
  // Operations that wait for a match are finished like the others.
  for (std::size_t i = waiting_.size(); i-- > 0;) {
    Operation& operation = *waiting_[i];
    if (!operation.group().has_failed()) continue;
    remove_waiting(operation);
    active_.push_back(&operation);
  }
  for (Operation* operation : active_) {
    if (operation == nullptr || !operation->group().has_failed()) continue;
    operation->group().close_endpoints();
    operation->fail(operation->group().failure());
  }
}

// Waits before the next poll: spins, then yields the core, then sleeps.
void Engine::wait_a_little(Patience& patience, const Operation* waiting, Clock::time_point deadline) {
  const WaitPolicy& policy = options_.waiting;
  if (patience.idle_polls <= policy.spin_polls) {
    const bool is_beside_peer = is_beside_peer_.load(std::memory_order_relaxed);
    if (waiting != nullptr && must_leave_cpu_.load(std::memory_order_relaxed)) {
      leave_shared_cpu();
    } else if (is_beside_peer || patience.idle_polls / policy.polls_per_yield > patience.yields) {
      patience.yields = patience.idle_polls / policy.polls_per_yield;
      ::sched_yield();
    } else {
      relax();
    }
  } else if (patience.idle_polls <= policy.spin_polls + policy.yield_polls || !policy.may_sleep) {
    ::sched_yield();
  } else {
    sleep_once(waiting, deadline, patience.at_most);
    patience.at_most = std::min(2 * patience.at_most, policy.longest_sleep);
  }
}

bool Engine::wait_for(const Operation& operation, Clock::time_point deadline) {
  const bool has_threads = threads_ != nullptr && threads_->is_started();
  if (has_threads) callers_.fetch_add(1, std::memory_order_seq_cst);
  const bool is_complete = wait_until(operation, deadline);
  if (has_threads) callers_.fetch_sub(1, std::memory_order_seq_cst);
  // Whoever gives up waiting leaves the operation to them.
  if (!is_complete || (has_threads && has_work_for_threads())) call_progress_threads();
  return is_complete;
}

bool Engine::wait_until(const Operation& operation, Clock::time_point deadline) {
  const WaitPolicy& policy = options_.waiting;
  const WaitHook* const hook = current_wait_hook();
  Clock::time_point next_hook{};
  // Without spinning it sleeps from the first poll that finds nothing.
  const std::uint32_t skipped = may_spin() || !policy.may_sleep ? 0 : policy.spin_polls + policy.yield_polls;
  Patience patience{policy.first_sleep, 1, skipped};
  is_beside_peer_.store(false, std::memory_order_relaxed);  // of an earlier wait
  for (; !operation.is_complete(); ++patience.polls) {
    std::uint32_t failed_polls = 1;
    if (drive(&failed_polls)) {
      patience = {policy.first_sleep, patience.polls, skipped};
    } else {
      patience.idle_polls += failed_polls;
    }
    if (operation.is_complete()) return true;
    if (patience.polls % kPollsPerClock == 0 || patience.idle_polls > policy.spin_polls) {
      const Clock::time_point now = Clock::now();
      if (now >= deadline) return false;
      report_stall(&operation, now);
    }
    if (hook != nullptr) {
      // The peer may wait for the progress that the hook makes.
      patience.at_most = kLongestSleepWithHook;
      if (const Clock::time_point now = Clock::now(); now >= next_hook) {
        call_wait_hook(*hook);
        next_hook = now + kBetweenHooks;
      }
    }
    wait_a_little(patience, &operation, deadline);
  }
  return true;
}

Engine::Tended Engine::tend(const ProgressThreads& threads) {
  const WaitPolicy& policy = options_.waiting;
  // A thread without a CPU of its own takes from the program the time that it polls.
  const std::uint32_t most_polls = threads.is_dedicated() ? policy.spin_polls : kThreadPolls;
  const std::uint32_t skipped = policy.spin_polls - std::min(policy.spin_polls, most_polls);
  const std::uint32_t turns = caller_turns();
  const long preempted = threads.is_dedicated() ? 0 : preemptions();
  Patience patience{policy.first_sleep, 1, skipped};
  for (; has_work_for_threads() && !threads.is_stopping(); ++patience.polls) {
    std::uint32_t failed_polls = 1;
    if (drive(&failed_polls)) {
      patience = {policy.first_sleep, patience.polls, skipped};
    } else {
      patience.idle_polls += failed_polls;
    }
    const Clock::time_point now = Clock::now();
    if (patience.idle_polls > policy.spin_polls) {
      report_stall(nullptr, now);
      if (!threads.is_dedicated() && caller_turns() != turns && !owes_callbacks() &&
          preemptions() != preempted)
        return Tended::in_the_way;
    }
    wait_a_little(patience, nullptr, now + policy.longest_sleep);
  }
  return Tended::no_work_left;
}

void Engine::sleep_once(const Operation* waiting, Clock::time_point deadline,
                        std::chrono::microseconds at_most) {
  if (transports_.empty() || !lock_.try_acquire()) {
    ::sched_yield();
    return;
  }
  if (waiting == nullptr && any_under_way() == nullptr) return lock_.release();
  // Several bells cannot be waited for at once: sleep on that of the peer that is awaited, and poll the
  // others when it ends.
  const Operation& awaited = waiting != nullptr ? pool_.at(waiting->pooled().id) : *any_under_way();
  const std::size_t rung = transports_.size() == 1 ? 0 : awaited_transport(awaited);
  bool may_sleep = true;
  count_asleep();  // first, so that arming orders it before the flags that are read below
  ArmResult bell_armed;
  for (std::size_t i = 0; i < transports_.size(); ++i) {
    const ArmResult armed = transports_[i]->arm();
    if (i == rung) bell_armed = armed;
    may_sleep = may_sleep && armed.is_armed;
  }
  // Read after the intent to sleep is visible, so that no signal is missed. Nothing at all announces that
  // a post which was told `again` may be repeated.
  may_sleep = may_sleep && std::none_of(active_.begin(), active_.end(),
                                        [](const Operation* operation) { return operation->has_news(); });
  may_sleep = !progress_messengers(true) && may_sleep;
  // A sleeping thread seldom polls, and must still notice soon that the awaited peer is gone.
  for (Operation* operation : active_) operation->note_sleep();
  const Waitable bell = transports_[rung]->waitable();
  lock_.release();
  if (!may_sleep) {
    ::sched_yield();
    return;
  }
  const auto left = std::chrono::duration_cast<std::chrono::microseconds>(deadline - Clock::now());
  if (left.count() > 0) sleep_on(bell, bell_armed.futex_value, std::min(left, at_most));
}

std::size_t Engine::awaited_transport(const Operation& operation) const {
  if (operation.is_complete()) return 0;
  const Transport* awaited = operation.group().transport_of(operation.first_awaited_rank());
  for (std::size_t i = 0; i < transports_.size(); ++i) {
    if (transports_[i].get() == awaited) return i;
  }
  return 0;
}

void Engine::reap_retired() {
  std::erase_if(retired_, [](const RetiredBlock& control_block) {
    if (!control_block.is_quiet()) return false;
    control_block.heap->release(control_block.memory);
    return true;
  });
}

}  // namespace tutti
