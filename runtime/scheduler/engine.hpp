// The engine of one rank: its transports, the operations in flight and the one place where they make
// progress. Knows no algorithm and no way of choosing; executes plans.
//
// Threading: any thread may submit, test and wait. It drives all operations of the engine: a thread that is blocked
// in one group must not starve a group for which its peer waits. Ownership is one compare-and-swap.
// While no thread waits, progress threads drive (progress_threads.hpp).
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/base/status.hpp"
#include "runtime/base/work.hpp"
#include "runtime/scheduler/control_block.hpp"
#include "runtime/scheduler/cpu_choice.hpp"
#include "runtime/scheduler/helper_threads.hpp"
#include "runtime/scheduler/operation_pool.hpp"
#include "runtime/scheduler/progress_lock.hpp"
#include "runtime/scheduler/progress_threads.hpp"
#include "runtime/scheduler/shared_plans.hpp"
#include "transports/transport.hpp"

namespace tutti {

class Operation;
class GroupContext;
class Messenger;
class Trace;

// How a waiting thread spends its time: poll, then yield the core between polls, then sleep on the
// transport's bell.
struct WaitPolicy {
  std::uint32_t spin_polls = 20000;  // 2 when ranks outnumber the cores they may use
  std::uint32_t yield_polls = 2000;
  bool may_sleep = true;
  // While it still polls, it gives way once in so many polls: the awaited rank may need this CPU.
  std::uint32_t polls_per_yield = ~0U;
  // Polling cannot help if the awaited rank waits on the same CPU. So give way at once, and leave the CPU if
  // another one is free of ranks.
  bool watches_cpus = false;
  // A sleep without a bell: the first, and the longest; each is twice as long as the one before. Events
  // that ring no bell (another thread's user-defined op, a failure of the group) are seen with this delay.
  std::chrono::microseconds first_sleep{2000};
  std::chrono::microseconds longest_sleep{16000};
  std::uint32_t line_polls = 256;  // polls of one flag line in a row; 1 when ranks outnumber their cores
  double pauses_per_ns = 0;        // calls of relax() in a nanosecond; 0: no back-off before the first poll
  double cross_llc_ns = 80;        // a timed poll that takes so long is between last-level caches
  bool shares_cpus() const { return line_polls == 1; }
};

// A stalled operation and the rank that it waits for; the group layer then asks the other ranks.
struct Stall {
  std::uint64_t context = 0;  // of the group
  std::uint32_t rank = 0;     // the own one in it
  std::uint32_t sequence = 0;
  bool is_message = false;         // between two ranks, numbered by pair
  std::uint32_t awaited_rank = 0;  // first rank a message is awaited from or to
  std::chrono::milliseconds lasted{0};
  std::chrono::milliseconds timeout{0};  // the group's
  std::uint32_t number = 0;              // how many reports of this operation came before
  bool is_attended = true;  // a caller waits for it; else the group's deadline is the receiver's business
  std::string call;         // "allreduce of 1024 f32, sum"
};

class Engine {
 public:
  struct Options {
    WaitPolicy waiting;
    std::chrono::milliseconds stall_report{
        50};  // first report of a stalled operation; then at doubling intervals
    std::chrono::milliseconds stall_warning{0};  // one report comes at this age, too; 0: none
    std::function<void(const Stall&)> on_stall;  // called without any lock held, by a waiting thread
    ProgressThreadOptions progress_threads;
    HelperOptions helpers;
    Trace* trace = nullptr;  // outlives the engine; null: nobody wants to know
  };
  // Transports in order of preference; each must be available.
  Engine(std::vector<std::unique_ptr<Transport>> transports, Options options);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  std::size_t transport_count() const { return transports_.size(); }
  Transport& transport(std::size_t i) { return *transports_[i]; }
  Trace* trace() const { return options_.trace; }
  const WaitPolicy& wait_policy() const { return options_.waiting; }
  HelperThreads* helpers() { return helpers_.get(); }  // null: there are none

  // Moves everything on once, if no other thread is at it. True if anything happened; else `failed_polls` says
  // how often flags of peers were polled in vain.
  bool drive(std::uint32_t* failed_polls = nullptr);
  // Drives until the operation is complete or the deadline has passed; false at the deadline. Reports it when
  // it stalls.
  bool wait_for(const Operation& operation, Clock::time_point deadline);

  // Operations under way, at most so many; none if the progress lock is not to be had for so long. Any thread.
  std::vector<Stall> list_under_way(std::size_t at_most, std::chrono::milliseconds patience);

  // For progress threads: is anything under way that no caller waits for?
  bool has_work_for_threads() const {
    return callers_.load(std::memory_order_seq_cst) == 0 && under_way_.load(std::memory_order_seq_cst) != 0;
  }
  // Drives as long as that is so, or until it is in the way. It is if threads of this process lost their CPU
  // meanwhile, and callers, who drive too, have come by.
  enum class Tended : std::uint8_t { no_work_left, in_the_way };
  Tended tend(const ProgressThreads& threads);
  // How often callers have submitted or asked for something, and driven. Any thread.
  std::uint32_t caller_turns() const { return caller_turns_.load(std::memory_order_relaxed); }
  // Is a completion callback to come? Whoever gave it may be waiting elsewhere. Any thread.
  bool owes_callbacks() const { return owed_callbacks_.load(std::memory_order_relaxed) != 0; }
  // The process ends, and all groups have left: the transports tell the peers. False: see
  // GroupContext::leave().
  bool leave(std::chrono::milliseconds at_most);

