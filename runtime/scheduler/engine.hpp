// The engine of one rank: its transports, the operations in flight and the one place where they make
// progress. Knows no algorithm and no way of choosing; executes plans.
//
// Threading: submit, test and wait may be called by any thread. Whoever calls drives everything the engine
// has under way (a thread blocked in one group must not starve another group that its peer waits for);
// ownership is one compare-and-swap. While nobody waits, workers drive (workers.hpp).
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
#include "runtime/scheduler/workers.hpp"
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
  // Where the awaited rank waits on the same CPU, polling cannot help: give way at once, and leave the CPU if
  // another one is free of ranks.
  bool watches_cpus = false;
  // A sleep without a bell: the first, and the longest; each is twice as long as the one before. What has no
  // bell (another thread's user-defined op, a failure told by the group) is seen so late.
  std::chrono::microseconds first_sleep{2000};
  std::chrono::microseconds longest_sleep{16000};
  std::uint32_t line_polls = 256;  // polls of one flag line in a row; 1 when ranks outnumber their cores
  double pauses_per_ns = 0;        // calls of relax() in a nanosecond; 0: no back-off before the first poll
  double cross_llc_ns = 80;        // a timed poll that takes so long is between last-level caches
  bool shares_cpus() const { return line_polls == 1; }
};

