// Methods of torch 2's Backend that torch 1.13's ProcessGroup lacks: coalescing, groups made from groups,
// shutdown, errors, timing. Knows no collective.
#include "bindings/torch/backend.hpp"

#if TORCH_VERSION_MAJOR >= 2
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

#include "bindings/torch/completion_threads.hpp"

namespace tutti::torch_binding {

namespace {

// A stream that goes on when all of them are over; other calls do not wait for it.
c10::Stream behind(const std::vector<std::shared_ptr<Launch>>& launches) {
  const c10::Stream& first = launches.front()->stream();
  const c10::Stream stream =
      c10::impl::VirtualGuardImpl(first.device_type()).getStreamFromGlobalPool(first.device());
  for (const std::shared_ptr<Launch>& launch : launches) launch->order(stream);
  return stream;
}

}  // namespace

// -- several operations as one ------------------------------------------------------------------------------

void TuttiBackend::startCoalescing() {
  const std::lock_guard lock(submitted_mutex_);
  TORCH_CHECK(!is_coalescing_,
              "tutti: startCoalescing: it has been called already; call endCoalescing first");
  is_coalescing_ = true;
}

WorkPointer TuttiBackend::endCoalescing() {
  std::vector<c10::intrusive_ptr<OperationWork>> works;
  {
    const std::lock_guard lock(submitted_mutex_);
    TORCH_CHECK(is_coalescing_, "tutti: endCoalescing: startCoalescing has not been called");
    is_coalescing_ = false;
    works = std::exchange(coalesced_, {});
  }
  Submitted all;
  Tensors outputs;
  all.fails_with_parts = true;
  for (const auto& work : works) {
    const std::shared_ptr<Execution>& part = work->execution();
    all.parts.push_back(part);
    all.launches.insert(all.launches.end(), part->launches().begin(), part->launches().end());
    if (!part->is_on_device()) continue;
    for (const Tensors& list : part->outputs()) outputs.insert(outputs.end(), list.begin(), list.end());
  }
  c10::OptionalStreamGuard on_stream;
  if (!all.launches.empty()) {
    all.outputs = {std::move(outputs)};
    on_stream.reset_stream(behind(all.launches));
  }
  WorkInfo info;
  info.rank = rank_;
  info.type = c10d::OpType::COALESCED;
  info.name = "coalesced operations";
  info.title = "tutti:coalesced";
  info.sequence = getSequenceNumberForGroup();
  return c10::make_intrusive<OperationWork>(membership_, info, std::move(all), Tensors());
}

c10::intrusive_ptr<c10d::Backend::Options> TuttiBackend::getBackendOptions() {
  return c10::make_intrusive<BackendOptions>(getBackendName(), timeout_.load(std::memory_order_relaxed));
}

c10::intrusive_ptr<c10d::Backend> TuttiBackend::split(const c10::intrusive_ptr<c10d::Store>& store,
                                                      const std::vector<int>& ranks,
                                                      const c10::intrusive_ptr<Options>& opts) {
  if (std::find(ranks.begin(), ranks.end(), rank_) == ranks.end()) return nullptr;
  try {
    const CommGroup part = membership_->use([&](const CommGroup& group) { return group.create(ranks); });
    auto backend = c10::make_intrusive<TuttiBackend>(store, part, group_timeout_);
    if (opts && opts->timeout > kNoTimeout) backend->setTimeout(std::min(opts->timeout, group_timeout_));
    return backend;
  } catch (const Error& error) {
    std::rethrow_exception(to_torch_exception(error, "split"));
  }
}

c10::intrusive_ptr<c10d::Backend> TuttiBackend::merge(const c10::intrusive_ptr<c10d::Store>& store,
                                                      const c10::intrusive_ptr<Options>& opts,
                                                      const int& rank, const int& size) {
  return c10::make_intrusive<TuttiBackend>(store, rank, size, opts ? opts->timeout : group_timeout_);
}

void TuttiBackend::setTimeout(Milliseconds timeout) {
  TORCH_CHECK(timeout > kNoTimeout && timeout <= group_timeout_, "tutti: setTimeout: expected at most the ",
              group_timeout_.count(), " ms that the group was made with, got ", timeout.count(),
              " ms: give a longer timeout to init_process_group or new_group");
  timeout_.store(timeout, std::memory_order_relaxed);
}

void TuttiBackend::abort() { membership_->abort("rank " + std::to_string(rank_) + " called abort()"); }

void TuttiBackend::shutdown() {
  if (!membership_->is_inherited()) {
    erase_left_keys();
    own_messages_.cancel();
  }
  // Behind this call, rank 0 ends the store's server. A faster rank that joins again would find the old
  // server. If all ranks leave at the same time, rank 0 goes on at once.
  constexpr Milliseconds kMeetingTime{100};
  if (successor_ != nullptr) successor_->close();
  if (ends_store_ && membership_->meet(kMeetingTime) && rank_ == 0) return membership_->close_later();
  membership_->close();
}

at::Tensor TuttiBackend::allocateTensor(long size, at::TensorOptions options) {
  return allocate({static_cast<std::int64_t>(size)}, options);
}

#if TUTTI_HAS_TORCH_2_13
// -- errors, timing, completion -----------------------------------------------------------------------------

c10d::ErrorType TuttiBackend::getError() {
  const std::optional<Error> failure = membership_->failure();
  if (!failure) return c10d::ErrorType::SUCCESS;
  if (failure->code() == StatusCode::timeout) return c10d::ErrorType::TIMEOUT;
  const bool is_remote = failure->peer() >= 0 && failure->peer() != rank_;
  return is_remote ? c10d::ErrorType::REMOTE_ERROR : c10d::ErrorType::COMM_ERROR;
}

void TuttiBackend::enableCollectivesTiming() { is_timed_.store(true, std::memory_order_relaxed); }

void TuttiBackend::registerOnCompletionHook(std::function<void(std::shared_ptr<c10d::WorkInfo>)>&& hook) {
  TORCH_CHECK(onCompletionHook_ == nullptr,
              "tutti: registerOnCompletionHook: the process group has one already");
  TORCH_CHECK(hook != nullptr, "tutti: registerOnCompletionHook: the hook is empty");
  onCompletionHook_ = std::move(hook);
  enableCollectivesTiming();
}

void TuttiBackend::observe(const c10::intrusive_ptr<OperationWork>& work) {
  {
    const std::lock_guard lock(pending_->mutex);
    ++pending_->count;
  }
  const std::shared_ptr<Execution>& execution = work->execution();
  execution->settle_when_complete([pending = pending_, hook = onCompletionHook_, seen = execution] {
    if (hook && seen->failure() == nullptr) {
      hook(std::make_shared<c10d::WorkInfo>(seen->info().type, seen->info().sequence, seen->started(),
                                            seen->finished(), seen->finished() - seen->started()));
    }
    const std::lock_guard lock(pending->mutex);
    if (--pending->count == 0) pending->is_idle.notify_all();
  });
}

void TuttiBackend::waitForPendingWorks() {
  std::unique_lock lock(pending_->mutex);
  pending_->is_idle.wait(lock, [this] { return pending_->count == 0; });
}

// -- what there is not, and why -----------------------------------------------------------------------------

std::shared_ptr<c10::Allocator> TuttiBackend::getMemAllocator() {
  TORCH_CHECK(
      false,
      "tutti: getMemAllocator: its pools are for memory of a GPU; tutti.torch.empty() makes tensors in "
      "memory that the ranks of a node share");
}

#define TUTTI_DEVICE_MEMORY ": it is about a backend's own memory on a GPU, of which this one has none"
void TuttiBackend::suspend() { TORCH_CHECK(false, "tutti: suspend", TUTTI_DEVICE_MEMORY); }
void TuttiBackend::resume() { TORCH_CHECK(false, "tutti: resume", TUTTI_DEVICE_MEMORY); }
std::unordered_map<std::string, std::uint64_t> TuttiBackend::getMemoryStats() {
  TORCH_CHECK(false, "tutti: getMemoryStats", TUTTI_DEVICE_MEMORY);
}
#undef TUTTI_DEVICE_MEMORY
#endif

}  // namespace tutti::torch_binding
#endif
