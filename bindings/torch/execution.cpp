// Waiting for operations, and the steps after them. Knows no torch::Work and no collective.
#include "bindings/torch/execution.hpp"

#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "bindings/torch/completion_threads.hpp"
#include "bindings/torch/deadlines.hpp"

namespace tutti::torch_binding {
namespace {

constexpr std::chrono::milliseconds kNoTimeLimit{0};

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

// Without torch's list of stack frames.
std::string first_line_of(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception& error) {
    const std::string text = error.what();
    return text.substr(0, text.find('\n'));
  } catch (...) {
    return "an exception of an unknown type";
  }
}

// Runs `then` once all operations are complete, on a completion thread. The thread that completes the last of
// them drops no reference: the end of a group there would have to wait for that very thread.
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

void run_finishers(const std::vector<std::function<void()>>& finishers,
                   const std::vector<std::vector<at::Tensor>>& outputs) {
  if (finishers.empty()) return;
  const bool writes_inference_tensors =
      std::any_of(outputs.begin(), outputs.end(), [](const std::vector<at::Tensor>& list) {
        return std::any_of(list.begin(), list.end(), [](const at::Tensor& t) { return t.is_inference(); });
      });
  std::optional<c10::InferenceMode> inference;
  if (writes_inference_tensors) inference.emplace();
  const c10::NoGradGuard no_grad;
  for (const std::function<void()>& finish : finishers) finish();
}

std::exception_ptr to_torch_exception(const Error& error, const char* operation) {
  const std::string cause =
      error.code() == StatusCode::timeout ? ": Timed out waiting for other ranks: " : ": ";
  return torch_exception(std::string("tutti: ") + operation + cause + error.what());
}

Execution::Execution(std::shared_ptr<Membership> membership, const WorkInfo& info, Submitted submitted,
                     std::function<void()> at_end)
    : membership_(std::move(membership)),
      info_(info),
      launches_(std::move(submitted.launches)),
      outputs_(std::move(submitted.outputs)),
      receive_(std::move(submitted.receive)),
      receive_limit_(submitted.receive_limit),
      submitted_(std::move(submitted)),
      at_end_(std::move(at_end)) {}

std::vector<tutti::Work> Execution::operations() const {
  const std::lock_guard lock(state_mutex_);
  return submitted_.operations;
}

std::vector<std::shared_ptr<Execution>> Execution::parts() const {
  const std::lock_guard lock(state_mutex_);
  return submitted_.parts;
}

void Execution::collect_operations(std::vector<tutti::Work>* all) const {
  const std::vector<tutti::Work> own = operations();
  all->insert(all->end(), own.begin(), own.end());
  for (const std::shared_ptr<Execution>& part : parts()) part->collect_operations(all);
}

// -- waiting ------------------------------------------------------------------------------------------------

bool Execution::poll() {
  if (is_settled()) return true;
  const std::unique_lock waiting(waiting_mutex_, std::try_to_lock);
  if (!waiting.owns_lock()) return is_settled();
  for (const tutti::Work& operation : operations()) {
    if (!operation.test()) return false;
  }
  if (receive_ != nullptr && !receive_->is_over()) return false;
  for (const std::shared_ptr<Execution>& part : parts()) {
    if (!part->poll()) return false;
  }
  const std::optional<Error> failure = failure_of_complete();
  // The device may never finish failed work.
  if (!failure && !is_past_device()) return false;
  settle(failure);
  return true;
}

bool Execution::is_past_device() const {
  return std::all_of(launches_.begin(), launches_.end(),
                     [](const auto& launch) { return launch->is_over(); });
}

void Execution::wait(std::chrono::milliseconds timeout) {
  if (is_settled()) return;
  const std::lock_guard waiting(waiting_mutex_);
  wait_as_only_one(timeout);
}

void Execution::wait_as_only_one(std::chrono::milliseconds timeout) {
  std::optional<Error> failure;
  for (const tutti::Work& operation : operations()) {
    try {
      if (wait_for(operation, timeout)) continue;
    } catch (const Error& error) {
      // The caller's mistake, such as waiting within a callback: the operation goes on.
      if (error.code() == StatusCode::invalid_argument)
        std::rethrow_exception(to_torch_exception(error, info_.name));
      if (!failure) failure = error;
      continue;
    }
    const std::string missing = operation.missing();
    if (missing.empty() && operation.test()) continue;  // meanwhile
    std::rethrow_exception(torch_exception(
        "tutti: " + std::string(info_.name) + ": Timed out waiting for other ranks: after the " +
        seconds_text(timeout) + " given to wait(): " + missing + "; the operation goes on"));
  }
  if (receive_ != nullptr) failure = wait_for_message(timeout);
  for (const std::shared_ptr<Execution>& part : parts()) part->wait(timeout);
  settle(failure);
}

std::optional<Error> Execution::wait_for_message(std::chrono::milliseconds timeout) const {
  const auto left = std::max(
      std::chrono::milliseconds(0),
      std::chrono::ceil<std::chrono::milliseconds>(submitted_at_ + receive_limit_ - RunningClock::now()));
  const bool gives_up = timeout > kNoTimeLimit && timeout < left;
  if (receive_->wait_for(gives_up ? timeout : left)) return std::nullopt;
  const std::string missing = "rank " + std::to_string(info_.rank) + " has sent itself no message with tag " +
                              std::to_string(receive_->tag());
  if (!gives_up)
    return Error(StatusCode::timeout, info_.rank, missing + " within " + seconds_text(receive_limit_));
  std::rethrow_exception(torch_exception("tutti: " + std::string(info_.name) +
                                         ": Timed out waiting: after the " + seconds_text(timeout) +
                                         " given to wait(): " + missing + "; the operation goes on"));
}

bool Execution::wait_for(const tutti::Work& operation, std::chrono::milliseconds timeout) const {
  if (info_.timeout == kNoTimeLimit) {
    if (timeout > kNoTimeLimit) return operation.wait_for(timeout);
    operation.wait();
    return true;
  }
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(submitted_at_ + info_.timeout - RunningClock::now());
  if (timeout > kNoTimeLimit && timeout < left) return operation.wait_for(timeout);
  operation.wait_within(info_.timeout, submitted_at_);
  return true;
}

void Execution::settle_when_complete(std::function<void()> then) {
  if (receive_ != nullptr && !receive_->is_over()) {
    receive_->then([self = shared_from_this(), then = std::move(then)]() mutable {
      CompletionThreads::instance().run([self, then = std::move(then)] {
        self->settle_complete();
        then();
      });
    });
    return;
  }
  std::vector<tutti::Work> waited_for;
  collect_operations(&waited_for);
  // Settled by another thread meanwhile, or without operations: there is nothing to wait for.
  if (waited_for.empty()) {
    settle_complete();
    return then();
  }
  when_all_complete(waited_for, [self = shared_from_this(), then = std::move(then)] {
    self->settle_complete();
    then();
  });
}

void Execution::watch_deadline() {
  if (info_.timeout > kNoTimeLimit && !is_settled())
    Deadlines::instance().watch(submitted_at_ + info_.timeout, weak_from_this());
}

bool Execution::end_overdue() {
  const std::unique_lock waiting(waiting_mutex_, std::try_to_lock);
  if (!waiting.owns_lock()) return is_settled();
  try {
    wait_as_only_one(kNoTimeLimit);
  } catch (const std::exception&) {
    // It is in the future.
  }
  return true;
}

void Execution::let_go() {
  // A child of fork() only frees memory.
  if (is_settled() || is_on_device() || membership_->is_inherited()) return;
  try {
    settle_when_complete([self = shared_from_this()] {
      if (self->failure_ == nullptr || self->failure_code_ != StatusCode::ok) return;
      // There is no caller to report to.
      TORCH_WARN("tutti: ", self->info_.name,
                 ": the result of a dropped operation could not be copied to its tensors: ",
                 first_line_of(self->failure_));
    });
  } catch (const std::exception& error) {
    TORCH_WARN("tutti: ", info_.name, ": a dropped operation: ", error.what());
  }
}

void Execution::abort() {
  membership_->abort("rank " + std::to_string(info_.rank) + " aborted its " + info_.name);
}

// -- the outcome --------------------------------------------------------------------------------------------

std::optional<Error> Execution::failure_of_complete() const {
  for (const tutti::Work& operation : operations()) {
    try {
      operation.wait();
    } catch (const Error& error) {
      return error;
    }
  }
  return std::nullopt;
}

void Execution::settle_complete() {
  for (const std::shared_ptr<Execution>& part : parts()) part->settle_complete();
  settle(failure_of_complete());
}

void Execution::settle(const std::optional<Error>& failure) {
  std::exception_ptr outcome = failure ? to_torch_exception(*failure, info_.name) : nullptr;
  try {
    // The copies after a complete operation take little time.
    while (!outcome && !is_past_device()) std::this_thread::yield();
  } catch (...) {
    outcome = std::current_exception();
  }
  Submitted finished;
  const std::lock_guard lock(state_mutex_);
  if (is_settled_.load(std::memory_order_relaxed)) return;
  if (failure) failure_code_ = failure->code();
  if (info_.is_timed) finished_ = std::chrono::steady_clock::now();
  for (const std::shared_ptr<Execution>& part : submitted_.parts) {
    if (!outcome && submitted_.fails_with_parts) outcome = part->failure();
  }
  if (!outcome) {
    try {
      run_finishers(submitted_.finishers, outputs_);
    } catch (...) {
      outcome = std::current_exception();
    }
  }
  if (!submitted_.operations.empty()) source_ = submitted_.operations.front().source();
  if (receive_ != nullptr) source_ = info_.rank;
  // Dropped outside of the lock: the last reference to a group says goodbye to the others.
  std::swap(finished, submitted_);
  failure_ = std::move(outcome);
  if (at_end_) std::exchange(at_end_, nullptr)();
  is_settled_.store(true, std::memory_order_release);
}

}  // namespace tutti::torch_binding
