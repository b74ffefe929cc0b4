// Polls works: often while a thread waits or a callback is due, else now and then.
#include "backends/cuda/stream_watch.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "runtime/base/thread.hpp"

namespace tutti::cuda {
namespace {

// Limits: of a waiting thread's nap, of a callback's delay, and of an unnoticed failure.
constexpr std::chrono::microseconds kLongestNap{200};
constexpr std::chrono::microseconds kCallbackDelay{50};
constexpr std::chrono::microseconds kFailureDelay{20000};
constexpr int kPollsBeforeFirstNap = 200;  // as long as a short collective takes

StreamWork& stream_work(const WorkRef& work) { return static_cast<StreamWork&>(*work.operator->()); }

}  // namespace

// -- a work -------------------------------------------------------------------------------------------------

StreamWork::StreamWork(StreamWatch& watch, std::string what, int source, Event begun, Event ended)
    : watch_(watch),
      what_(std::move(what)),
      source_(source),
      begun_(std::move(begun)),
      ended_(std::move(ended)) {}

void StreamWork::poll() {
  Status status;
  {
    const std::lock_guard lock(mutex_);
    if (is_complete() || ignores_events_) return;
    const Result<bool> is_past = ended_.query();
    if (is_past && !*is_past) return;
    if (!is_past) status = is_past.status().with_context(what_);
  }
  complete(status, source_);
}

bool StreamWork::is_late(std::chrono::milliseconds timeout) {
  const std::lock_guard lock(mutex_);
  if (is_complete()) return false;
  if (seen_to_begin_ != Clock::time_point{}) return Clock::now() - seen_to_begin_ > timeout;
  const Result<bool> has_begun = begun_.query();
  if (!has_begun || *has_begun) seen_to_begin_ = Clock::now();
  return false;
}

void StreamWork::ignore_events() {
  const std::lock_guard lock(mutex_);
  ignores_events_ = true;
}

void StreamWork::on_wanted() {
  watch_.wanted_.fetch_add(1, std::memory_order_relaxed);
  watch_.poll_sooner();
}

void StreamWork::on_complete(std::size_t callbacks) {
  watch_.wanted_.fetch_sub(callbacks, std::memory_order_relaxed);
  begun_ = {};
  ended_ = {};
}

Status StreamWork::wait(Clock::time_point deadline) {
  std::chrono::microseconds nap(1);
  for (int polls = 0; !test(); ++polls) {
    if (Clock::now() >= deadline) {
      return Status(StatusCode::timeout,
                    fmt::format("{} is not complete; the GPU does not say which rank is missing", what_));
    }
    if (polls < kPollsBeforeFirstNap) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(nap);
      nap = std::min(nap * 2, kLongestNap);
    }
  }
  return status();
}

// -- all works of a stream owner ---------------------------------------------------------------------------------

StreamWatch::~StreamWatch() { TUTTI_ASSERT(!thread_.joinable(), "the owner closes its watch"); }

Result<WorkRef> StreamWatch::begin(std::string what, int source, CUstream stream) {
  Result<Event> begun = events_.take();
  if (!begun) return begun.status();
  Result<Event> ended = events_.take();
  if (!ended) return ended.status();
  TUTTI_RETURN_IF_ERROR(begun->record(stream));
  return WorkRef(new StreamWork(*this, std::move(what), source, *std::move(begun), *std::move(ended)));
}

Status StreamWatch::add(const WorkRef& work, CUstream stream) {
  TUTTI_RETURN_IF_ERROR(stream_work(work).ended_.record(stream));
  const std::lock_guard lock(mutex_);
  if (!failure_) return failure_;
  if (!thread_.joinable()) {
    Result<std::thread> thread = start_thread(name_, [this] { run(); });
    if (!thread) return thread.status();
    thread_ = *std::move(thread);
  }
  pending_.push_back(work);
  if (pending_.size() == 1) changed_.notify_all();
  return {};
}

std::vector<WorkRef> StreamWatch::pending() {
  const std::lock_guard lock(mutex_);
  return {pending_.begin(), pending_.end()};
}

void StreamWatch::poll_all() {
  for (const WorkRef& work : pending()) stream_work(work).poll();
  const std::lock_guard lock(mutex_);
  std::erase_if(pending_, [](const WorkRef& work) { return work->is_complete(); });
}

Status StreamWatch::diagnose() {
  TUTTI_RETURN_IF_ERROR(owner_.diagnose());
  TUTTI_RETURN_IF_ERROR(services_.failure());
  const std::chrono::milliseconds timeout = services_.timeout();
  for (const WorkRef& reference : pending()) {
    StreamWork& work = stream_work(reference);
    if (!work.is_late(timeout)) continue;
    return Status(
        StatusCode::timeout,
        fmt::format("{} has been under way for {} ms: a rank is missing or has made another call, and the "
                    "GPU does not say which",
                    work.what_, timeout.count()));
  }
  return {};
}

Status StreamWatch::failure() {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void StreamWatch::fail(const Status& cause) {
  bool is_closed = false;
  {
    const std::lock_guard lock(mutex_);
    if (!failure_) return;
    failure_ = cause;  // nothing is added from now on
    is_closed = is_closed_;
  }
  const std::vector<WorkRef> works = pending();
  for (const WorkRef& work : works) stream_work(work).ignore_events();
  owner_.abort(cause);
  if (!is_closed && services_.failure().is_ok()) services_.fail(cause);
  for (const WorkRef& work : works) stream_work(work).complete(cause);
  poll_all();
}

void StreamWatch::poll_sooner() {
  const std::lock_guard lock(mutex_);
  changed_.notify_all();
}

void StreamWatch::run() {
  auto next_diagnosis = Clock::now() + kFailureDelay;
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      if (!is_closed_ && pending_.empty()) {
        changed_.wait(lock, [this] { return is_closed_ || !pending_.empty(); });
        next_diagnosis = Clock::now() + kFailureDelay;
      }
      if (is_closed_) return;
      const auto has_news = [this, before = wanted_.load()] { return is_closed_ || wanted_ > before; };
      changed_.wait_for(lock, wanted_ > 0 ? kCallbackDelay : kFailureDelay, has_news);
      if (is_closed_) return;
    }
    poll_all();
    if (Clock::now() < next_diagnosis) continue;
    next_diagnosis = Clock::now() + kFailureDelay;
    if (const Status cause = diagnose(); !cause) fail(cause);
  }
}

bool StreamWatch::is_busy() {
  const std::lock_guard lock(mutex_);
  return failure_.is_ok() && !pending_.empty();
}

Status StreamWatch::drain() {
  for (poll_all(); is_busy(); poll_all()) std::this_thread::sleep_for(kLongestNap);
  return failure();
}

void StreamWatch::close(std::chrono::milliseconds patience) {
  const auto deadline = Clock::now() + patience;
  for (poll_all(); is_busy() && Clock::now() < deadline; poll_all()) std::this_thread::sleep_for(kLongestNap);
  {
    const std::lock_guard lock(mutex_);
    is_closed_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
  const Status ended(StatusCode::aborted, "the group has ended");
  if (is_busy()) fail(ended);
  const std::lock_guard lock(mutex_);
  if (failure_) failure_ = ended;
}

}  // namespace tutti::cuda
