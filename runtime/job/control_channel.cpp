// The part of the control channel that does not depend on connections: its thread, waiting callers, the
// observer. Knows no socket.
#include "runtime/job/control_channel.hpp"

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <utility>

#include "runtime/base/fork_guard.hpp"
#include "runtime/base/thread.hpp"

namespace tutti {
namespace {

// The answer to "who is missing" must not lengthen a deadline by more than this.
constexpr std::chrono::seconds kMissingAnswerTime{1};

// A world of one rank: no connection, no thread.
class SoloChannel final : public ControlChannel {
 public:
  explicit SoloChannel(const ControlOptions& options) : ControlChannel(options) { finish_start({}); }
  ~SoloChannel() override { stop_thread(); }

 private:
  void run() override {}
  // The observer may send from within a callback. The same thread delivers that message afterwards.
  bool submit(Frame frame) override {
    std::unique_lock lock(queue_mutex_);
    queue_.push_back(std::move(frame));
    if (is_delivering_) return true;
    is_delivering_ = true;
    while (!queue_.empty()) {
      const Frame next = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      deliver(next);
      lock.lock();
    }
    is_delivering_ = false;
    return true;
  }

  std::mutex queue_mutex_;
  std::deque<Frame> queue_;
  bool is_delivering_ = false;
};

}  // namespace

ControlChannel::ControlChannel(const ControlOptions& options)
    : options_(options), deadline_(Clock::now() + options.timeout) {}

Result<std::unique_ptr<ControlChannel>> ControlChannel::open(const ControlOptions& options,
                                                             Listeners listeners) {
  if (options.size == 1) return std::unique_ptr<ControlChannel>(std::make_unique<SoloChannel>(options));
  std::unique_ptr<ControlChannel> channel = make_control_tree(options, std::move(listeners));
  if (channel->wake_ < 0)
    return Status(StatusCode::resource_exhausted,
                  "the control channel: eventfd: " + describe_system_error(errno));
  TUTTI_RETURN_IF_ERROR(channel->start_thread());
  std::unique_lock lock(channel->mutex_);
  channel->changed_.wait(lock, [&] { return channel->start_.has_value(); });  // the thread keeps the deadline
  const Status status = *channel->start_;
  lock.unlock();
  if (!status) return status;
  return channel;
}

// -- thread -------------------------------------------------------------------------------------------------

Status ControlChannel::start_thread() {
  Result<std::thread> thread = tutti::start_thread("tutti-control", [this] {
    run();
    const std::lock_guard lock(mutex_);
    is_over_ = true;
    outbox_.clear();
  });
  if (!thread) return thread.status();
  thread_ = *std::move(thread);
  return {};
}

void ControlChannel::leave() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  if (wake_ >= 0) eventfd_write(wake_, 1);
  if (thread_.joinable()) thread_.join();
}

void ControlChannel::stop_thread() {
  leave();
  if (wake_ >= 0) {
    forget_on_fork(wake_);
    ::close(wake_);
    wake_ = -1;
  }
}

void ControlChannel::drain_wake() {
  eventfd_t count = 0;
  eventfd_read(wake_, &count);
}

std::vector<Frame> ControlChannel::take_outbox() {
  const std::lock_guard lock(mutex_);
  return std::exchange(outbox_, {});
}

bool ControlChannel::is_stopping() {
  const std::lock_guard lock(mutex_);
  return is_stopping_;
}

bool ControlChannel::submit(Frame frame) {
  {
    const std::lock_guard lock(mutex_);
    if (is_over_) return false;
    outbox_.push_back(std::move(frame));
  }
  eventfd_write(wake_, 1);
  return true;
}

// -- for the program's threads ------------------------------------------------------------------------------

