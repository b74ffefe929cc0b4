// Progress and waiting: the lane, the events, the way from spinning over yielding to sleep.
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

constexpr std::size_t kFewestOperations = 64;  // of an engine that has any
constexpr std::uint32_t kPollsPerClock = 64;   // polls between two looks at the clock
constexpr std::chrono::microseconds kBetweenHooks{5};
constexpr std::chrono::microseconds kLongestSleepWithHook{100};
constexpr std::uint32_t kWorkerPolls = 1000;  // of a worker that has no CPU of its own, before it yields

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
    : transports_(std::move(transports)), options_(std::move(options)), events_(64) {
  if (options_.workers.count > 0) workers_ = std::make_unique<Workers>(*this, options_.workers);
}

Engine::~Engine() {
  workers_.reset();
  TUTTI_ASSERT(active_.empty() && waiting_.empty(), "an engine is destroyed after its groups");
}

void Engine::acquire() {
  static constexpr std::atomic<bool> kNever{false};
  acquire_unless(kNever);
}

bool Engine::acquire_within(std::chrono::milliseconds at_most) {
  const Clock::time_point end = Clock::now() + at_most;
  wanting_.fetch_add(1, std::memory_order_relaxed);
  bool is_acquired = false;
  while (!(is_acquired = try_acquire()) && Clock::now() < end) ::sched_yield();
  wanting_.fetch_sub(1, std::memory_order_relaxed);
  return is_acquired;
}

bool Engine::leave(std::chrono::milliseconds at_most) {
  if (!acquire_within(at_most)) return false;
  for (const auto& transport : transports_) transport->leave();
  release();
  return true;
}

bool Engine::acquire_unless(const std::atomic<bool>& refuses) {
  if (try_acquire()) return true;
  wanting_.fetch_add(1, std::memory_order_relaxed);
  bool is_acquired = false;
  while (!refuses.load(std::memory_order_relaxed) && !(is_acquired = try_acquire())) ::sched_yield();
  wanting_.fetch_sub(1, std::memory_order_relaxed);
  return is_acquired;
}

bool Engine::drive(std::uint32_t* looks) {
  if (!try_acquire()) return false;
  bool has_moved = progress_once();
  if (looks != nullptr)
    *looks = !active_.empty() && active_.front()->is_lowered_ ? options_.waiting.line_polls : 1;
  Operation* job = take_user_step();
  bool has_callbacks = !callbacks_.empty();
  release();
  while (job != nullptr) {
    job->run_user_step();
    has_moved = true;
    acquire();
    job->finish_user_step();
    progress_once();
    job = take_user_step();
    has_callbacks = !callbacks_.empty();
    release();
  }
  if (has_callbacks) run_callbacks();
  return has_moved;
}

void Engine::note_callback(Operation& operation) {
  owed_callbacks_.fetch_sub(1, std::memory_order_relaxed);
  callbacks_.push_back({WorkRef(&operation), std::move(operation.callback_)});
  operation.callback_ = nullptr;
  operation.is_callback_due_ = true;
}

void Engine::run_callbacks() {
  for (;;) {
    acquire();
    if (callbacks_.empty()) break;
    Callback due = std::move(callbacks_.front());
    callbacks_.erase(callbacks_.begin());
    release();
    call_back(due.function, due.operation->status());
    due.function = nullptr;  // what it holds is the program's, and ends without the lane
    acquire();
    auto& operation = static_cast<Operation&>(*due.operation.operator->());
    operation.is_callback_due_ = false;
    if (operation.callback_) note_callback(operation);  // given meanwhile
    release();
  }
  release();
}

Operation* Engine::take_user_step() {
  for (Operation* operation : active_) {
    if (!operation->has_user_step_ || operation->is_user_step_taken_) continue;
    operation->is_user_step_taken_ = true;
    return operation;
  }
  return nullptr;
}

bool Engine::progress_once() {
  bool has_moved = false;
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
    if ((operation.is_dirty_ || operation.is_lowered_) && operation.status_)
      has_moved = operation.advance(options_.waiting.line_polls) || has_moved;
    if (operation.is_finished()) finish(operation);
    // The rest gets its turn when whoever waits for the lane has had it. Who has moved nothing goes on: else
    // two threads in turn might look at the first operation only.
    if (has_moved && is_wanted()) break;
  }
  std::erase(active_, nullptr);
  count_under_way();
  return has_moved;
}

void Engine::on_event(const Event& event) {
  if (event.kind == Event::Kind::control) return on_control(event);
  if (Operation* operation = find(event.request); operation != nullptr) return operation->on_event(event);
  const auto found = corresponding_.find(event.endpoint);
  if (found != corresponding_.end() && event.kind == Event::Kind::failed)
    found->second.messenger->on_gone(found->second.peer, found->second.has_tag);
}

