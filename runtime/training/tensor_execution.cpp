// Tensors that are ready on all ranks become operations of the group. See tensor_scheduler.hpp.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "runtime/kernels/kernels.hpp"
#include "runtime/training/tensor_scheduler.hpp"

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

// How many rows of a first dimension a rank gets; the first ranks get one more each.
std::uint64_t rows_of_rank(std::uint64_t rows, std::uint32_t rank, std::uint32_t size) {
  return rows / size + (rank < rows % size ? 1 : 0);
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

void TensorScheduler::execute(std::vector<Ready> ready) {
  std::vector<const TensorResponse*> list;
  list.reserve(ready.size());
  for (const Ready& tensor : ready) list.push_back(&tensor.response);
  for (const FusedOperation& operation : plan_fusion(list, settings_.priority, settings_.fusion)) {
    std::vector<Ready> tensors;
    for (const std::uint32_t index : operation.tensors) tensors.push_back(ready[index]);
    try {
      if (tensors.size() == 1) {
        execute_one(std::move(tensors.front()));
      } else {
        execute_fused(std::move(tensors));
      }
    } catch (const Error& error) {
      for (const std::uint32_t index : operation.tensors) {
        if (!ready[index].entry) continue;
        TensorWork::of(ready[index].entry->work)
            .complete(
                to_status(&error).with_context(fmt::format("tensor \"{}\"", ready[index].response.name)));
      }
    }
  }
}

// Small allreduces, packed into one. A rank that has joined gives zeros.
void TensorScheduler::execute_fused(std::vector<Ready> tensors) {
  const TensorSignature first = tensors.front().response.signature;
  const std::size_t bytes = size_of(first.dtype);
  std::vector<std::uint64_t> offsets{0};
  for (const Ready& tensor : tensors)
    offsets.push_back(offsets.back() + element_count(tensor.response.signature));
  const auto buffer = buffers_.take(offsets.back() * bytes);
  std::byte* const memory = buffer->data();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::uint64_t count = offsets[i + 1] - offsets[i];
    if (tensors[i].entry) {
      scale_by(first.prescale, first.dtype, memory + offsets[i] * bytes, tensors[i].entry->call.input, count);
    } else {
      std::memset(memory + offsets[i] * bytes, 0, count * bytes);
    }
  }
  const Work work = data_.iallreduce(memory, memory, offsets.back(), first.dtype, first.op);
  const auto shared = std::make_shared<const std::vector<Ready>>(std::move(tensors));
  work.on_complete(
      [buffer, offsets, shared, bytes, dtype = first.dtype, postscale = first.postscale](const Error* error) {
        for (std::size_t i = 0; i < shared->size(); ++i) {
          const auto& entry = (*shared)[i].entry;
          if (!entry) continue;
          if (error == nullptr)
            scale_by(postscale, dtype, entry->call.output, buffer->data() + offsets[i] * bytes,
                     offsets[i + 1] - offsets[i]);
          TensorWork::of(entry->work).complete(to_status(error));
        }
      });
}

void TensorScheduler::execute_one(Ready tensor) {
  const TensorSignature& signature = tensor.response.signature;
  TensorCall call = tensor.entry ? tensor.entry->call : TensorCall();
  std::shared_ptr<std::vector<std::byte>> zeros;
  if (!tensor.entry && signature.collective == Collective::allreduce) {
    const std::size_t bytes = element_count(signature) * size_of(signature.dtype);
    zeros = buffers_.take(bytes);
    std::memset(zeros->data(), 0, bytes);
    call.input = call.output = zeros->data();
  }
  CallOptions options;
  options.memory = call.memory;
  options.cuda_stream = call.cuda_stream;
  const Started started = start(tensor.response, call, options);
  // Not the Work: its callback would hold the group, which must not end on a progress thread.
  started.work.on_complete([entry = std::move(tensor.entry), zeros, memory = started.memory,
                            output = started.output, count = started.output_count, dtype = signature.dtype,
                            postscale = signature.postscale](const Error* error) {
    if (!entry) return;
    if (error == nullptr && postscale != 1) scale_by(postscale, dtype, output, output, count);
    TensorWork::of(entry->work).complete(to_status(error));
  });
}

