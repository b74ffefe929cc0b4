// Carries out named tensors of one group: negotiates which are ready on all ranks, and runs those in one order.
// Uses the group's public interface and the state behind a Work, and so any transport. Knows no algorithm.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <fstream>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "runtime/training/autotuner.hpp"
#include "runtime/training/batch_refusals.hpp"
#include "runtime/training/coordinator.hpp"
#include "runtime/training/fusion.hpp"
#include "runtime/training/residuals.hpp"
#include "runtime/training/response_cache.hpp"
#include "runtime/training/tensor_timing.hpp"
#include "runtime/training/tensor_work.hpp"
#include "tutti/tensors.hpp"

namespace tutti {

struct TensorQueueOptions {
  TensorSettings settings;
  std::chrono::milliseconds stall_warning{60000};  // 0: never
  // More than two such blocks of ranks on one node negotiate in two levels. Up to 64 ranks share control blocks;
  // with half of them a rank maps less memory.
  std::uint32_t block_ranks = 32;
  // Called once autotuning has ended, by rank 0's thread.
  std::function<void(const FusionTuning&)> save_fusion;
};

// Memory of fused operations, kept for the next ones.
class FusionBuffers {
 public:
  // At least so many bytes, aligned to 64.
  std::shared_ptr<std::vector<std::byte>> take(std::size_t bytes);

 private:
  std::vector<std::shared_ptr<std::vector<std::byte>>> buffers_;
};

// One thread at a time negotiates: one of the program's that submits or waits, which finds the CPU and the caches at
// hand, else the queue's own. A cycle: every rank contributes one bit for each tensor of the cache, set where the
// tensor is not ready, and flags; an allreduce of these words says what all ranks have. Where a rank has tensors
// that the cache does not know, requests go up a binomial tree to rank 0 and decisions come back.
class TensorScheduler {
 public:
  TensorScheduler(const CommGroup& group, const TensorQueueOptions& options);
  ~TensorScheduler();
  TensorScheduler(const TensorScheduler&) = delete;
  TensorScheduler& operator=(const TensorScheduler&) = delete;

  // Throws Error.
  WorkRef submit(std::string_view name, const TensorCall& call);
  WorkRef join(ZerosOnDevice zeros);
  // Ends the queue on all ranks; does not wait for that.
  void close();
  // A thread of the program comes by: it negotiates as far as it need not wait. Not in a callback, which may run in a
  // turn of this thread.
  void advance();
  // A thread of the program waits for `work`: it negotiates if that is due, and returns once something may have
  // changed, at `until` at the latest.
  void help(TensorWork& work, Clock::time_point until);
  // Of rank 0; others' calls do nothing. Wait until all ranks follow. Throw Error.
  void start_timeline(const std::string& path, bool marks_cycles);
  void stop_timeline();
  bool is_own_thread() const { return std::this_thread::get_id() == thread_.get_id(); }
  // Cycles so far, and those in which requests went up the tree.
  std::uint64_t cycle_count() const { return cycles_.load(std::memory_order_relaxed); }
  std::uint64_t coordinated_count() const { return coordinated_.load(std::memory_order_relaxed); }

 private:
  enum class Stage : std::uint8_t {
    submitted,  // not yet looked at
    cached,     // a bit of the cache's vector
    requested,  // rank 0 knows of it
  };
  struct Entry {
    TensorRequest request;
    TensorCall call;
    std::vector<std::uint64_t> sent_rows;  // of alltoall, by rank
    WorkRef work;
    Stage stage = Stage::submitted;
    std::uint32_t number = 0;  // while cached
    bool is_noted = false;     // for the timeline
    Clock::time_point since = Clock::now();
  };
  using EntryMap = std::map<std::string, Entry, std::less<>>;
  // A tensor that all ranks communicate now. No entry: this rank has joined.
  struct Ready {
    TensorResponse response;
    std::optional<Entry> entry = {};
    bool is_piece = false;                          // of a tensor
    std::shared_ptr<float> residual = {};           // of a tensor with error feedback
    std::vector<std::uint64_t> received_rows = {};  // of alltoall, by rank
  };
  // With a priority: tensor_backlog.hpp.
  class Backlog;
  class Completions;
  class PieceCount;
  // The words of a cycle: flags, bits of what is not ready, bits of what has to be evicted, and bits of pieces
  // that are not complete. Combined by "or".
  // TensorTiming has further flags.
  enum Flag : std::uint64_t { has_requests = 1, has_tensors = 2, is_leaving = 4, was_idle = 64 };
  struct Contribution {
    std::vector<std::uint64_t> words;
    std::size_t bit_words = 0;  // of each of the two vectors
    RequestBatch requests;
    std::span<std::uint64_t> not_ready() { return std::span(words).subspan(1, bit_words); }
    std::span<std::uint64_t> evicted() { return std::span(words).subspan(1 + bit_words, bit_words); }
    // Of the backlog.
    std::span<std::uint64_t> unfinished() { return std::span(words).subspan(1 + 2 * bit_words); }
  };