void Engine::on_control(const Event& event) {
  if (event.data.empty()) return;  // it was to wake us
  if (is_abort_notice(event.data)) {
    static_cast<void>(std::any_of(groups_.begin(), groups_.end(), [&](GroupContext* group) {
      return group->take_abort_notice(event.endpoint, event.data);
    }));
    return;
  }
  const auto found = corresponding_.find(event.endpoint);
  if (found != corresponding_.end()) found->second.messenger->on_note(found->second.peer, event.data);
}

bool Engine::progress_messengers(bool is_last_look) {
  bool has_moved = false;
  for (Messenger* messenger : messengers_) has_moved = messenger->progress(is_last_look) || has_moved;
  std::erase_if(messengers_, [](const Messenger* messenger) { return !messenger->has_work(); });
  return has_moved;
}

void Engine::add_waiting(Operation& operation) {
  operation.waiting_index_ = waiting_.size();
  waiting_.push_back(&operation);
  count_under_way();
}

void Engine::remove_waiting(Operation& operation) {
  Operation* const last = waiting_.back();
  waiting_[operation.waiting_index_] = last;
  last->waiting_index_ = operation.waiting_index_;
  waiting_.pop_back();
  count_under_way();
}

void Engine::finish(Operation& operation) {
  const auto at = std::find(active_.begin(), active_.end(), &operation);
  if (at != active_.end()) *at = nullptr;
  operation.group_->on_complete(operation);
}

bool Engine::start(Operation& operation) {
  if (operation.status_) operation.advance(options_.waiting.line_polls);
  if (operation.is_finished()) return false;
  active_.push_back(&operation);
  count_under_way();
  return true;
}

void Engine::fail_operations() {
  // Those that wait for nothing any more are finished like the others.
  for (std::size_t i = waiting_.size(); i-- > 0;) {
    Operation& operation = *waiting_[i];
    if (!operation.group_->has_failed()) continue;
    remove_waiting(operation);
    active_.push_back(&operation);
  }
  for (Operation* operation : active_) {
    if (operation == nullptr || !operation->group_->has_failed()) continue;
    operation->group_->close_endpoints();
    operation->fail(operation->group_->failure());
  }
}

// Another look in vain, or not: what comes before the next one. Polls, then yields the core, then sleeps.
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
  const bool has_workers = workers_ != nullptr && workers_->is_started();
  if (has_workers) callers_.fetch_add(1, std::memory_order_seq_cst);
  const bool is_complete = wait_until(operation, deadline);
  if (has_workers) callers_.fetch_sub(1, std::memory_order_seq_cst);
  // Whoever gives up waiting leaves the operation to them.
  if (!is_complete || (has_workers && has_work_for_workers())) call_workers();
  return is_complete;
}