TensorScheduler::Started TensorScheduler::start(const TensorResponse& response, const TensorCall& call,
                                                const CallOptions& options) {
  const TensorSignature& s = response.signature;
  switch (s.collective) {
    case Collective::allreduce:
      return start_reduction(s, call, options);
    case Collective::reduce_scatter:
      return start_reduce_scatter(s, call, options);
    case Collective::allgather:
      return start_allgather(response, call, options);
    case Collective::alltoall:
      return start_alltoall(response, call, options);
    case Collective::broadcast:
      if (static_cast<std::int32_t>(rank_) == s.root)
        scale_by(1, s.dtype, call.output, call.input, element_count(s));
      return {data_.ibroadcast(call.output, element_count(s), s.dtype, s.root, options), nullptr, 0, nullptr};
    default:
      return {data_.ibarrier(options), nullptr, 0, nullptr};
  }
}

TensorScheduler::Started TensorScheduler::start_reduction(const TensorSignature& s, TensorCall call,
                                                          const CallOptions& options) {
  const std::uint64_t count = element_count(s);
  if (s.prescale != 1) {
    scale_by(s.prescale, s.dtype, call.output, call.input, count);
    call.input = call.output;
  }
  return {data_.iallreduce(call.input, call.output, count, s.dtype, s.op, options), call.output, count,
          nullptr};
}

TensorScheduler::Started TensorScheduler::start_allgather(const TensorResponse& response, TensorCall call,
                                                          const CallOptions& options) {
  const std::uint64_t row = elements_of_row(response.signature);
  std::vector<std::uint64_t> counts;
  for (const std::uint64_t rows : response.rows) counts.push_back(rows * row);
  if (call.allocate) call.output = call.allocate(response.rows);
  return {data_.iallgatherv(call.input, call.output, counts, {}, response.signature.dtype, options), nullptr,
          0, nullptr};
}

TensorScheduler::Started TensorScheduler::start_alltoall(const TensorResponse& response, TensorCall call,
                                                         const CallOptions& options) {
  const std::uint64_t row = elements_of_row(response.signature);
  std::vector<std::uint64_t> sent, received, rows;
  for (std::uint32_t other = 0; other < size_; ++other) {
    sent.push_back(response.rows[std::size_t{rank_} * size_ + other] * row);
    rows.push_back(response.rows[std::size_t{other} * size_ + rank_]);
    received.push_back(rows.back() * row);
  }
  if (call.allocate) call.output = call.allocate(rows);
  return {
      data_.ialltoallv(call.input, sent, {}, call.output, received, {}, response.signature.dtype, options),
      nullptr, 0, nullptr};
}

TensorScheduler::Started TensorScheduler::start_reduce_scatter(const TensorSignature& s, TensorCall call,
                                                               const CallOptions& options) {
  const std::uint64_t row = elements_of_row(s);
  std::vector<std::uint64_t> counts;
  for (std::uint32_t other = 0; other < size_; ++other)
    counts.push_back(rows_of_rank(s.shape[0], other, size_) * row);
  const std::uint64_t own = rows_of_rank(s.shape[0], rank_, size_);
  if (call.allocate) call.output = call.allocate(std::span(&own, 1));
  std::shared_ptr<std::vector<std::byte>> scaled;
  if (s.prescale != 1) {
    scaled = buffers_.take(element_count(s) * size_of(s.dtype));
    scale_by(s.prescale, s.dtype, scaled->data(), call.input, element_count(s));
    call.input = scaled->data();
  }
  return {data_.ireduce_scatterv(call.input, call.output, counts, s.dtype, s.op, options), call.output,
          counts[rank_], scaled};
}

}  // namespace tutti
