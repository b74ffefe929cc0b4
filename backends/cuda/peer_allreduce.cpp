// Puts the kernels of one shot and two shots on streams, in the order of the group's calls.
// Knows what the kernels need; what they do is in peer_bodies.hpp.
#include "backends/cuda/peer_allreduce.hpp"

#include <algorithm>
#include <atomic>
#include <string>
#include <utility>

#include "backends/cuda/kernels.hpp"
#include "backends/cuda/memory.hpp"

namespace tutti::cuda {

static_assert(kMaxPeers == kMostPeers, "the kernels are compiled without the headers of runtime/base");

Result<std::unique_ptr<PeerAllreduce>> PeerAllreduce::create(GroupServices& services, int device,
                                                             std::size_t staging_bytes) {
  // Sizes are equal on all ranks: staging is there for processes, which only the introduction tells apart.
  Result<PeerAreas> areas =
      PeerAreas::create(services, device, kMostOneShotBytes / sizeof(std::uint32_t), staging_bytes);
  if (!areas) return areas.status();
  const Result<ContextScope> context = ContextScope::enter(device);
  if (!context) return context.status();
  const Driver& table = **driver();
  const Result<const DeviceKernels*> kernels = current_kernels(table);
  if (!kernels) return kernels.status();
  void* word = nullptr;
  TUTTI_RETURN_IF_CUDA_ERROR(table,
                             table.cuMemHostAlloc(&word, sizeof(std::uint32_t),
                                                  CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP),
                             "cuMemHostAlloc");
  auto* abort_word = new (word) std::uint32_t(0);
  return std::unique_ptr<PeerAllreduce>(
      new PeerAllreduce(services, device, *std::move(areas), table, **kernels, staging_bytes, abort_word));
}

PeerAllreduce::PeerAllreduce(GroupServices& services, int device, PeerAreas areas, const Driver& table,
                             const DeviceKernels& kernels, std::size_t staging_bytes,
                             std::uint32_t* abort_word)
    : services_(services),
      device_(device),
      staging_bytes_(staging_bytes),
      areas_(std::move(areas)),
      table_(table),
      kernels_(kernels),
      abort_word_(abort_word),
      events_(device) {}

PeerAllreduce::~PeerAllreduce() {
  const Result<ContextScope> context = ContextScope::enter(device_);
  if (const Event& last = order_.last()) {
    // Peers may be in the last call still; who waits for a rank that is gone is told to give up.
    Status done = last.wait(Clock::now() + services_.timeout());
    if (done.code() == StatusCode::timeout) {
      abort();
      done = last.wait(Clock::now() + std::chrono::seconds(1));
    }
    if (!done) {
      areas_.abandon();  // and the word with them
      return;
    }
  }
  if (context) table_.cuMemFreeHost(abort_word_);
}

void PeerAllreduce::abort() { std::atomic_ref(*abort_word_).store(1, std::memory_order_release); }

Result<PeerKernel> PeerAllreduce::find_kernel(std::size_t count, Dtype dtype, const ReduceOp& op,
                                              Shots shots) const {
  TUTTI_RETURN_IF_ERROR(check_op(op, dtype));
  if (op.op == Op::user) return unsupported("a user-defined op is a function of the host");
  if (!is_scalar(dtype))
    return unsupported(std::string("the host alone reduces ") + std::string(to_string(dtype)));
  if (shots == Shots::one && count > kMostOneShotBytes / size_of(dtype)) {
    return unsupported("one shot carries at most " + std::to_string(kMostOneShotBytes) + " bytes, not " +
                       std::to_string(count * size_of(dtype)));
  }
  const KernelRow& row = shots == Shots::one ? kernels_.one_shot : kernels_.two_shot;
  PeerKernel kernel;
  kernel.function = row[kind_of(dtype)];
  kernel.rule = fold_rule(op.op, dtype);
  kernel.is_average = op.op == Op::avg;
  if (kernel.is_average) kernel.average = scale_rule(op, dtype, static_cast<int>(services_.size()));
  kernel.shots = shots;
  kernel.dtype = dtype;
  return kernel;
}

Status PeerAllreduce::launch(CUfunction function, PeerArguments& arguments, std::uint64_t tasks,
                             CUstream stream) {
  if (++epoch_ == 0) ++epoch_;  // areas begin as zeros
  arguments.epoch = epoch_;
  const auto blocks = static_cast<unsigned>(
      std::clamp<std::uint64_t>((tasks + kThreads - 1) / kThreads, 1, areas_.most_blocks()));
  void* parameters[] = {&arguments};
  return to_status(
      table_, table_.cuLaunchKernel(function, blocks, 1, 1, kThreads, 1, 1, 0, stream, parameters, nullptr),
      "cuLaunchKernel");
}

Status PeerAllreduce::start(const PeerKernel& kernel, void* dst, const void* src, std::size_t count,
                            const ReduceOp& op, CUstream stream) {
  if (count == 0) return {};
  const Result<ContextScope> context = ContextScope::enter(device_);
  if (!context) return context.status();
  TUTTI_RETURN_IF_ERROR(order_.begin(stream));
  if (op.op == Op::premul_sum) {
    TUTTI_RETURN_IF_ERROR(scale(dst, src, count, kernel.dtype, op, 1, stream));
    src = dst;
  }
  const std::size_t element_bytes = size_of(kernel.dtype);
  const std::size_t size_bytes = count * element_bytes;
  PeerArguments arguments{};
  arguments.rule = kernel.rule;
  arguments.is_average = kernel.is_average ? 1 : 0;
  arguments.average = kernel.average;
  arguments.rank = services_.rank();
  arguments.size = services_.size();
  arguments.word_capacity = kMostOneShotBytes / sizeof(std::uint32_t);
  arguments.staging_offset = areas_.staging_offset();
  arguments.abort = abort_word_;
  for (std::uint32_t k = 0; k < services_.size(); ++k) arguments.areas[k] = areas_.at(k);
  arguments.count = count;
  arguments.input = src;
  arguments.output = dst;
  if (kernel.shots == Shots::one) {
    TUTTI_RETURN_IF_ERROR(launch(kernel.function, arguments, (size_bytes + 7) / 8, stream));
  } else if (areas_.is_one_process()) {
    TUTTI_RETURN_IF_ERROR(
        launch(kernel.function, arguments, size_bytes / services_.size() / kChunkBytes + 1, stream));
  } else {
    arguments.is_staged = 1;
    auto* staging = reinterpret_cast<std::byte*>(areas_.at(services_.rank())) + areas_.staging_offset();
    for (std::size_t done = 0; done < size_bytes; done += staging_bytes_) {
      const std::size_t piece_bytes = std::min(size_bytes - done, staging_bytes_);
      arguments.count = piece_bytes / element_bytes;
      TUTTI_RETURN_IF_ERROR(
          copy_async(staging, static_cast<const std::byte*>(src) + done, piece_bytes, stream));
      TUTTI_RETURN_IF_ERROR(
          launch(kernel.function, arguments, piece_bytes / services_.size() / kChunkBytes + 1, stream));
      TUTTI_RETURN_IF_ERROR(copy_async(static_cast<std::byte*>(dst) + done, staging, piece_bytes, stream));
    }
  }
  return order_.end(stream);
}

}  // namespace tutti::cuda