bool Engine::wait_until(const Operation& operation, Clock::time_point deadline) {
  const WaitPolicy& policy = options_.waiting;
  const WaitHook* const hook = current_wait_hook();
  Clock::time_point next_hook{};
  Patience patience{policy.first_sleep};
  is_beside_peer_.store(false, std::memory_order_relaxed);  // of an earlier wait
  for (; !operation.is_complete(); ++patience.polls) {
    std::uint32_t looks = 1;
    if (drive(&looks)) {
      patience = {policy.first_sleep, patience.polls};
    } else {
      patience.idle_polls += looks;
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

Engine::Tended Engine::tend(const Workers& workers) {
  const WaitPolicy& policy = options_.waiting;
  // A worker without a CPU of its own takes from the program what it polls away.
  const std::uint32_t most_polls = workers.is_dedicated() ? policy.spin_polls : kWorkerPolls;
  const std::uint32_t skipped = policy.spin_polls - std::min(policy.spin_polls, most_polls);
  const std::uint32_t turns = caller_turns();
  const long preempted = workers.is_dedicated() ? 0 : preemptions();
  Patience patience{policy.first_sleep, 1, skipped};
  for (; has_work_for_workers() && !workers.is_stopping(); ++patience.polls) {
    std::uint32_t looks = 1;
    if (drive(&looks)) {
      patience = {policy.first_sleep, patience.polls, skipped};
    } else {
      patience.idle_polls += looks;
    }
    const Clock::time_point now = Clock::now();
    if (patience.idle_polls > policy.spin_polls) {
      report_stall(nullptr, now);
      if (!workers.is_dedicated() && caller_turns() != turns && !owes_callbacks() &&
          preemptions() != preempted)
        return Tended::in_the_way;
    }
    wait_a_little(patience, nullptr, now + policy.longest_sleep);
  }
  return Tended::no_work_left;
}

void Engine::sleep_once(const Operation* waiting, Clock::time_point deadline,
                        std::chrono::microseconds at_most) {
  if (transports_.empty() || !try_acquire()) {
    ::sched_yield();
    return;
  }
  if (waiting == nullptr && any_under_way() == nullptr) return release();
  // Several bells cannot be waited for at once: sleep on that of the peer that is awaited, and look at the
  // others when it ends.
  const Operation& awaited = waiting != nullptr ? *operations_[waiting->id_] : *any_under_way();
  const std::size_t rung = transports_.size() == 1 ? 0 : awaited_transport(awaited);
  bool may_sleep = true;
  ArmResult bell_armed;
  for (std::size_t i = 0; i < transports_.size(); ++i) {
    const ArmResult armed = transports_[i]->arm();
    if (i == rung) bell_armed = armed;
    may_sleep = may_sleep && armed.is_armed;
  }
  // Looked at after the intent to sleep is visible, so that no line is missed. Nothing at all announces that
  // a post which was told `again` may be repeated.
  may_sleep = may_sleep && std::none_of(active_.begin(), active_.end(),
                                        [](const Operation* operation) { return operation->has_news(); });
  may_sleep = !progress_messengers(true) && may_sleep;
  // Who sleeps seldom polls, and still wants to hear soon that the peer it waits for is gone.
  for (Operation* operation : active_) operation->note_sleep();
  const Waitable bell = transports_[rung]->waitable();
  release();
  if (!may_sleep) {
    ::sched_yield();
    return;
  }
  const auto left = std::chrono::duration_cast<std::chrono::microseconds>(deadline - Clock::now());
  if (left.count() > 0) sleep_on(bell, bell_armed.futex_value, std::min(left, at_most));
}

std::size_t Engine::awaited_transport(const Operation& operation) const {
  if (operation.is_complete()) return 0;
  const Transport* awaited = operation.group_->transport_of(operation.first_awaited_rank());
  for (std::size_t i = 0; i < transports_.size(); ++i) {
    if (transports_[i].get() == awaited) return i;
  }
  return 0;
}

// -- operations for reuse -----------------------------------------------------------------------------------

Operation* Engine::take_operation() {
  // The one that was given back last first: it has grown to what is called most, and is in the cache.
  if (returned_.load(std::memory_order_relaxed) != nullptr) {
    Operation* const newest = returned_.exchange(nullptr, std::memory_order_acquire);
    Operation* oldest = newest;
    while (oldest->next_free_ != nullptr) oldest = oldest->next_free_;
    oldest->next_free_ = free_;
    free_ = newest;
  }
  if (free_ == nullptr) make_operations();
  Operation* const operation = free_;
  free_ = operation->next_free_;
  ++operation->generation_;
  return operation;
}

// Many at a time, so that calls after the first find one whatever number of them is under way.
void Engine::make_operations() {
  const std::size_t made = operations_.size(), count = std::max(kFewestOperations, made);
  operations_.reserve(made + count);
  active_.reserve(made + count);
  for (std::size_t i = 0; i < count; ++i) {
    Operation& operation = *operations_.emplace_back(std::make_unique<Operation>());
    operation.engine_ = this;
    operation.id_ = static_cast<std::uint32_t>(made + i);
    operation.map_.reserve(list_blocks_);
    operation.next_free_ = free_;
    free_ = &operation;
  }
}

void Engine::reserve_lists(std::uint32_t blocks) {
  if (blocks <= list_blocks_) return;
  list_blocks_ = blocks;
  for (const auto& operation : operations_) operation->map_.reserve(blocks);
}

void Engine::take_back(Operation& operation) {
  operation.next_free_ = free_;
  free_ = &operation;
}

void Engine::give_back(Operation& operation) {
  operation.next_free_ = returned_.load(std::memory_order_relaxed);
  while (!returned_.compare_exchange_weak(operation.next_free_, &operation, std::memory_order_release,
                                          std::memory_order_relaxed)) {
  }
}

Operation* Engine::find(RequestId request_id) const {
  const std::size_t id = Operation::id_of(request_id);
  if (id >= operations_.size()) return nullptr;
  Operation* const operation = operations_[id].get();
  return operation->request_id(0) == (request_id & ~RequestId{0xffffffffU}) ? operation : nullptr;
}

void Engine::reap_retired() {
  std::erase_if(retired_, [](const RetiredBlock& control_block) {
    if (!control_block.is_quiet()) return false;
    control_block.heap->release(control_block.memory);
    return true;
  });
}

}  // namespace tutti
