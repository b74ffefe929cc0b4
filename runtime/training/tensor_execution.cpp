// Tensors that are ready on all ranks become operations of the group. See tensor_scheduler.hpp.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <numeric>
#include <utility>

#include "runtime/base/work.hpp"
#include "runtime/group/work_access.hpp"
#include "runtime/kernels/kernels.hpp"
#include "runtime/training/tensor_backlog.hpp"

namespace tutti {
namespace {

Status to_status(const Error* error) {
  return error == nullptr ? Status() : Status(error->code(), error->what(), error->peer());
}

// dst = src * factor, in the dtype.
void scale_by(double factor, Dtype dtype, void* dst, const void* src, std::uint64_t count) {
  if (factor != 1) {
    scale(ReduceOp::premul_sum(factor), 1, dtype, dst, src, count);
  } else if (dst != src) {
    copy_bytes(static_cast<std::byte*>(dst), static_cast<const std::byte*>(src), count * size_of(dtype));
  }
}

// Calls a function of the program's, which may throw. name: as the program knows it.
template <class Function>
Status call_program(const char* name, const Function& function) {
  Status outcome;
  call_back(
      [&](const Status&) {
        try {
          outcome = function();
        } catch (const Error& error) {
          outcome = to_status(&error);
        } catch (const std::bad_alloc&) {
          outcome = Status(StatusCode::resource_exhausted, fmt::format("{}: out of memory", name));
        } catch (const std::exception& error) {
          outcome = invalid_argument(fmt::format("{}: {}", name, error.what()));
        } catch (...) {
          outcome = invalid_argument(fmt::format("{}: an exception of unknown type", name));
        }
      },
      {});
  return outcome;
}

// How many rows of a first dimension a rank gets; the first ranks get one more each.
std::uint64_t rows_of_rank(std::uint64_t rows, std::uint32_t rank, std::uint32_t size) {
  return rows / size + (rank < rows % size ? 1 : 0);
}

std::uint64_t sum_of(const std::vector<std::uint64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
}

std::vector<std::uint64_t> elements_of(const std::vector<std::uint64_t>& rows, std::uint64_t row) {
  std::vector<std::uint64_t> counts;
  counts.reserve(rows.size());
  for (const std::uint64_t number : rows) counts.push_back(number * row);
  return counts;
}

std::uint64_t elements_of_row(const TensorSignature& signature) {
  std::uint64_t count = 1;
  const std::size_t first = has_free_first_dimension(signature.collective) ? 0 : 1;
  for (std::size_t i = first; i < signature.shape.size(); ++i) count *= signature.shape[i];
  return count;
}

}  // namespace

std::shared_ptr<std::vector<std::byte>> FusionBuffers::take(std::size_t bytes) {
  for (auto& buffer : buffers_) {
    if (buffer.use_count() > 1) continue;
    if (buffer->size() < bytes) buffer->resize(bytes);
    return buffer;
  }
  return buffers_.emplace_back(std::make_shared<std::vector<std::byte>>(bytes));
}

// Waits for the tensor drive its operation.
void TensorScheduler::drive_by_waits(const Ready& tensor, const Work& work) {
  WorkState* const operation = WorkAccess::state_of(work);
  if (operation != nullptr && tensor.entry && !tensor.response.signature.is_device)
    TensorWork::of(tensor.entry->work).run_by(operation);
}

void TensorScheduler::exchange_rows(std::vector<Ready>& ready) {
  std::vector<Ready*> alltoalls;
  for (Ready& tensor : ready) {
    if (tensor.response.signature.collective == Collective::alltoall) alltoalls.push_back(&tensor);
  }
  if (alltoalls.empty()) return;
  const std::size_t count = alltoalls.size();
  sent_rows_.clear();
  for (std::uint32_t rank = 0; rank < size_; ++rank) {
    for (const Ready* tensor : alltoalls) sent_rows_.push_back(tensor->entry->sent_rows[rank]);
  }
  received_rows_.resize(sent_rows_.size());
  try {
    wait(control_.ialltoall(sent_rows_.data(), received_rows_.data(), count, Dtype::u64, kAwaited));
  } catch (const Error& error) {
    fail(ready, error);
    throw;
  }
  for (std::uint32_t rank = 0; rank < size_; ++rank) {
    for (std::size_t i = 0; i < count; ++i)
      alltoalls[i]->received_rows.push_back(received_rows_[rank * count + i]);
  }
}

void TensorScheduler::execute(std::vector<Ready> ready, Contribution& mine) {
  std::vector<const TensorResponse*> list;
  list.reserve(ready.size());
  for (Ready& tensor : ready) {
    const TensorSignature& signature = tensor.response.signature;
    if (signature.has_feedback)
      tensor.residual = tensor.entry ? residuals_.of(tensor.response.name, element_count(signature))
                                     : make_residual(element_count(signature));
    list.push_back(&tensor.response);
  }
  FusionLimits limits = limits_;
  if (backlog_ != nullptr) limits.fused_bytes = std::min(limits.fused_bytes, Backlog::kPieceBytes);
  for (const FusedOperation& operation : plan_fusion(list, settings_.priority, limits)) {
    std::vector<Ready> tensors;
    tensors.reserve(operation.tensors.size());
    for (const std::uint32_t index : operation.tensors) tensors.push_back(std::move(ready[index]));
    if (backlog_ != nullptr) {
      backlog_->add(std::move(tensors));
    } else {
      communicate(std::move(tensors), {});
    }
  }
  if (backlog_ == nullptr) return;
  for (Backlog::Granted& granted : backlog_->grant(mine.unfinished(), (mine.words[0] & was_idle) != 0))
    communicate(std::move(granted.tensors), granted.release);
  backlog_->wait_for_room();
}

void TensorScheduler::communicate(std::vector<Ready> tensors, const std::function<void()>& release) {
  try {
    const Work work = tensors.size() == 1 ? execute_one(tensors.front()) : execute_fused(tensors);
    if (release) work.on_complete([release](const Error*) { release(); });
  } catch (const Error& error) {
    // Nobody here waits for the part of a rank that has joined, and the others would wait in vain.
    const auto is_ours = [](const Ready& tensor) { return tensor.entry.has_value(); };
    if (!std::all_of(tensors.begin(), tensors.end(), is_ours)) data_.abort(error.what());
    fail(tensors, error);
    if (release) release();
  }
}

void TensorScheduler::fail(const std::vector<Ready>& tensors, const Error& cause) {
  for (const Ready& tensor : tensors) {
    if (!tensor.entry) continue;
    TensorWork::of(tensor.entry->work)
        .complete(to_status(&cause).with_context(fmt::format("tensor \"{}\"", tensor.response.name)));
  }
}

// Small allreduces, packed into one. A rank that has joined gives zeros.
Work TensorScheduler::execute_fused(std::vector<Ready>& tensors) {
  const TensorSignature first = tensors.front().response.signature;
  const std::size_t bytes = size_of(first.dtype);
  std::vector<std::uint64_t> offsets{0};
  for (const Ready& tensor : tensors)
    offsets.push_back(offsets.back() + element_count(tensor.response.signature));
  const auto buffer = buffers_.take(offsets.back() * bytes);
  std::byte* const memory = buffer->data();
  const auto note = [&](TensorPhase phase, const std::string& arguments = {}) {
    for (const Ready& tensor : tensors) timing_->note(tensor.response, phase, arguments);
  };
  if (timing_->has_phases()) note(TensorPhase::copying_in);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::uint64_t count = offsets[i + 1] - offsets[i];
    if (tensors[i].entry) {
      scale_by(first.prescale, first.dtype, memory + offsets[i] * bytes, tensors[i].entry->call.input, count);
    } else {
      std::memset(memory + offsets[i] * bytes, 0, count * bytes);
    }
    if (tensors[i].residual != nullptr)
      apply_residual(reinterpret_cast<float*>(memory) + offsets[i], tensors[i].residual.get(), count);
  }
  if (timing_->has_phases()) note(TensorPhase::moving, fmt::format(R"("tensors":{})", tensors.size()));
  CallOptions options;
  options.wire_dtype = first.wire_dtype;
  std::shared_ptr<std::vector<std::byte>> losses;
  if (first.has_feedback) {
    losses = buffers_.take(offsets.back() * bytes);
    std::memset(losses->data(), 0, offsets.back() * bytes);
    options.residual = reinterpret_cast<float*>(losses->data());
  }
  Work work = data_.iallreduce(memory, memory, offsets.back(), first.dtype, first.op, options);
  for (const Ready& tensor : tensors) drive_by_waits(tensor, work);
  const auto shared = std::make_shared<const std::vector<Ready>>(std::move(tensors));
  work.on_complete([buffer, losses, offsets, shared, bytes, dtype = first.dtype, postscale = first.postscale,
                    timing = timing_](const Error* error) {
    for (const Ready& tensor : *shared) timing->note(tensor.response, TensorPhase::copying_out);
    for (std::size_t i = 0; i < shared->size(); ++i) {
      const TensorResponse& response = (*shared)[i].response;
      const std::optional<Entry>& entry = (*shared)[i].entry;
      if (entry && error == nullptr)
        scale_by(postscale, dtype, entry->call.output, buffer->data() + offsets[i] * bytes,
                 offsets[i + 1] - offsets[i]);
      if (losses != nullptr)
        std::memcpy((*shared)[i].residual.get(), losses->data() + offsets[i] * bytes,
                    (offsets[i + 1] - offsets[i]) * bytes);
      timing->note_end(response, error == nullptr);
      if (entry) TensorWork::of(entry->work).complete(to_status(error));
    }
  });
  return work;
}