  // For the scheduler's own classes. All with the lock held, unless it says otherwise.
  ProgressLock& lock() { return lock_; }
  OperationPool& pool() { return pool_; }
  PlansByShape& plans() { return plans_; }  // any thread

  // For groups: without the lock.
  void add_group(GroupContext& group);
  // Some group has failed: its operations are to end. Any thread, without the lock.
  void note_failure() { has_failures_.store(true, std::memory_order_release); }
  // A caller has come by and goes on: it moves on what is under way. Without the lock.
  void take_turn() {
    caller_turns_.fetch_add(1, std::memory_order_relaxed);
    drive();
  }
  // Without the lock.
  void call_progress_threads() {
    if (threads_ != nullptr) threads_->call();
  }
  void remove_group(GroupContext& group);
  // Runs an operation until it would block and adds it to those under way. False if it is finished already.
  bool start(Operation& operation);
  // Control blocks that peers may still read.
  void retire(const RetiredBlock& control_block) { retired_.push_back(control_block); }
  // This process no longer counts as a sleeper of any group.
  void count_awake();
  void reap_retired();

  // For operations. One is blocked on that rank.
  void note_blocked(ControlBlocks& control_blocks, std::uint32_t peer);
  // A callback is to come; it is due now that its operation is complete.
  void expect_callback() { owed_callbacks_.fetch_add(1, std::memory_order_relaxed); }
  void note_callback(Operation& operation);

  // For messengers. One has something to do, or ends.
  void add_messenger(Messenger& messenger);
  void remove_messenger(Messenger& messenger);
  // Control messages and failures of that endpoint are for that messenger.
  void add_correspondent(const Endpoint* endpoint, Messenger& messenger, std::uint32_t peer, bool has_tag) {
    corresponding_[endpoint] = {&messenger, peer, has_tag};
  }
  // An operation that waits for something else than its plan: under way, and not advanced. Any number of them
  // costs progress nothing.
  void add_waiting(Operation& operation);
  void remove_waiting(Operation& operation);

 private:
  // How long a thread has driven nothing, and how it waits.
  struct Patience;
  struct Callback;
  // The messenger and peer behind an endpoint that is polled or that control messages come from.
  struct Correspondent {
    Messenger* messenger = nullptr;
    std::uint32_t peer = 0;
    bool has_tag = false;
  };

  // With the lock held.
  bool progress_once();
  void count_asleep();  // for the groups whose flags operations wait for
  void finish(Operation& operation);
  void count_under_way() {
    under_way_.store(static_cast<std::uint32_t>(active_.size() + waiting_.size()), std::memory_order_relaxed);
  }
  // Some operation that is under way; null: none.
  const Operation* any_under_way() const {
    return !active_.empty() ? active_.front() : !waiting_.empty() ? waiting_.front() : nullptr;
  }
  void on_event(const Event& event);
  void on_control(const Event& event);
  bool progress_messengers(bool before_sleep);
  Operation* take_user_step();  // an operation whose user-defined op is due; it runs without the lock
  // Those of failed groups. Closes their endpoints first, so that no peer touches a buffer afterwards.
  void fail_operations();
  std::size_t awaited_transport(const Operation& operation) const;
  static Stall stall_of(const Operation& operation);  // not since when

  // Without the lock.
  void wait_a_little(Patience& patience, const Operation* waiting, Clock::time_point deadline);
  void leave_shared_cpu();
  bool wait_until(const Operation& operation, Clock::time_point deadline);
  void run_callbacks();
  // `waiting`: null for the operation that is under way for longest.
  void sleep_once(const Operation* waiting, Clock::time_point deadline, std::chrono::microseconds at_most);
  void report_stall(const Operation* waiting, Clock::time_point now);

  std::vector<std::unique_ptr<Transport>> transports_;
  Options options_;
  PlansByShape plans_;
  ProgressLock lock_;
  // Guarded by the lock.
  OperationPool pool_;
  std::vector<Operation*> active_;      // under way, in order of submission
  std::vector<Operation*> waiting_;     // under way and not advanced, in any order
  std::vector<Messenger*> messengers_;  // that have something to do
  std::unordered_map<const Endpoint*, Correspondent> corresponding_;
  std::vector<GroupContext*> groups_;
  std::vector<Callback> callbacks_;  // that are due
  std::vector<RetiredBlock> retired_;
  std::vector<ControlBlocks*> counted_;  // that this process counts as a sleeper of
  std::vector<Event> events_;
  CpuChoice other_cpus_;              // where a thread goes that must leave its CPU
  Clock::time_point may_leave_at_{};  // when the next one may
  // Read without the lock.
  std::atomic<std::uint32_t> under_way_{0};  // operations
  std::atomic<std::uint32_t> callers_{
      0};  // threads that wait for an operation, once there are progress threads
  std::atomic<std::uint32_t> caller_turns_{0};
  std::atomic<std::uint32_t> owed_callbacks_{0};  // of operations under way
  std::atomic<bool> is_beside_peer_{false};       // the awaited rank last waited on this thread's CPU
  std::atomic<bool> must_leave_cpu_{false};
  std::atomic<bool> has_failures_{false};  // some group has failed since the last poll
  std::unique_ptr<HelperThreads> helpers_;
  std::unique_ptr<ProgressThreads> threads_;  // last: they end before anything that they use
};

}  // namespace tutti
