// Work's methods and futures. Knows no collective.
#include "bindings/torch/work.hpp"

#include <c10/util/Exception.h>

#include <utility>

namespace tutti::torch_binding {

OperationWork::OperationWork(std::shared_ptr<Membership> membership, const WorkInfo& info,
                             Submitted submitted, const std::vector<at::Tensor>& inputs)
    : Work(info.rank, info.type, info.title, inputs) {
  // For torch's profiler: the device reports its own work.
  if (!submitted.launches.empty() && recordFunctionEndCallback_)
    std::exchange(recordFunctionEndCallback_, nullptr)();
  execution_ = std::make_shared<Execution>(std::move(membership), info, std::move(submitted),
                                           std::exchange(recordFunctionEndCallback_, nullptr));
  if (!execution_->is_on_device()) return;
  if (execution_->outputs().empty()) return;  // nothing that a stream could wait for in a future
  make_future();
  complete_future();
}

OperationWork::~OperationWork() { execution_->let_go(); }

bool OperationWork::isSuccess() const { return execution_->is_settled() && execution_->failure() == nullptr; }

int OperationWork::sourceRank() const {
  const int source = execution_->source();
  TORCH_CHECK(source >= 0, "tutti: ", execution_->info().name,
              ": only a receive that is complete has a source rank");
  return source;
}

std::vector<at::Tensor> OperationWork::result() {
  TORCH_CHECK(isCompleted(),
              "Work needs to be completed before calling result(). Should call wait() before result().");
  const std::vector<std::vector<at::Tensor>>& outputs = execution_->outputs();
  TORCH_CHECK(outputs.size() <= 1,
              "work result does not support list of lists, use .getFuture() and value()");
  return outputs.empty() ? std::vector<at::Tensor>() : outputs.front();
}

bool OperationWork::wait(std::chrono::milliseconds timeout) {
  const c10d::OpType type = execution_->info().type;
  const bool is_about_host = type == c10d::OpType::BARRIER || type == c10d::OpType::RECVANYSOURCE;
  if (!execution_->is_on_device() || is_about_host || timeout > kNoTimeout) {
    execution_->wait(timeout);
  } else {
    execution_->poll();
  }
  const std::exception_ptr failure = execution_->failure();
  if (failure) std::rethrow_exception(failure);
  for (const std::shared_ptr<Launch>& launch : execution_->launches()) launch->order_current_stream();
  return true;
}

// -- futures ------------------------------------------------------------------------------------------------

void OperationWork::make_future() {
  c10::TypePtr type = c10::ListType::create(c10::TensorType::get());
  if (execution_->outputs().size() > 1) type = c10::ListType::create(std::move(type));
  std::vector<c10::Device> devices;
  for (const std::shared_ptr<Launch>& launch : execution_->launches())
    devices.push_back(launch->stream().device());
  future_ = c10::make_intrusive<c10::ivalue::Future>(std::move(type), std::move(devices));
}

c10::intrusive_ptr<c10::ivalue::Future> OperationWork::getFuture() {
  const bool is_complete = isCompleted();
  {
    const std::lock_guard lock(future_mutex_);
    if (future_) return future_;
    make_future();
  }
  if (is_complete) {
    complete_future();
    return future_;
  }
  execution_->watch_deadline();
  auto self = c10::intrusive_ptr<OperationWork>::unsafe_reclaim_from_nonowning(this);
  execution_->settle_when_complete([self] { self->complete_future(); });
  return future_;
}

void OperationWork::complete_future() {
  const std::exception_ptr failure = execution_->failure();
  const std::vector<std::vector<at::Tensor>>& outputs = execution_->outputs();
  if (failure) {
    future_->setError(failure);
  } else if (outputs.empty()) {
    future_->markCompleted(c10::IValue(std::vector<at::Tensor>()));
  } else if (outputs.size() > 1) {
    future_->markCompleted(c10::IValue(outputs));
  } else {
    future_->markCompleted(c10::IValue(outputs.front()));
  }
}

#if TUTTI_HAS_TORCH_2_13
c10::intrusive_ptr<c10::ivalue::Future> OperationWork::getFutureResult() {
  auto result = c10::make_intrusive<c10::ivalue::Future>(c10::IntType::get());
  execution_->watch_deadline();
  execution_->settle_when_complete([execution = execution_, result] {
    c10d::WorkResult outcome = c10d::WorkResult::SUCCESS;
    if (execution->failure_code() == StatusCode::timeout) {
      outcome = c10d::WorkResult::TIMEOUT;
    } else if (execution->failure() != nullptr) {
      outcome = c10d::WorkResult::COMM_ERROR;
    }
    result->markCompleted(c10::IValue(static_cast<std::int64_t>(outcome)));
  });
  return result;
}

float OperationWork::getDuration() const {
  TORCH_CHECK(execution_->info().is_timed, "tutti: ", execution_->info().name,
              ": getDuration: timing was not enabled before the operation: call _enable_collectives_timing() "
              "of its process group first");
  TORCH_CHECK(execution_->is_settled(), "tutti: ", execution_->info().name,
              ": getDuration: only an operation that is complete has one");
  return std::chrono::duration<float, std::milli>(execution_->finished() - execution_->started()).count();
}
#endif

}  // namespace tutti::torch_binding