std::shared_ptr<void> TensorScheduler::zeros_for(const TensorSignature& signature) {
  const std::size_t bytes = element_count(signature) * size_of(signature.dtype);
  if (!signature.is_device) {
    const auto zeros = buffers_.take(bytes);
    std::memset(zeros->data(), 0, bytes);
    return {zeros, zeros->data()};
  }
  ZerosOnDevice make_zeros;
  {
    const std::lock_guard lock(mutex_);
    make_zeros = zeros_on_device_;
  }
  std::shared_ptr<void> zeros;
  const Status made = call_program("join's zeros", [&] {
    zeros = make_zeros(bytes);
    if (zeros != nullptr || bytes == 0) return Status();
    return Status(StatusCode::resource_exhausted,
                  fmt::format("join's zeros: it gave no memory for {} bytes", bytes));
  });
  if (!made.is_ok()) give_up(made);
  return zeros;
}

Work TensorScheduler::execute_one(Ready& tensor) {
  const TensorSignature& signature = tensor.response.signature;
  TensorCall call = tensor.entry ? tensor.entry->call : TensorCall();
  std::shared_ptr<void> zeros;
  if (!tensor.entry && signature.collective == Collective::allreduce) {
    zeros = zeros_for(signature);
    call.input = call.output = zeros.get();
    call.memory = signature.is_device ? Memory::device : Memory::host;
  }
  CallOptions options;
  options.memory = call.memory;
  options.cuda_stream = call.cuda_stream;
  if (is_reducing(signature.collective)) options.wire_dtype = signature.wire_dtype;
  options.residual = tensor.residual.get();
  if (!call.allocate && !tensor.is_piece) timing_->note(tensor.response, TensorPhase::moving);
  Started started = start(tensor, call, options);
  if (!started.failure)
    started.failure = started.failure.with_context(fmt::format("tensor \"{}\"", tensor.response.name));
  // No Work: the callback would hold the group, which must not end on a progress thread.
  Work work = std::exchange(started.work, {});
  drive_by_waits(tensor, work);
  work.on_complete(
      [tensor = std::move(tensor), zeros, started, timing = timing_](const Error* error) mutable {
        const std::optional<Entry> ended = std::move(tensor.entry);  // its end is part of the callback
        const TensorSignature& s = tensor.response.signature;
        if (ended && error == nullptr && s.postscale != 1)
          scale_by(s.postscale, s.dtype, started.output, started.output, started.output_count);
        if (!tensor.is_piece) timing->note_end(tensor.response, error == nullptr && started.failure.is_ok());
        if (!ended) return;
        TensorWork::of(ended->work).complete(started.failure ? to_status(error) : started.failure);
      });
  return work;
}

