// Reducing, scaling and copying device memory: our kernels, put on a stream.
// Knows no collective. What is computed is defined in runtime/base/ops.hpp, and equals
// runtime/kernels/kernels.hpp bit for bit (NaN payloads of f32 and f64 sums aside).
//
// Common rules: the calling thread is in the context of the stream; pointers are memory that its device can
// reach (its own, a peer's that is mapped, or pinned host memory) and need no alignment, though vectors that
// are not aligned to their elements are slow. `dst` may be identical to any source; other overlap is not allowed. Calls
// put work on the stream and return: nothing is waited for.
#pragma once

#include <cstddef>
#include <span>

#include "backends/cuda/driver.hpp"
#include "runtime/base/ops.hpp"
#include "runtime/base/status.hpp"
#include "runtime/base/types.hpp"

namespace tutti::cuda {

// Sources of one pass.
inline constexpr std::size_t kMaxReduceSources = 32;

// dst[i] = ((s0[i] op s1[i]) op s2[i]) ...; one source is copied. avg and premul_sum are sums here, as in
// select_kernel(). invalid_argument for an op that is not legal on the dtype, no source or more than
// kMaxReduceSources; unsupported for a user-defined op.
Status reduce(void* dst, std::span<const void* const> sources, std::size_t count, Dtype dtype,
              const ReduceOp& op, CUstream stream);

// The rest of avg (divides the sum by `group_size`, at least 1) and premul_sum (multiplies an input); for no
// other op.
Status scale(void* dst, const void* src, std::size_t count, Dtype dtype, const ReduceOp& op, int group_size,
             CUstream stream);

// Loads the kernels for the device of the current context, so that the first call need not. Any number of
// times.
Status load_kernels();

}  // namespace tutti::cuda