  // A cycle that has begun, until its agreement is complete.
  struct Round {
    Contribution mine;
    Work agreement;
    std::optional<Error> failure;  // of the agreement
  };
  // The memory of a message between two ranks.
  struct Mail {
    std::uint64_t length = 0;
    std::int64_t time = 0;
    std::string bytes;
  };

  // Of operations of the negotiation: the thread waits at once, so no progress thread is to wake up.
  static constexpr CallOptions kAwaited = [] {
    CallOptions options;
    options.will_wait = true;
    return options;
  }();

  // Turns of threads (tensor_turns.cpp).
  void run();
  void pause();
  bool take_due();
  void begin();
  bool finish();
  bool take_turn(std::chrono::milliseconds at_most);
  bool wait_for_agreement(std::chrono::milliseconds at_most);
  void tell_other_blocks(const Error& cause);
  bool needs_own_thread();
  static bool is_for_own_thread(const Entry& entry);
  void call_own_thread();
  void wake_own_thread_if_due();
  // With mutex_ held.
  bool has_news() const { return !arrived_.empty() || (joining_ && !has_announced_join_); }
  Clock::time_point due() const;
  Clock::time_point due_for_own_thread() const;

  void negotiate_now();
  Contribution contribute();
  bool needs_coordination(const RequestBatch& requests) const;
  void announce_arrived(Contribution& mine);
  void announce_refusals(Contribution& mine);
  void evict_unjoinable(std::span<std::uint64_t> evicted) const;
  // Memory that an allreduce of the others reads and overwrites here, once this rank has joined.
  std::shared_ptr<void> zeros_for(const TensorSignature& signature);
  void evict_stalled(std::span<std::uint64_t> evicted) const;
  void open_blocks(std::uint32_t block_ranks);
  void agree_in_blocks(std::vector<std::uint64_t>& words);
  void broadcast(void* data, std::size_t count, Dtype dtype);
  ResponseList coordinate(RequestBatch requests);
  void evict_agreed(std::span<const std::uint64_t> bits);
  void announce_moved();
  std::vector<Ready> take_ready(std::span<const std::uint64_t> not_ready);
  void accept(ResponseList list, std::vector<Ready>& ready);
  void warn_of_stalls();
  void follow(const FusionTuning& setting);
  void begin_autotuning();
  void autotune(const std::vector<Ready>& ready);
  void begin_timeline_of_environment();
  void write_timeline(std::shared_ptr<Timeline> timeline, bool marks_cycles);
  void note_submissions(RequestBatch& requests);
  void note_ready(const std::vector<Ready>& ready, bool timeline_begins);
  void align_clocks();
  // Of alltoalls: each rank tells each other one the rows that it sends. So a rank reads as many counts as there are
  // ranks, and counts that change from call to call need no new agreement.
  void exchange_rows(std::vector<Ready>& ready);
  // `mine`: as all ranks have it.
  void execute(std::vector<Ready> ready, Contribution& mine);
  // Tensors that share an operation, or one. `release`: called once it is complete; may be empty.
  void communicate(std::vector<Ready> tensors, const std::function<void()>& release);
  static void fail(const std::vector<Ready>& tensors, const Error& cause);
  Work execute_one(Ready& tensor);
  static void drive_by_waits(const Ready& tensor, const Work& work);
  // An operation that was started for one tensor, and where its result lies.
  struct Started {
    Work work;
    void* output = nullptr;
    std::uint64_t output_count = 0;  // of elements that are to be scaled once the work is complete
    std::shared_ptr<std::vector<std::byte>> scaled_input, discarded_output;
    Status failure;  // of this rank alone
  };
  Started start(const Ready& tensor, const TensorCall& call, const CallOptions& options);
  Started start_reduction(const TensorSignature& signature, TensorCall call, const CallOptions& options);
  Started start_allgather(const TensorResponse& response, TensorCall call, const CallOptions& options);
  Started start_alltoall(const Ready& tensor, TensorCall call, const CallOptions& options);
  Started start_reduce_scatter(const TensorResponse& response, TensorCall call, const CallOptions& options);
  // Sets the output of `bytes` where the call has an allocate(). Where that fails, the operation goes on with
  // the other ranks, and its output here is discarded.
  void allocate(const TensorResponse& response, TensorCall& call, std::span<const std::uint64_t> rows,
                std::uint64_t bytes, Started& started);
  [[noreturn]] void give_up(const Status& cause) const;
  Work scale_on_device(double factor, Dtype dtype, void* dst, const void* src, std::uint64_t count,
                       const CallOptions& options);
  void finish_on_device(double factor, Dtype dtype, Started& started, const CallOptions& options);
  Work execute_fused(std::vector<Ready>& tensors);
  Entry make_entry(std::string_view name, const TensorCall& call, const WorkRef& work) const;
  // With mutex_ held. A call is refused for `cause`, and so is its batch. Returns this rank's tensors of it, which
  // are to fail.
  std::vector<WorkRef> refuse_batch(const TensorCall& call, const Status& cause);
  Entry take_entry(EntryMap::iterator found);
  // Without it. Those of this rank.
  void take_entries(std::vector<Ready>& tensors);
  void fail_all(const Status& cause);
  [[noreturn]] static void refuse(const Status& status);
  void send_bytes(std::string bytes, int peer);
  const std::string& receive_bytes(int peer);
  void wait(const Work& work);