// What a stalled operation waits for; handed to the group layer, which asks the other ranks.
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
    WorkerOptions workers;
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

  // Moves everything on once, if no other thread is at it. True if anything happened; else `looks` says at
  // how many lines of peers it has looked in vain.
  bool drive(std::uint32_t* looks = nullptr);
  // Drives until the operation is complete or the deadline has passed; false at the deadline. Reports it when
  // it stalls.
  bool wait_for(const Operation& operation, Clock::time_point deadline);

  // Operations under way, at most so many; none if the lane is not to be had for so long. Any thread.
  std::vector<Stall> list_under_way(std::size_t at_most, std::chrono::milliseconds patience);

  // For workers: is anything under way that no caller waits for?
  bool has_work_for_workers() const {
    return callers_.load(std::memory_order_seq_cst) == 0 && under_way_.load(std::memory_order_seq_cst) != 0;
  }
  // Drives as long as that is so, or until it is found to be in the way: threads of this process had to make
  // room for others meanwhile, and callers have come by, who drive too.
  enum class Tended : std::uint8_t { no_work_left, in_the_way };
  Tended tend(const Workers& workers);
  // How often callers have submitted or asked for something, and driven. Any thread.
  std::uint32_t caller_turns() const { return caller_turns_.load(std::memory_order_relaxed); }
  // Is a completion callback to come? Whoever gave it may be waiting elsewhere. Any thread.
  bool owes_callbacks() const { return owed_callbacks_.load(std::memory_order_relaxed) != 0; }
  // The process ends, and all groups have left: the transports tell the peers. False: see
  // GroupContext::leave().
  bool leave(std::chrono::milliseconds at_most);

 private:
  friend class GroupContext;
  friend class CachedEpoch;
  friend class Messenger;
  friend class Operation;

  // With the lane held: runs an operation until it would block and adds it to those under way. False if it is
  // finished already.
  bool start(Operation& operation);
  // The rest with the lane held, but for sleep_once and report_stall, which take it themselves.
  bool progress_once();
  void finish(Operation& operation);
  // An operation that waits for something else than its plan: under way, and not advanced. Any number of them
  // costs progress nothing.
  void add_waiting(Operation& operation);
  void remove_waiting(Operation& operation);
  void count_under_way() {
    under_way_.store(static_cast<std::uint32_t>(active_.size() + waiting_.size()), std::memory_order_relaxed);
  }
  // Some operation that is under way; null: none.
  const Operation* any_under_way() const {
    return !active_.empty() ? active_.front() : !waiting_.empty() ? waiting_.front() : nullptr;
  }
  void on_event(const Event& event);
  void on_control(const Event& event);
  bool progress_messengers(bool is_last_look);
  // What a thread has driven since it looked last, and how it waits for more.
  struct Patience;
  void wait_a_little(Patience& patience, const Operation* waiting, Clock::time_point deadline);
  // An operation is blocked on that rank. With the lane held.
  void note_blocked(ControlBlocks& control_blocks, std::uint32_t peer);
  void leave_shared_cpu();
  bool wait_until(const Operation& operation, Clock::time_point deadline);
  void call_workers() {
    if (workers_ != nullptr) workers_->call();
  }
  // A caller has come by and goes on: it moves on what is under way.
  void take_turn() {
    caller_turns_.fetch_add(1, std::memory_order_relaxed);
    drive();
  }
  // The operation is complete: its callback is due. With the lane held; run_callbacks() is called without it.
  void note_callback(Operation& operation);
  void run_callbacks();
  Operation*
  take_user_step();        // an operation whose user-defined op is due; the caller runs it without the lane
  void fail_operations();  // those of failed groups; closes their endpoints first, so that no peer touches a
                           // buffer afterwards
  // An operation to bind; the lane is held. It comes back from any thread, with or without the lane.
  Operation* take_operation();
  void make_operations();
  // Lists of counts of so many ranks will be bound.
  void reserve_lists(std::uint32_t blocks);
  void give_back(Operation& operation);
  void take_back(Operation& operation);  // the same with the lane held
  Operation* find(RequestId request_id) const;
  // Control blocks that peers may still look at.
  void retire(const RetiredBlock& control_block) { retired_.push_back(control_block); }
  void reap_retired();
  // `waiting`: null for the operation that is under way for longest.
  void sleep_once(const Operation* waiting, Clock::time_point deadline, std::chrono::microseconds at_most);
  std::size_t awaited_transport(const Operation& operation) const;
  void report_stall(const Operation* waiting, Clock::time_point now);
  static Stall stall_of(const Operation& operation);  // with the lane held; not since when

  bool try_acquire() { return !is_held_.exchange(true, std::memory_order_acquire); }
  void acquire();
  bool acquire_within(std::chrono::milliseconds at_most);
  bool acquire_unless(const std::atomic<bool>& refuses);  // false as soon as it is set while the lane is held
  void release() { is_held_.store(false, std::memory_order_release); }
  // Whoever holds the lane for long lets others have it between two pieces of work.
  bool is_wanted() const { return wanting_.load(std::memory_order_relaxed) != 0; }

  std::vector<std::unique_ptr<Transport>> transports_;
  Options options_;
  std::atomic<bool> is_held_{false};
  std::atomic<std::uint32_t> wanting_{0};    // threads that wait for the lane
  std::vector<Operation*> active_;           // under way, in order of submission; guarded by the lane
  std::vector<Operation*> waiting_;          // under way and not advanced, in any order; guarded by the lane
  std::atomic<std::uint32_t> under_way_{0};  // as many, for those without the lane
  std::atomic<std::uint32_t> callers_{0};    // threads that wait for an operation, once there are workers
  std::atomic<std::uint32_t> caller_turns_{0};
  std::atomic<std::uint32_t> owed_callbacks_{0};  // of operations under way
  std::vector<Messenger*> messengers_;  // that have something to do; guarded by the lane, as what follows
  // Whose endpoints they are: of those that control messages come from, or that are looked at.
  struct Correspondent {
    Messenger* messenger = nullptr;
    std::uint32_t peer = 0;
    bool has_tag = false;
  };
  std::unordered_map<const Endpoint*, Correspondent> corresponding_;
  std::vector<GroupContext*> groups_;
  struct Callback;
  std::vector<Callback> callbacks_;                     // that are due; guarded by the lane
  std::vector<std::unique_ptr<Operation>> operations_;  // tokens name them by number; guarded by the lane
  Operation* free_ = nullptr;                           // guarded by the lane
  std::uint32_t list_blocks_ = 0;                       // every operation can bind lists of so many ranks
  std::atomic<Operation*> returned_{nullptr};           // given back since the free list was last empty
  std::vector<RetiredBlock> retired_;
  std::vector<Event> events_;
  std::atomic<bool> is_beside_peer_{false};  // the awaited rank last waited on this thread's CPU
  std::atomic<bool> must_leave_cpu_{false};
  CpuChoice other_cpus_;                   // where to, with the lane held
  Clock::time_point may_leave_at_{};       // with the lane held
  std::atomic<bool> has_failures_{false};  // some group has failed since the last look
  std::unique_ptr<Workers> workers_;       // last: they end before anything that they use
};

}  // namespace tutti