Result<std::vector<std::string>> ControlChannel::allgather(std::string_view mine,
                                                           Clock::time_point deadline) {
  if (size() == 1) return std::vector<std::string>{std::string(mine)};
  if (mine.size() > kMaxPayloadBytes / 2 / static_cast<std::size_t>(size())) {
    return invalid_argument(
        fmt::format("exchange: {} bytes per rank are too many for {} ranks", mine.size(), size()));
  }
  const Clock::time_point start = Clock::now();
  std::unique_lock lock(mutex_);
  const std::uint64_t number = ++gather_count_;
  const auto is_over = [&] { return gathered_.count(number) > 0 || lost_.has_value(); };
  // The failure of this gather may have arrived before. Rank 0, which reported it, may be gone by now.
  const bool has_failed = gathered_.count(number) > 0;
  if (lost_ && !has_failed) return *lost_;
  lock.unlock();
  submit(Frame{FrameType::gather, rank(), 0, encode(EntriesPayload{number, {{rank(), std::string(mine)}}})});
  lock.lock();
  if (!wait_until(changed_, lock, deadline, is_over)) {
    lock.unlock();
    submit(Frame{FrameType::query_missing, rank(), 0, encode(GatherPayload{number, {}})});
    lock.lock();
    wait_for(changed_, lock, kMissingAnswerTime, [&] { return is_over() || missing_.count(number) > 0; });
  }
  if (const auto found = gathered_.find(number); found != gathered_.end()) {
    Result<std::vector<std::string>> result = std::move(found->second);
    gathered_.erase(found);
    return result;
  }
  if (lost_) return *lost_;
  const auto found = missing_.find(number);
  const Missing missing = found == missing_.end() ? Missing{"some rank", Status::kNoPeer} : found->second;
  // Earlier exchanges may have used up the time.
  const std::string limit = deadline > start ? "within " + format_seconds(deadline - start)
                                             : std::string("before the deadline, which had passed already");
  return Status(StatusCode::timeout, fmt::format("{} did not arrive {}", missing.names, limit),
                missing.first);
}

Status ControlChannel::trouble() {
  const std::lock_guard lock(mutex_);
  if (const auto next = gathered_.find(gather_count_ + 1); next != gathered_.end())
    return next->second.status();
  return lost_.value_or(Status());
}

void ControlChannel::set_observer(ControlObserver* observer) {
  const std::lock_guard lock(observer_mutex_);
  observer_ = observer;
  if (observer == nullptr) return;
  for (const FailurePayload& failure : failures_) {
    observer->on_failure(failure.group, failure.dead_rank, failure.to_status());
  }
  for (const int rank : departures_) observer->on_departure(rank);
}

void ControlChannel::abort(std::uint64_t group, const Status& cause) {
  const FailurePayload failure = make_failure(group, -1, cause);
  // Without a connection to rank 0 the cause holds here alone; other ranks fail by their deadlines.
  if (!submit(Frame{FrameType::failure, rank(), 0, encode(failure)})) record_failure(failure);
}

// Its target tells the frame from a request to rank 0.
void ControlChannel::settle(std::uint64_t group, const Status& cause) {
  submit(Frame{FrameType::failure, rank(), rank(), encode(make_failure(group, -1, cause))});
}

void ControlChannel::tell(int target, std::string bytes) {
  submit(Frame{FrameType::message, rank(), target, std::move(bytes)});
}

void ControlChannel::announce_departure(const std::string& why) {
  submit(Frame{FrameType::gone, rank(), 0, encode(GonePayload{rank(), false, false, why, {}})});
}

std::vector<ControlChannel::SilentRank> ControlChannel::find_silent(const std::vector<int>& ranks,
                                                                    std::chrono::milliseconds at_most) {
  std::unique_lock lock(mutex_);
  const std::uint64_t number = ++trace_count_;
  traces_[number];
  lock.unlock();
  for (const int target : ranks)
    submit(Frame{FrameType::trace, rank(), target, encode(TracePayload{number, target, -1, -1})});
  lock.lock();
  const auto end_of_way = [&](int target) -> SilentRank {
    const std::map<int, int>& hops = traces_[number][target];
    int at = rank(), before = -1;
    // A route has fewer hops than the world has ranks, unless it changes meanwhile.
    for (int i = 0; i < size(); ++i) {
      const auto found = hops.find(at);
      if (found == hops.end()) return {at, before};  // the previous hop has forwarded the query to it
      if (found->second == at || found->second < 0) return {};
      before = std::exchange(at, found->second);
    }
    return {};
  };
  wait_for(changed_, lock, at_most, [&] {
    return std::all_of(ranks.begin(), ranks.end(), [&](int target) { return end_of_way(target).rank < 0; });
  });
  std::vector<SilentRank> silent;
  silent.reserve(ranks.size());
  for (const int target : ranks) {
    const SilentRank end = end_of_way(target);
    silent.push_back(end.rank == rank() ? SilentRank()
                                        : end);  // our own control thread is busy: nothing is known
  }
  traces_.erase(number);
  return silent;
}

