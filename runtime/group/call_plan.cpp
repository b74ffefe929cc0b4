// Runs of a call that is started many times, on a group of its own. See tutti/call_plan.hpp.
#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/group/call_admission.hpp"
#include "runtime/group/comm_group.hpp"
#include "runtime/group/partition_order.hpp"
#include "runtime/group/work_access.hpp"

namespace tutti {
namespace {

// How often a thread that waits for partitions to become ready asks whether it is interrupted, or the plan
// failed.
constexpr std::chrono::milliseconds kBetweenChecks{50};
constexpr std::chrono::microseconds kBetweenHooks{200};

std::vector<std::uint64_t> copy_of(Counts counts) { return {counts.begin(), counts.end()}; }

// Asks without driving: drivers run callbacks of the program.
bool has_ended(const Work& work) {
  const WorkState* const state = WorkAccess::state_of(work);
  return state == nullptr || state->is_complete();
}

// A thread that waits, and what it asks meanwhile.
struct Waiter {
  bool (*is_interrupted)(void* context) = nullptr;
  void* context = nullptr;
  bool has_interrupted() const { return is_interrupted != nullptr && is_interrupted(context); }
};

}  // namespace

class CallPlan::Impl {
 public:
  Impl(CommGroup group, const CollectiveCall& described, Counts partitions);
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  std::size_t partition_count() const { return has_partitions_ ? order_.partition_count() : 0; }
  void start();
  void ready(std::size_t first, std::size_t count);
  bool is_complete();
  bool is_complete(std::size_t first, std::size_t count);
  bool wait(const Waiter& waiter);
  bool wait(std::size_t first, std::size_t count, const Waiter& waiter);

 private:
  CommGroup::Impl& group() const { return CommGroup::Impl::of(group_, "plan"); }
  void check_partitions(const CollectiveCall& described, Counts partitions) const;
  void check_range(const char* name, std::size_t first, std::size_t count) const;
  // Without the mutex: callbacks of the program may run, and may use this plan.
  Work submit(const Call& call) const;
  void make_progress(std::size_t first, std::size_t count);
  // With the mutex held, which this one gives up while it submits.
  void communicate_ready_partitions(std::unique_lock<std::mutex>& lock);
  // With the mutex held:
  Call call_of(std::uint32_t partition) const;
  Work find_under_way(std::size_t first, std::size_t count) const;
  std::optional<std::uint32_t> find_incomplete() const;
  bool is_over_or_given_out(std::uint32_t partition) const {
    return !is_started_ || failure_ || order_.is_given_out(partition);
  }

  bool wait_for_partition(std::uint32_t partition, const Waiter& waiter);
  bool wait_until_given_out(std::uint32_t partition, const Waiter& waiter, Work* work);
  template <class Condition>
  bool wait_until(std::unique_lock<std::mutex>& lock, std::uint32_t partition, const Waiter& waiter,
                  Condition condition);
  static bool wait(const Work& work, const Waiter& waiter);
  [[noreturn]] void refuse_unready(std::uint32_t partition) const;