void TensorScheduler::allocate(const TensorResponse& response, TensorCall& call,
                               std::span<const std::uint64_t> rows, std::uint64_t bytes, Started& started) {
  if (!call.allocate) return;
  timing_->note(response, TensorPhase::allocating);
  started.failure = call_program("allocate", [&] {
    call.output = call.allocate(rows);
    if (call.output != nullptr || bytes == 0) return Status();
    return Status(StatusCode::resource_exhausted,
                  fmt::format("allocate: it gave no memory for {} bytes", bytes));
  });
  timing_->note(response, TensorPhase::moving);
  if (started.failure) return;
  if (call.memory == Memory::device) give_up(started.failure);
  started.discarded_output = buffers_.take(bytes);
  call.output = started.discarded_output->data();
}

// The others' GPUs wait for this rank, and there is no memory for its part.
void TensorScheduler::give_up(const Status& cause) const {
  data_.abort(cause.message());
  throw Error(cause.code(), cause.peer(), cause.message());
}

// dst = src * factor, on the stream of the call. The sum over one rank does that, on any backend.
Work TensorScheduler::scale_on_device(double factor, Dtype dtype, void* dst, const void* src,
                                      std::uint64_t count, const CallOptions& options) {
  if (!own_.is_open()) {
    const int self[] = {static_cast<int>(rank_)};
    own_ = data_.create(self, "tutti tensors: scaling");
  }
  return own_.iallreduce(src, dst, count, dtype,
                         factor == 1 ? Reduction(Op::sum) : Reduction::premul_sum(factor), options);
}

