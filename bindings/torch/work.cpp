// Waiting, completion and futures of operations. Knows no collective.
#include "bindings/torch/work.hpp"

#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "bindings/torch/completion_threads.hpp"

namespace tutti::torch_binding {
namespace {

std::string seconds_text(std::chrono::milliseconds time) {
  std::string text = std::to_string(static_cast<double>(time.count()) / 1000.0);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text + " s";
}

std::exception_ptr torch_exception(const std::string& message) {
#if TORCH_VERSION_MAJOR >= 2
  return std::make_exception_ptr(
      c10::DistBackendError({__func__, __FILE__, static_cast<std::uint32_t>(__LINE__)}, message));
#else
  return std::make_exception_ptr(
      c10::Error({__func__, __FILE__, static_cast<std::uint32_t>(__LINE__)}, message));
#endif
}

// Runs `then` once all operations are complete, on a completion thread. Nothing is left to the thread that
// completes the last of them: a group whose last reference goes there would have to wait for that very
// thread.
void when_all_complete(const std::vector<tutti::Work>& operations, std::function<void()> then) {
  struct Rest {
    std::atomic<std::size_t> count;
    std::function<void()> then;
  };
  auto rest = std::make_shared<Rest>();
  rest->count.store(operations.size(), std::memory_order_relaxed);
  rest->then = std::move(then);
  for (const tutti::Work& operation : operations) {
    operation.on_complete([rest](const Error*) {
      if (rest->count.fetch_sub(1, std::memory_order_acq_rel) == 1)
        CompletionThreads::instance().run(std::exchange(rest->then, nullptr));
    });
  }
}

}  // namespace

void run_finishers(const Submitted& submitted) {
  const c10::NoGradGuard no_grad;
  for (const std::function<void()>& finish : submitted.finishers) finish();
}

std::exception_ptr to_torch_exception(const Error& error, const char* operation) {
  const std::string cause =
      error.code() == StatusCode::timeout ? ": Timed out waiting for other ranks: " : ": ";
  return torch_exception(std::string("tutti: ") + operation + cause + error.what());
}

OperationWork::OperationWork(std::shared_ptr<Membership> membership, const WorkInfo& info,
                             Submitted submitted, const std::vector<at::Tensor>& inputs)
    : Work(info.rank, info.type, info.title, inputs),
      membership_(std::move(membership)),
      info_(info),
      launches_(std::move(submitted.launches)),
      submitted_(std::move(submitted)) {
  if (!is_on_device()) return;
  // For torch's profiler: what takes place on the device is the device's to tell.
  if (recordFunctionEndCallback_) std::exchange(recordFunctionEndCallback_, nullptr)();
  if (submitted_.outputs.empty()) return;  // nothing that a stream could wait for in a future
  make_future();
  complete_future();
}

OperationWork::~OperationWork() {
  if (is_settled_.load(std::memory_order_acquire) || is_on_device()) return;
  // Nobody will ask for it any more, but its buffers must stay and its results arrive.
  auto rest = std::make_shared<Submitted>(std::move(submitted_));
  const std::vector<tutti::Work> operations = std::exchange(rest->operations, {});
  try {
    const std::shared_ptr<std::atomic<bool>> has_failed = std::make_shared<std::atomic<bool>>(false);
    for (const tutti::Work& operation : operations) {
      operation.on_complete([has_failed](const Error* error) {
        if (error != nullptr) has_failed->store(true, std::memory_order_relaxed);
      });
    }
    when_all_complete(operations, [rest, has_failed] {
      if (!has_failed->load(std::memory_order_relaxed)) run_finishers(*rest);
    });
  } catch (const std::exception& error) {
    TORCH_WARN("tutti: ", info_.name, ": a dropped operation: ", error.what());
  }
}

std::vector<tutti::Work> OperationWork::operations() const {
  const std::lock_guard lock(state_mutex_);
  return submitted_.operations;
}

bool OperationWork::isCompleted() {
  if (is_settled_.load(std::memory_order_acquire)) return true;
  const std::unique_lock waiting(waiting_mutex_, std::try_to_lock);
  if (!waiting.owns_lock()) return is_settled_.load(std::memory_order_acquire);
  for (const tutti::Work& operation : operations()) {
    if (!operation.test()) return false;
  }
  const std::optional<Error> failure = failure_of_complete();
  // Of what has failed, the device may never get to the end.
  if (!failure && !is_past_device()) return false;
  settle(failure);
  return true;
}

bool OperationWork::is_past_device() const {
  return std::all_of(launches_.begin(), launches_.end(),
                     [](const auto& launch) { return launch->is_over(); });
}

bool OperationWork::isSuccess() const {
  const std::lock_guard lock(mutex_);
  return completed_ && !exception_;
}

int OperationWork::sourceRank() const {
  const int source = source_.load(std::memory_order_relaxed);
  TORCH_CHECK(source >= 0, "tutti: ", info_.name, ": only a receive that is complete has a source rank");
  return source;
}

std::vector<at::Tensor> OperationWork::result() {
  TORCH_CHECK(isCompleted(),
              "Work needs to be completed before calling result(). Should call wait() before result().");
  TORCH_CHECK(submitted_.outputs.size() <= 1,
              "work result does not support list of lists, use .getFuture() and value()");
  return submitted_.outputs.empty() ? std::vector<at::Tensor>() : submitted_.outputs.front();
}

bool OperationWork::wait(std::chrono::milliseconds timeout) {
  const bool is_about_host = info_.type == c10d::OpType::BARRIER || info_.type == c10d::OpType::RECVANYSOURCE;
  if (!is_on_device() || is_about_host || timeout > kNoTimeout) {
    if (!is_settled_.load(std::memory_order_acquire)) wait_on_host(timeout);
  } else {
    isCompleted();
  }
  const std::exception_ptr failure = exception();
  if (failure) std::rethrow_exception(failure);
  for (const std::shared_ptr<Launch>& launch : launches_) launch->order_current_stream();
  return true;
}

void OperationWork::wait_on_host(std::chrono::milliseconds timeout) {
  const std::lock_guard waiting(waiting_mutex_);
  std::optional<Error> failure;
  for (const tutti::Work& operation : operations()) {
    try {
      if (wait_for(operation, timeout)) continue;
    } catch (const Error& error) {
      // The caller's mistake, such as waiting within a callback: the operation goes on.
      if (error.code() == StatusCode::invalid_argument) std::rethrow_exception(to_exception(error));
      if (!failure) failure = error;
      continue;
    }
    const std::string missing = operation.missing();
    if (missing.empty() && operation.test()) continue;  // meanwhile
    std::rethrow_exception(torch_exception(
        "tutti: " + std::string(info_.name) + ": Timed out waiting for other ranks: after the " +
        seconds_text(timeout) + " given to wait(): " + missing + "; the operation goes on"));
  }
  settle(failure);
}

bool OperationWork::wait_for(const tutti::Work& operation, std::chrono::milliseconds timeout) const {
  if (info_.timeout == kNoTimeout) {
    if (timeout > kNoTimeout) return operation.wait_for(timeout);
    operation.wait();
    return true;
  }
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(started_ + info_.timeout -
                                                                 std::chrono::steady_clock::now());
  if (timeout > kNoTimeout && timeout < left) return operation.wait_for(timeout);
  operation.wait_within(info_.timeout, started_);
  return true;
}

void OperationWork::watch_deadline() {
  auto self = c10::intrusive_ptr<OperationWork>::unsafe_reclaim_from_nonowning(this);
  CompletionThreads::instance().run([self] {
    {
      std::unique_lock lock(self->mutex_);
      const auto deadline = self->started_ + self->info_.timeout;
      if (self->cv_.wait_until(lock, deadline, [&self] { return self->completed_; })) return;
    }
    try {
      self->wait_on_host(kNoTimeout);
    } catch (const std::exception&) {
      // It is in the future.
    }
  });
}

void OperationWork::abort() {
  membership_->abort("rank " + std::to_string(info_.rank) + " aborted its " + info_.name);
}

std::optional<Error> OperationWork::failure_of_complete() const {
  for (const tutti::Work& operation : operations()) {
    try {
      operation.wait();
    } catch (const Error& error) {
      return error;
    }
  }
  return std::nullopt;
}

void OperationWork::settle_complete() { settle(failure_of_complete()); }

void OperationWork::settle(const std::optional<Error>& failure) {
  std::exception_ptr outcome = failure ? to_exception(*failure) : nullptr;
  try {
    // The copies behind an operation that is complete take no time to speak of.
    while (!outcome && !is_past_device()) std::this_thread::yield();
  } catch (...) {
    outcome = std::current_exception();
  }
  Submitted finished;
  {
    const std::lock_guard lock(state_mutex_);
    if (is_settled_.load(std::memory_order_relaxed)) return;
    if (failure) failure_ = failure->code();
    if (info_.is_timed) finished_ = std::chrono::steady_clock::now();
    if (!outcome) {
      try {
        run_finishers(submitted_);
      } catch (...) {
        outcome = std::current_exception();
      }
    }
    if (!submitted_.operations.empty())
      source_.store(submitted_.operations.front().source(), std::memory_order_relaxed);
    // Dropped outside of the lock: the last reference to a group says goodbye to the others.
    finished.operations = std::exchange(submitted_.operations, {});
    finished.buffers = std::exchange(submitted_.buffers, {});
    finished.finishers = std::exchange(submitted_.finishers, {});
    finish(outcome);
    is_settled_.store(true, std::memory_order_release);
  }
}

std::exception_ptr OperationWork::to_exception(const Error& error) const {
  return to_torch_exception(error, info_.name);
}

// -- futures ------------------------------------------------------------------------------------------------

void OperationWork::make_future() {
  c10::TypePtr type = c10::ListType::create(c10::TensorType::get());
  if (submitted_.outputs.size() > 1) type = c10::ListType::create(std::move(type));
  std::vector<c10::Device> devices;
  for (const std::shared_ptr<Launch>& launch : launches_) devices.push_back(launch->stream().device());
  future_ = c10::make_intrusive<c10::ivalue::Future>(std::move(type), std::move(devices));
}

c10::intrusive_ptr<c10::ivalue::Future> OperationWork::getFuture() {
  const bool is_complete = isCompleted();
  {
    const std::lock_guard lock(state_mutex_);
    if (future_) return future_;
    make_future();
  }
  if (is_complete) {
    complete_future();
    return future_;
  }
  if (info_.timeout > kNoTimeout) watch_deadline();
  settle_when_complete([this] { complete_future(); });
  return future_;
}

void OperationWork::settle_when_complete(std::function<void()> then) {
  auto self = c10::intrusive_ptr<OperationWork>::unsafe_reclaim_from_nonowning(this);
  const std::vector<tutti::Work> waited_for = operations();
  // Settled by another thread meanwhile, or without operations: there is nothing to wait for.
  if (waited_for.empty()) {
    settle_complete();
    return then();
  }
  when_all_complete(waited_for, [self, then = std::move(then)] {
    self->settle_complete();
    then();
  });
}

std::chrono::steady_clock::time_point OperationWork::finished() const {
  const std::lock_guard lock(state_mutex_);
  return finished_;
}

#if TUTTI_HAS_TORCH_2_13
c10::intrusive_ptr<c10::ivalue::Future> OperationWork::getFutureResult() {
  auto result = c10::make_intrusive<c10::ivalue::Future>(c10::IntType::get());
  if (info_.timeout > kNoTimeout) watch_deadline();
  settle_when_complete([this, result] {
    StatusCode failure = StatusCode::ok;
    {
      const std::lock_guard lock(state_mutex_);
      failure = failure_;
    }
    c10d::WorkResult outcome = c10d::WorkResult::SUCCESS;
    if (failure == StatusCode::timeout) {
      outcome = c10d::WorkResult::TIMEOUT;
    } else if (!isSuccess()) {
      outcome = c10d::WorkResult::COMM_ERROR;
    }
    result->markCompleted(c10::IValue(static_cast<std::int64_t>(outcome)));
  });
  return result;
}

float OperationWork::getDuration() const {
  TORCH_CHECK(info_.is_timed, "tutti: ", info_.name,
              ": getDuration: timing was not enabled before the operation: call _enable_collectives_timing() "
              "of its process group first");
  TORCH_CHECK(is_settled_.load(std::memory_order_acquire), "tutti: ", info_.name,
              ": getDuration: only an operation that is complete has one");
  return std::chrono::duration<float, std::milli>(finished() - started_).count();
}
#endif

void OperationWork::complete_future() {
  const std::exception_ptr failure = exception();
  if (failure) {
    future_->setError(failure);
  } else if (submitted_.outputs.empty()) {
    future_->markCompleted(c10::IValue(std::vector<at::Tensor>()));
  } else if (submitted_.outputs.size() > 1) {
    future_->markCompleted(c10::IValue(submitted_.outputs));
  } else {
    future_->markCompleted(c10::IValue(submitted_.outputs.front()));
  }
}

}  // namespace tutti::torch_binding
