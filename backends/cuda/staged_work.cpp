// The copies of each collective, and the stages of a staged call.
#include "backends/cuda/staged_work.hpp"

#include <algorithm>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "backends/cuda/stream_event.hpp"

namespace tutti::cuda {
namespace {

constexpr std::size_t kAlignment = 256;  // of the buffers within the pinned memory
constexpr auto kSpinTime = std::chrono::microseconds(50);

std::size_t aligned(std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// Writes and waits of a stream are of 32 bits.
using Word = std::atomic<std::uint32_t>;
static_assert(sizeof(Word) == 4 && Word::is_always_lock_free);

}  // namespace

struct StagedWork::Signals {
  alignas(64) Word arrived{0};
  alignas(64) Word resumed{0};
  alignas(64) Word left{0};
};

StagedWork::StagedWork(const Call& call, std::string_view algorithm, std::uint32_t rank, std::uint32_t size)
    : call_(call),
      counts_(call.counts.begin(), call.counts.end()),
      displacements_(call.displacements.begin(), call.displacements.end()),
      output_counts_(call.output_counts.begin(), call.output_counts.end()),
      output_displacements_(call.output_displacements.begin(), call.output_displacements.end()),
      algorithm_(algorithm) {
  plan_copies(rank, size);
  call_.counts = counts_;
  call_.displacements = displacements_;
  call_.output_counts = output_counts_;
  call_.output_displacements = output_displacements_;
}

void StagedWork::plan_copies(std::uint32_t rank, std::uint32_t size) {
  const Extent input = input_extent(call_, rank, size), output = output_extent(call_, rank, size);
  // Checked calls have no more bytes than there can be.
  const auto bytes_of = [&](const Extent& extent) {
    return extent.is_used ? static_cast<std::size_t>(extent.bytes(element_bytes(call_)).value_or(0)) : 0;
  };
  const bool is_at_root = is_root(call_, rank), is_broadcast = call_.collective == Collective::broadcast;
  if (call_.in_place) {
    // One buffer, which holds the whole vector where the collective has one.
    output_ = {call_.output, nullptr, std::max(bytes_of(input), bytes_of(output)), true, true};
    if (is_broadcast) output_.is_loaded = is_at_root;
    if (is_broadcast) output_.is_stored = !is_at_root;
  } else {
    input_ = {const_cast<void*>(call_.input), nullptr, bytes_of(input), true, false};
    output_ = {call_.output, nullptr, bytes_of(output), false, true};
    // Gaps between blocks keep their content.
    output_.is_loaded = !displacements_.empty() || !output_displacements_.empty();
  }
  if (call_.collective == Collective::exscan && rank == 0) output_.is_stored = false;
}

Status StagedWork::enqueue(PinnedPool& pool) {
  auto context = ContextScope::enter(call_.device);
  if (!context) return context.status();
  const auto table = driver();
  if (!table) return table.status();
  auto* const stream = static_cast<CUstream>(call_.stream);
  TUTTI_RETURN_IF_ERROR(
      refuse_capture(stream, "a call that is staged through the host", "the host takes part each time"));
  const std::size_t input_at = aligned(sizeof(Signals)), output_at = input_at + aligned(input_.bytes);
  auto memory = pool.take(output_at + output_.bytes);
  if (!memory) return memory.status();
  memory_ = *std::move(memory);
  auto* const base = static_cast<std::byte*>(memory_.data());
  signals_ = new (base) Signals;
  input_.host = base + input_at;
  output_.host = base + output_at;
  Status enqueued = enqueue_copies(**table);
  if (!enqueued) {
    // Copies that are enqueued go on, and may still use the memory.
    signals_->resumed.store(1, std::memory_order_release);
    leak_memory();
  }
  return enqueued;
}

Status StagedWork::enqueue_copies(const Driver& table) {
  auto* const stream = static_cast<CUstream>(call_.stream);
  for (const Copy* copy : {&input_, &output_}) {
    if (copy->is_loaded && copy->bytes > 0)
      TUTTI_RETURN_IF_ERROR(copy_async(copy->host, copy->device, copy->bytes, stream));
  }
  const auto write = [&](const Word& word) {
    return to_status(table, table.cuStreamWriteValue32(stream, address_of(&word), 1, 0),
                     "cuStreamWriteValue32");
  };
  TUTTI_RETURN_IF_ERROR(write(signals_->arrived));
  if (!holds_stream()) return {};
  TUTTI_RETURN_IF_CUDA_ERROR(
      table, table.cuStreamWaitValue32(stream, address_of(&signals_->resumed), 1, CU_STREAM_WAIT_VALUE_GEQ),
      "cuStreamWaitValue32");
  TUTTI_RETURN_IF_ERROR(copy_async(output_.device, output_.host, output_.bytes, stream));
  return write(signals_->left);
}

bool StagedWork::has_arrived() const { return signals_->arrived.load(std::memory_order_acquire) != 0; }

void StagedWork::start(Backend& host) {
  Call call = call_;
  call.is_device = false;
  call.device = -1;
  call.stream = nullptr;
  call.input = call_.in_place ? output_.host : input_.host;
  call.output = output_.host;
  stage_ = Stage::communicating;
  auto started = host.start(call, {algorithm_, Completion::asynchronous});
  if (started) {
    on_host_ = *std::move(started);
  } else {
    resume(started.status());
  }
}

bool StagedWork::poll() {
  if (stage_ == Stage::communicating && on_host_->test()) {
    outcome_source_ = on_host_->source();
    resume(on_host_->status());
    return true;
  }
  // The input of a failed call may still be on its way to the host.
  const Word& last = holds_stream() ? signals_->left : signals_->arrived;
  if (stage_ == Stage::leaving && last.load(std::memory_order_acquire) != 0) {
    stage_ = Stage::over;
    complete(outcome_, outcome_source_);
    memory_ = PinnedBuffer();
    return true;
  }
  return false;
}

void StagedWork::resume(Status status) {
  on_host_ = WorkRef();
  outcome_ = std::move(status);
  stage_ = Stage::leaving;
  resumed_at_ = Clock::now();
  signals_->resumed.store(1, std::memory_order_release);
  if (!outcome_) complete(outcome_);  // the stream may never get there
}

void StagedWork::fail(const Status& cause) {
  if (stage_ == Stage::arriving) resume(cause);
}

void StagedWork::give_up() {
  complete(Status(StatusCode::timeout, describe() + ": the GPU has not taken the result"));
  leak_memory();
}

std::string StagedWork::describe() const {
  return fmt::format("{}, staged, on GPU {}", describe_call(call_), call_.device);
}

void StagedWork::leak_memory() {
  static_cast<void>(new PinnedBuffer(std::move(memory_)));
  stage_ = Stage::over;
}

Status StagedWork::wait(Clock::time_point deadline) {
  // Most short calls end sooner than a wake-up takes.
  const Clock::time_point spin_end = std::min(deadline, Clock::now() + kSpinTime);
  while (!is_complete() && Clock::now() < spin_end) std::this_thread::yield();
  if (!is_complete()) {
    std::unique_lock lock(mutex_);
    wait_until(completed_, lock, deadline, [&] { return is_complete(); });
  }
  if (is_complete()) return status();
  return Status(StatusCode::timeout, describe() + " is not complete");
}

}  // namespace tutti::cuda
