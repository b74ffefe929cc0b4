// Chooses a kernel, cuts the vector into what it can take 16 bytes at a time, and launches it.
// Knows how a vector is cut; the kernels' bodies are kernel_bodies.hpp.
#include "backends/cuda/kernels.hpp"

#include <algorithm>
#include <cstdint>
#include <string>

#include "backends/cuda/kernel_bodies.hpp"
#include "backends/cuda/kernel_table.hpp"
#include "backends/cuda/memory.hpp"

namespace tutti::cuda {

namespace {

static_assert(kMaxReduceSources == kMaxSources);

bool is_at_chunk(const void* pointer, std::uint64_t head_bytes) {
  return (reinterpret_cast<std::uintptr_t>(pointer) + head_bytes) % kChunkBytes == 0;
}

// The source k lies at chunks where bit k of `aligned` is set.
Cut cut_of(const void* dst, std::span<const void* const> sources, std::uint64_t count,
           std::size_t element_bytes, std::uint32_t& aligned) {
  Cut cut{count, 0, 0};
  aligned = 0;
  const auto address = reinterpret_cast<std::uintptr_t>(dst);
  if (address % element_bytes != 0) return cut;  // element by element
  const std::uint64_t per_chunk = kChunkBytes / element_bytes;
  cut.head =
      std::min<std::uint64_t>(count, (kChunkBytes - address % kChunkBytes) % kChunkBytes / element_bytes);
  cut.chunks = (count - cut.head) / per_chunk;
  for (std::size_t k = 0; k < sources.size(); ++k) {
    if (is_at_chunk(sources[k], cut.head * element_bytes)) aligned |= 1U << k;
  }
  // A source that is shifted into place is read up to three bytes past its last chunk.
  const bool is_any_shifted = aligned != ~0U >> (32 - sources.size());
  const std::uint64_t left_bytes = (count - cut.head - cut.chunks * per_chunk) * element_bytes;
  if (is_any_shifted && cut.chunks > 0 && left_bytes < 4) --cut.chunks;
  return cut;
}

template <class Arguments>
Status launch(const Driver& table, CUfunction function, Arguments& arguments, std::size_t element_bytes,
              std::uint64_t most_blocks, CUstream stream) {
  const Cut& cut = arguments.cut;
  const std::uint64_t singles = cut.count - cut.chunks * (kChunkBytes / element_bytes);
  const std::uint64_t tasks = std::max(cut.chunks, singles);
  const auto blocks =
      static_cast<unsigned>(std::clamp<std::uint64_t>((tasks + kThreads - 1) / kThreads, 1, most_blocks));
  void* parameters[] = {&arguments};
  return to_status(
      table, table.cuLaunchKernel(function, blocks, 1, 1, kThreads, 1, 1, 0, stream, parameters, nullptr),
      "cuLaunchKernel");
}

}  // namespace

Status load_kernels() {
  const Result<const Driver*> table = driver();
  if (!table) return table.status();
  return current_kernels(**table).status();
}

Status reduce(void* dst, std::span<const void* const> sources, std::size_t count, Dtype dtype,
              const ReduceOp& op, CUstream stream) {
  TUTTI_RETURN_IF_ERROR(check_op(op, dtype));
  if (op.op == Op::user)
    return unsupported("a user-defined op is a function of the host; it cannot reduce device memory");
  if (!is_scalar(dtype)) return unsupported("the host alone reduces " + std::string(to_string(dtype)));
  if (sources.empty() || sources.size() > kMaxReduceSources) {
    return invalid_argument("a reduction on a device takes 1 to " + std::to_string(kMaxReduceSources) +
                            " sources, not " + std::to_string(sources.size()));
  }
  if (sources.size() == 1) return copy_async(dst, sources[0], count * size_of(dtype), stream);
  if (count == 0) return {};
  const Result<const Driver*> table = driver();
  if (!table) return table.status();
  const Result<const DeviceKernels*> kernels = current_kernels(**table);
  if (!kernels) return kernels.status();
  ReduceArguments arguments{};
  arguments.cut = cut_of(dst, sources, count, size_of(dtype), arguments.aligned_sources);
  arguments.rule = fold_rule(op.op, dtype);
  arguments.source_count = static_cast<std::uint32_t>(sources.size());
  arguments.dst = dst;
  std::copy(sources.begin(), sources.end(), arguments.sources);
  return launch(**table, (*kernels)->reduce[kind_of(dtype)], arguments, size_of(dtype),
                (*kernels)->most_blocks, stream);
}

Status scale(void* dst, const void* src, std::size_t count, Dtype dtype, const ReduceOp& op, int group_size,
             CUstream stream) {
  TUTTI_RETURN_IF_ERROR(check_op(op, dtype));
  if (op.op != Op::avg && op.op != Op::premul_sum) {
    return invalid_argument("only avg and premul_sum scale, not " + std::string(to_string(op.op)));
  }
  if (!is_scalar(dtype)) return unsupported("the host alone scales " + std::string(to_string(dtype)));
  if (group_size < 1)
    return invalid_argument("a group has at least one rank, not " + std::to_string(group_size));
  if (count == 0) return {};
  const Result<const Driver*> table = driver();
  if (!table) return table.status();
  const Result<const DeviceKernels*> kernels = current_kernels(**table);
  if (!kernels) return kernels.status();
  ScaleArguments arguments{};
  arguments.cut = cut_of(dst, {&src, 1}, count, size_of(dtype), arguments.is_aligned);
  arguments.rule = scale_rule(op, dtype, group_size);
  arguments.dst = dst;
  arguments.src = src;
  return launch(**table, (*kernels)->scale[kind_of(dtype)], arguments, size_of(dtype),
                (*kernels)->most_blocks, stream);
}

}  // namespace tutti::cuda
