// Waiting, completion and futures of operations. Knows no collective.
#include "bindings/torch/work.hpp"

#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <torch/version.h>

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

void run_finishers(const Submitted& submitted) {
  const c10::NoGradGuard no_grad;
  for (const std::function<void()>& finish : submitted.finishers) finish();
}

}  // namespace

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
      submitted_(std::move(submitted)) {}

OperationWork::~OperationWork() {
  if (is_settled_.load(std::memory_order_acquire)) return;
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
  settle_complete();
  return true;
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
  if (!is_settled_.load(std::memory_order_acquire)) {
    const std::lock_guard waiting(waiting_mutex_);
    std::exception_ptr failure;
    for (const tutti::Work& operation : operations()) {
      try {
        if (wait_for(operation, timeout)) continue;
      } catch (const Error& error) {
        // The caller's mistake, such as waiting within a callback: the operation goes on.
        if (error.code() == StatusCode::invalid_argument) std::rethrow_exception(to_exception(error));
        if (!failure) failure = to_exception(error);
        continue;
      }
      std::rethrow_exception(torch_exception("tutti: " + std::string(info_.name) +
                                             ": Timed out waiting: it is not complete after the " +
                                             seconds_text(timeout) +
                                             " given to wait(); it goes on. Who is missing is said when the "
                                             "timeout of the process group has passed"));
    }
    settle(failure);
  }
  const std::exception_ptr failure = exception();
  if (failure) std::rethrow_exception(failure);
  return true;
}

bool OperationWork::wait_for(const tutti::Work& operation, std::chrono::milliseconds timeout) {
  if (timeout > kNoTimeout) return operation.wait_for(timeout);
  if (info_.timeout > kNoTimeout) {
    const auto passed =
        std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - started_);
    if (!operation.wait_for(std::max(info_.timeout - passed, std::chrono::milliseconds(1))))
      fail_at_deadline();
  }
  operation.wait();
  return true;
}

void OperationWork::fail_at_deadline() {
  membership_->abort("rank " + std::to_string(info_.rank) + "'s " + info_.name + " Timed out after the " +
                     seconds_text(info_.timeout) + " that it was given");
}

void OperationWork::abort() {
  membership_->abort("rank " + std::to_string(info_.rank) + " aborted its " + info_.name);
}

void OperationWork::settle_complete() {
  std::exception_ptr failure;
  for (const tutti::Work& operation : operations()) {
    try {
      operation.wait();
    } catch (const Error& error) {
      if (!failure) failure = to_exception(error);
    }
  }
  settle(failure);
}

void OperationWork::settle(const std::exception_ptr& failure) {
  std::exception_ptr outcome = failure;
  Submitted finished;
  {
    const std::lock_guard lock(state_mutex_);
    if (is_settled_.load(std::memory_order_relaxed)) return;
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

c10::intrusive_ptr<c10::ivalue::Future> OperationWork::getFuture() {
  const bool is_complete = isCompleted();
  {
    const std::lock_guard lock(state_mutex_);
    if (future_) return future_;
    c10::TypePtr type = c10::ListType::create(c10::TensorType::get());
    if (submitted_.outputs.size() > 1) type = c10::ListType::create(std::move(type));
    future_ = c10::make_intrusive<c10::ivalue::Future>(std::move(type));
  }
  if (is_complete) {
    complete_future();
    return future_;
  }
  // Kept until then, as its future is.
  auto self = c10::intrusive_ptr<OperationWork>::unsafe_reclaim_from_nonowning(this);
  const std::vector<tutti::Work> waited_for = operations();
  when_all_complete(waited_for, [self] {
    self->settle_complete();
    self->complete_future();
  });
  // Settled by another thread since it was asked for: there is nothing left to wait for.
  if (waited_for.empty()) complete_future();
  return future_;
}

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