  // Held by the thread that negotiates, or starts what is ready.
  std::mutex negotiating_;
  // Guarded by it, as is everything up to mutex_. In front of the groups: an operation that a failure has left under
  // way writes there until its group has ended.
  std::optional<Round> round_;
  std::list<Mail> mail_;                                  // of this cycle
  std::vector<std::uint64_t> sent_rows_, received_rows_;  // of this cycle's alltoalls, rank by rank
  bool has_ended_ = false;

  CommGroup data_, control_;
  CommGroup block_, leaders_;  // of two levels; the second on the first ranks of blocks alone
  CommGroup own_;              // this rank alone; made at the first use
  const TensorSettings settings_;
  const std::function<void(const FusionTuning&)> save_fusion_;
  // Changed by autotuning, as is cycle_time_.
  FusionLimits limits_;
  std::optional<Autotuner> autotuner_;       // of rank 0, while it searches
  std::optional<FusionTuning> new_setting_;  // of rank 0: to be announced with the next cycle
  std::ofstream autotune_log_;
  const std::chrono::milliseconds stall_warning_;
  const std::uint32_t rank_, size_;
  ResponseCache cache_;
  std::optional<Coordinator> coordinator_;  // of rank 0
  FusionBuffers buffers_;
  const std::shared_ptr<TensorHelp> help_;
  Residuals residuals_;
  // Also of completions, which may come while the scheduler ends.
  const std::shared_ptr<TensorTiming> timing_;
  Clock::time_point last_warning_;
  std::unique_ptr<Backlog> backlog_;  // null without a priority

  std::mutex mutex_;
  std::condition_variable changed_;   // for the own thread
  std::condition_variable settled_;   // all ranks may follow a change of the timeline
  EntryMap entries_;                  // guarded by mutex_, like what follows
  std::vector<std::string> arrived_;  // names in stage `submitted`, in order
  BatchRefusals refusals_;
  std::optional<WorkRef> joining_;
  ZerosOnDevice zeros_on_device_;  // of joining_, or unset
  bool has_announced_join_ = false;
  std::size_t own_count_ = 0;  // tensors that the own thread has to start
  Clock::time_point last_cycle_;
  std::chrono::microseconds cycle_time_;  // between two cycles while tensors are under way
  std::chrono::microseconds idle_{0};     // how long nothing has been to do, as all ranks know
  Clock::time_point sleeps_until_ = Clock::time_point::min();  // the own thread, if nobody calls it
  bool is_called_ = false;                                     // the own thread is needed now
  std::optional<Clock::time_point> begun_;                     // the cycle that is under way
  bool is_urgent_ = false;
  bool is_closing_ = false;
  std::optional<Status> ended_;  // why no tensor can be submitted any more
  std::atomic<std::uint64_t> cycles_{0}, coordinated_{0};
  std::thread thread_;
};

}  // namespace tutti