// -- for the control thread ---------------------------------------------------------------------------------

void ControlChannel::finish_start(Status status) {
  const std::lock_guard lock(mutex_);
  if (!start_) start_ = std::move(status);
  changed_.notify_all();
}

void ControlChannel::lose(const Status& cause) {
  const std::lock_guard lock(mutex_);
  if (!lost_) lost_ = cause;
  changed_.notify_all();
}

void ControlChannel::record_failure(const FailurePayload& failure) {
  const Status cause = failure.to_status();
  if (failure.group == 0) lose(cause);
  const std::lock_guard lock(observer_mutex_);
  failures_.push_back(failure);
  if (observer_ != nullptr) observer_->on_failure(failure.group, failure.dead_rank, cause);
}

void ControlChannel::record_departure(int rank) {
  const std::lock_guard lock(observer_mutex_);
  departures_.push_back(rank);
  if (observer_ != nullptr) observer_->on_departure(rank);
}

// An answer of rank 0 to an allgather, or to query_missing.
void ControlChannel::record_gather(const Frame& frame) {
  GatherPayload gather;
  if (!decode(frame.payload, gather)) return;
  const std::size_t expected = frame.type == FrameType::gathered ? static_cast<std::size_t>(size()) : 1;
  if (gather.values.size() != expected) return;
  const std::lock_guard lock(mutex_);
  if (frame.type == FrameType::gathered) {
    gathered_.emplace(gather.number, std::move(gather.values));
  } else if (frame.type == FrameType::gather_failed) {
    gathered_.emplace(gather.number, Status(StatusCode::peer_failed, gather.values[0], frame.source));
  } else {
    missing_[gather.number] = {gather.values[0], frame.source};
  }
}

void ControlChannel::deliver(const Frame& frame) {
  FailurePayload failure;
  RanksPayload departed;
  TracePayload trace;
  switch (frame.type) {
    case FrameType::gathered:
    case FrameType::gather_failed:
    case FrameType::missing:
      record_gather(frame);
      break;
    case FrameType::failure:
      if (decode(frame.payload, failure)) record_failure(failure);
      break;
    case FrameType::departed:
      if (decode(frame.payload, departed)) {
        for (const int rank : departed.ranks) record_departure(rank);
      }
      break;
    case FrameType::traced:
      if (decode(frame.payload, trace)) {
        const std::lock_guard lock(mutex_);
        if (const auto found = traces_.find(trace.number); found != traces_.end())
          found->second[trace.rank][trace.hop] = trace.next_hop;
      }
      break;
    case FrameType::message: {
      const std::lock_guard lock(observer_mutex_);
      if (observer_ != nullptr) observer_->on_message(frame.source, frame.payload);
      break;
    }
    default:
      break;  // the others concern ranks that forward frames
  }
  const std::lock_guard lock(mutex_);
  changed_.notify_all();
}

std::string describe_process(const MemberClaim& claim) {
  return claim.host.empty() ? fmt::format("pid {}", claim.pid)
                            : fmt::format("pid {} on {}", claim.pid, claim.host);
}

RankVerdict judge_loss(const MemberClaim& claim, const Status& why, bool is_remote,
                       const ProcessState& process) {
  RankVerdict verdict;
  verdict.world_rank = claim.rank;
  verdict.pid = claim.pid;
  verdict.host = claim.host;
  if (process.condition == ProcessCondition::ended && !process.reason.empty()) {
    judge(process, verdict);
    return verdict;
  }
  verdict.kind = VerdictKind::dead;
  verdict.reason =
      "its connection closed without a goodbye, so it crashed, was killed or ended without leaving the group";
  if (why.code() == StatusCode::timeout) {
    verdict.kind = VerdictKind::unreachable;
    verdict.reason = "its host does not answer, or the network to it is cut";
  }
  if (why.message() == forged_record().message()) {
    verdict.reason = "its connection was given up: " + why.message();
    return verdict;
  }
  // The host has dropped the connection earlier, with its process or after a silence.
  if (why.code() == StatusCode::aborted && is_remote)
    verdict.reason =
        "its host has reset the connection, so it crashed, was killed, or the network to it was cut for too "
        "long";
  if (is_remote) verdict.reason += fmt::format(" ({})", why.message());
  return verdict;
}

}  // namespace tutti