  const CommGroup group_;
  const std::string algorithm_;
  CallOptions options_;
  const std::vector<std::uint64_t> counts_, displacements_, output_counts_, output_displacements_;
  Call call_;
  const bool has_partitions_;          // else order_ has one, which is the whole call
  std::vector<std::uint64_t> begins_;  // of partitions, in elements; one more than there are
  mutable std::mutex mutex_;           // guards all that follows
  std::condition_variable given_out_;
  PartitionOrder order_;
  bool is_started_ = false;
  bool is_communicating_ = false;  // one thread at a time gives partitions out
  std::optional<Status> failure_;  // why a partition of this run could not be given out
  std::vector<Work> works_;        // of this run, by partition
  Work reordering_;                // the broadcast that ends the run
  std::vector<std::uint32_t> next_order_;
};

// -- making a plan
// --------------------------------------------------------------------------------------------

CallPlan::Impl::Impl(CommGroup group, const CollectiveCall& described, Counts partitions)
    : group_(std::move(group)),
      algorithm_(described.options.algorithm),
      options_(described.options),
      counts_(copy_of(described.counts)),
      displacements_(copy_of(described.displacements)),
      output_counts_(copy_of(described.output_counts)),
      output_displacements_(copy_of(described.output_displacements)),
      has_partitions_(!partitions.empty()),
      order_(static_cast<std::uint32_t>(std::max<std::size_t>(partitions.size(), 1))),
      works_(order_.partition_count()),
      next_order_(order_.partition_count()) {
  options_.algorithm = algorithm_;
  check_partitions(described, partitions);
  begins_.push_back(0);
  for (const std::uint64_t count : partitions) begins_.push_back(begins_.back() + count);
  std::iota(next_order_.begin(), next_order_.end(), 0U);
  Call call;
  call.collective = described.collective;
  call.dtype = described.collective == Collective::barrier ? Dtype::u8 : described.dtype;
  call.root = static_cast<std::uint32_t>(described.root);
  call.input = described.collective == Collective::broadcast ? nullptr : described.input;
  call.output = described.output;
  call.count = described.count;
  call.counts = counts_;
  call.displacements = displacements_;
  call.output_counts = output_counts_;
  call.output_displacements = output_displacements_;
  const std::string name = fmt::format("make_plan({})", to_string(described.collective));
  call_ = admit(this->group(), name.c_str(), call, options_,
                is_reducing(described.collective) ? &described.op : nullptr);
}

void CallPlan::Impl::check_partitions(const CollectiveCall& described, Counts partitions) const {
  if (described.collective == Collective::send_recv)
    throw_error(invalid_argument("make_plan: collective: messages of two ranks have no plans"));
  if (partitions.empty()) return;
  if (described.collective != Collective::allreduce)
    throw_error(unsupported(
        fmt::format("make_plan: partitions: {} has none; only allreduce is communicated in partitions",
                    to_string(described.collective))));
  const std::uint64_t sum = std::accumulate(partitions.begin(), partitions.end(), std::uint64_t{0});
  if (sum != described.count)
    throw_error(invalid_argument(fmt::format(
        "make_plan: partitions: they have {} elements together, and the buffer {}", sum, described.count)));
}

// A run under way would leave other ranks waiting.
CallPlan::Impl::~Impl() {
  try {
    make_progress(0, order_.partition_count());
    std::unique_lock lock(mutex_);
    const bool is_under_way = find_incomplete().has_value();
    lock.unlock();
    if (is_under_way) group_.abort("it ended its plan while a run was under way");
  } catch (const Error&) {  // the group has failed, or this is a child of fork()
  }
}

// -- runs ---------------------------------------------------------------------------------------------------

void CallPlan::Impl::start() {
  make_progress(0, order_.partition_count());
  std::unique_lock lock(mutex_);
  if (const std::optional<std::uint32_t> partition = find_incomplete()) {
    throw_error(invalid_argument(
        has_partitions_
            ? fmt::format("start: a run is under way: partition {} of {} is not complete; wait for it first",
                          *partition, order_.partition_count())
            : "start: a run is under way; wait for it first"));
  }
  if (const std::optional<Status> failure = group().failure()) throw_error(*failure);
  std::fill(works_.begin(), works_.end(), Work());
  reordering_ = Work();
  failure_.reset();
  order_.restart(next_order_);
  is_started_ = true;
  if (has_partitions_) return;
  static_cast<void>(order_.mark_ready(0, 1));
  communicate_ready_partitions(lock);
}

void CallPlan::Impl::ready(std::size_t first, std::size_t count) {
  std::unique_lock lock(mutex_);
  check_range("ready", first, count);
  if (!is_started_) throw_error(invalid_argument("ready: the plan has not been started"));
  if (failure_) throw_error(*failure_);
  throw_if_error(order_.mark_ready(first, count));
  communicate_ready_partitions(lock);
}

void CallPlan::Impl::check_range(const char* name, std::size_t first, std::size_t count) const {
  if (!has_partitions_)
    throw_error(invalid_argument(
        fmt::format("{}: this plan has no partitions; it is ready when it is started", name)));
  throw_if_error(order_.check_range(name, first, count));
}

// Progress threads stand back where callers come by, but for operations with callbacks. The callers of ready()
// compute, and do not drive.
Work CallPlan::Impl::submit(const Call& call) const {
  Work work = group().start(call, options_);
  const bool is_computing = has_partitions_ && !options_.will_wait;
  if (is_computing) work.on_complete([](const Error*) {});
  return work;
}

// Rank 0's order of this run is the next one's on all ranks: training repeats itself. Partitions that become
// ready meanwhile, also in callbacks that run here, are left to the thread that is at it.
void CallPlan::Impl::communicate_ready_partitions(std::unique_lock<std::mutex>& lock) {
  if (is_communicating_ || !order_.next()) return;
  is_communicating_ = true;
  try {
    while (const std::optional<std::uint32_t> partition = order_.next()) {
      const Call call = call_of(*partition);
      lock.unlock();
      Work work = submit(call);
      lock.lock();
      works_[*partition] = std::move(work);
      order_.give_out_next();
      given_out_.notify_all();
    }
    if (order_.are_all_given_out() && order_.partition_count() > 1) {
      std::copy(order_.ready_partitions().begin(), order_.ready_partitions().end(), next_order_.begin());
      lock.unlock();
      Work reordering = group_.ibroadcast(std::span(next_order_), 0);
      lock.lock();
      reordering_ = std::move(reordering);
    }
  } catch (const Error& error) {
    if (!lock.owns_lock()) lock.lock();
    failure_ = Status(error.code(), error.what(), error.peer());
    is_communicating_ = false;
    given_out_.notify_all();
    throw;
  }
  is_communicating_ = false;
  given_out_.notify_all();
}

Call CallPlan::Impl::call_of(std::uint32_t partition) const {
  if (!has_partitions_) return call_;
  Call call = call_;
  const std::size_t offset = begins_[partition] * element_bytes(call);
  call.input = static_cast<const std::byte*>(call.input) + offset;
  call.output = static_cast<std::byte*>(call.output) + offset;
  if (call.residual != nullptr) call.residual += begins_[partition];
  call.count = begins_[partition + 1] - begins_[partition];
  return call;
}

// Of these partitions the first that is under way, or the broadcast after all of them; a complete Work if none is.
Work CallPlan::Impl::find_under_way(std::size_t first, std::size_t count) const {
  const auto begin = works_.begin() + static_cast<std::ptrdiff_t>(first);
  const auto end = begin + static_cast<std::ptrdiff_t>(count);
  const auto found = std::find_if(begin, end, [](const Work& work) { return !has_ended(work); });
  if (found != end) return *found;
  return count == works_.size() ? reordering_ : Work();
}

void CallPlan::Impl::make_progress(std::size_t first, std::size_t count) {
  for (;;) {
    Work work;
    {
      const std::lock_guard lock(mutex_);
      work = find_under_way(first, count);
    }
    if (has_ended(work) || !work.test()) return;
  }
}

// A partition of this run that is not complete; the last one while only its order is under way.
std::optional<std::uint32_t> CallPlan::Impl::find_incomplete() const {
  if (!is_started_) return std::nullopt;
  for (std::uint32_t partition = 0; partition < order_.partition_count(); ++partition) {
    if (!is_over_or_given_out(partition) || !has_ended(works_[partition])) return partition;
  }
  if (is_communicating_ || !has_ended(reordering_)) return order_.partition_count() - 1;
  return std::nullopt;
}

// -- waiting
// --------------------------------------------------------------------------------------------------

bool CallPlan::Impl::is_complete() {
  make_progress(0, order_.partition_count());
  const std::lock_guard lock(mutex_);
  return !find_incomplete();
}

bool CallPlan::Impl::is_complete(std::size_t first, std::size_t count) {
  check_range("is_complete", first, count);
  make_progress(first, count);
  const std::lock_guard lock(mutex_);
  for (std::size_t partition = first; partition < first + count; ++partition) {
    if (!is_over_or_given_out(static_cast<std::uint32_t>(partition)) || !has_ended(works_[partition]))
      return false;
  }
  return true;
}

bool CallPlan::Impl::wait(const Waiter& waiter) {
  for (std::uint32_t partition = 0; partition < order_.partition_count(); ++partition) {
    if (!wait_for_partition(partition, waiter)) return false;
  }
  Work reordering;
  {
    // The thread that gave out the last partition begins the broadcast, too.
    std::unique_lock lock(mutex_);
    if (!wait_until(lock, order_.partition_count() - 1, waiter, [this] { return !is_communicating_; }))
      return false;
    reordering = reordering_;
    if (failure_) throw_error(*failure_);
  }
  return wait(reordering, waiter);
}

bool CallPlan::Impl::wait(std::size_t first, std::size_t count, const Waiter& waiter) {
  check_range("wait", first, count);
  for (std::size_t partition = first; partition < first + count; ++partition) {
    if (!wait_for_partition(static_cast<std::uint32_t>(partition), waiter)) return false;
  }
  return true;
}

bool CallPlan::Impl::wait_for_partition(std::uint32_t partition, const Waiter& waiter) {
  Work work;
  return wait_until_given_out(partition, waiter, &work) && wait(work, waiter);
}

bool CallPlan::Impl::wait(const Work& work, const Waiter& waiter) {
  if (waiter.is_interrupted != nullptr) return work.wait_unless(waiter.is_interrupted, waiter.context);
  work.wait();
  return true;
}

bool CallPlan::Impl::wait_until_given_out(std::uint32_t partition, const Waiter& waiter, Work* work) {
  std::unique_lock lock(mutex_);
  if (!wait_until(lock, partition, waiter, [&] { return is_over_or_given_out(partition); })) return false;
  if (failure_ && !order_.is_given_out(partition)) throw_error(*failure_);
  *work = works_[partition];
  return true;
}

// Another thread makes it true; here is nothing to drive meanwhile. `partition`: named at the deadline. False:
// interrupted.
template <class Condition>
bool CallPlan::Impl::wait_until(std::unique_lock<std::mutex>& lock, std::uint32_t partition,
                                const Waiter& waiter, Condition condition) {
  const auto deadline = Clock::now() + group().group().timeout();
  const WaitHook hook{options_.while_waiting, options_.while_waiting_context};
  const Clock::duration slice = hook.function != nullptr ? Clock::duration(kBetweenHooks) : kBetweenChecks;
  while (!wait_for(given_out_, lock, slice, condition)) {
    CommGroup::Impl::check_may_wait();
    if (const std::optional<Status> failure = group().failure()) throw_error(*failure);
    if (Clock::now() >= deadline) refuse_unready(partition);
    lock.unlock();
    if (hook.function != nullptr) call_wait_hook(hook);
    if (waiter.has_interrupted()) return false;
    lock.lock();
  }
  return true;
}

void CallPlan::Impl::refuse_unready(std::uint32_t partition) const {
  std::string partitions;
  for (const int missing : order_.missing_for(partition))
    partitions += fmt::format("{}{}", partitions.empty() ? "" : ", ", missing);
  if (partitions.empty())
    throw_error(
        Status(StatusCode::timeout,
               fmt::format("wait: partition {} was not communicated within {}: another thread of this "
                           "rank has been submitting since",
                           partition, format_seconds(group().group().timeout()))));
  throw_error(Status(
      StatusCode::timeout,
      fmt::format("wait: partition {} was not communicated within {}: this rank has not marked as ready: "
                  "{} of {} partitions",
                  partition, format_seconds(group().group().timeout()), partitions,
                  order_.partition_count())));
}

// -- the handle
// -----------------------------------------------------------------------------------------------

CallPlan CommGroup::make_plan(const CollectiveCall& call, Counts partitions) const {
  std::vector<int> ranks(static_cast<std::size_t>(Impl::of(*this, "make_plan").size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return CallPlan(std::make_shared<CallPlan::Impl>(create(ranks, "tutti plan"), call, partitions));
}

CallPlan::Impl& CallPlan::impl(const char* name) const {
  if (impl_ == nullptr)
    throw_error(invalid_argument(fmt::format("{}: this CallPlan is closed (it is no plan)", name)));
  return *impl_;
}

std::size_t CallPlan::partition_count() const { return impl("partition_count").partition_count(); }
void CallPlan::start() const { impl("start").start(); }
void CallPlan::ready(std::size_t first, std::size_t count) const { impl("ready").ready(first, count); }
bool CallPlan::is_complete() const { return impl("is_complete").is_complete(); }
bool CallPlan::is_complete(std::size_t first, std::size_t count) const {
  return impl("is_complete").is_complete(first, count);
}
void CallPlan::wait() const { impl("wait").wait(Waiter()); }
void CallPlan::wait(std::size_t first, std::size_t count) const { impl("wait").wait(first, count, Waiter()); }
bool CallPlan::wait_unless(bool (*is_interrupted)(void* context), void* context) const {
  return impl("wait").wait({is_interrupted, context});
}
bool CallPlan::wait_unless(std::size_t first, std::size_t count, bool (*is_interrupted)(void* context),
                           void* context) const {
  return impl("wait").wait(first, count, {is_interrupted, context});
}

}  // namespace tutti