// Scales the output behind the collective, on its stream.
void TensorScheduler::finish_on_device(double factor, Dtype dtype, Started& started,
                                       const CallOptions& options) {
  if (factor != 1)
    started.work =
        scale_on_device(factor, dtype, started.output, started.output, started.output_count, options);
  started.output_count = 0;
}

TensorScheduler::Started TensorScheduler::start(const Ready& tensor, const TensorCall& call,
                                                const CallOptions& options) {
  const TensorResponse& response = tensor.response;
  const TensorSignature& s = response.signature;
  Started started;
  switch (s.collective) {
    case Collective::allreduce:
      return start_reduction(s, call, options);
    case Collective::reduce_scatter:
      return start_reduce_scatter(response, call, options);
    case Collective::allgather:
      return start_allgather(response, call, options);
    case Collective::alltoall:
      return start_alltoall(tensor, call, options);
    case Collective::broadcast:
      if (static_cast<std::int32_t>(rank_) == s.root && call.input != call.output) {
        if (s.is_device) {
          scale_on_device(1, s.dtype, call.output, call.input, element_count(s), options);
        } else {
          scale_by(1, s.dtype, call.output, call.input, element_count(s));
        }
      }
      started.work = data_.ibroadcast(call.output, element_count(s), s.dtype, s.root, options);
      return started;
    default:
      started.work = data_.ibarrier(options);
      return started;
  }
}

TensorScheduler::Started TensorScheduler::start_reduction(const TensorSignature& s, TensorCall call,
                                                          const CallOptions& options) {
  Started started;
  started.output = call.output;
  started.output_count = element_count(s);
  if (s.prescale != 1 || options.residual != nullptr) {
    if (s.is_device) {
      scale_on_device(s.prescale, s.dtype, call.output, call.input, started.output_count, options);
    } else {
      scale_by(s.prescale, s.dtype, call.output, call.input, started.output_count);
    }
    if (options.residual != nullptr)
      apply_residual(static_cast<float*>(call.output), options.residual, started.output_count);
    call.input = call.output;
  }
  started.work = data_.iallreduce(call.input, call.output, started.output_count, s.dtype, s.op, options);
  if (s.is_device) finish_on_device(s.postscale, s.dtype, started, options);
  return started;
}

TensorScheduler::Started TensorScheduler::start_allgather(const TensorResponse& response, TensorCall call,
                                                          const CallOptions& options) {
  const std::uint64_t row = elements_of_row(response.signature);
  const Dtype dtype = response.signature.dtype;
  const std::vector<std::uint64_t> counts = elements_of(response.rows, row);
  Started started;
  allocate(response, call, response.rows, sum_of(counts) * size_of(dtype), started);
  started.work = data_.iallgatherv(call.input, call.output, counts, {}, dtype, options);
  return started;
}

TensorScheduler::Started TensorScheduler::start_alltoall(const Ready& tensor, TensorCall call,
                                                         const CallOptions& options) {
  const std::uint64_t row = elements_of_row(tensor.response.signature);
  const Dtype dtype = tensor.response.signature.dtype;
  const std::vector<std::uint64_t> sent = elements_of(tensor.entry->sent_rows, row);
  const std::vector<std::uint64_t> received = elements_of(tensor.received_rows, row);
  Started started;
  allocate(tensor.response, call, tensor.received_rows, sum_of(received) * size_of(dtype), started);
  started.work = data_.ialltoallv(call.input, sent, {}, call.output, received, {}, dtype, options);
  return started;
}

TensorScheduler::Started TensorScheduler::start_reduce_scatter(const TensorResponse& response,
                                                               TensorCall call, const CallOptions& options) {
  const TensorSignature& s = response.signature;
  const std::uint64_t row = elements_of_row(s);
  std::vector<std::uint64_t> counts;
  for (std::uint32_t other = 0; other < size_; ++other)
    counts.push_back(rows_of_rank(s.shape[0], other, size_) * row);
  const std::uint64_t own = rows_of_rank(s.shape[0], rank_, size_);
  Started started;
  allocate(response, call, std::span(&own, 1), counts[rank_] * size_of(s.dtype), started);
  started.output = call.output;
  started.output_count = counts[rank_];
  if (s.prescale != 1 && !s.is_device) {
    started.scaled_input = buffers_.take(element_count(s) * size_of(s.dtype));
    scale_by(s.prescale, s.dtype, started.scaled_input->data(), call.input, element_count(s));
    call.input = started.scaled_input->data();
  }
  started.work = data_.ireduce_scatterv(call.input, call.output, counts, s.dtype, s.op, options);
  // Sums and averages may be scaled afterwards; no memory for scaled inputs is at hand there.
  if (s.is_device) finish_on_device(s.prescale * s.postscale, s.dtype, started, options);
  return started;
}

}  // namespace tutti
