// The scalar reference of the reduction kernels: plain loops, written to be read rather than to be fast.
// Knows no vectors and shares no code with the kernels, so that a test that compares the two means something.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/base/ops.hpp"

namespace tutti {

// What kernels.hpp promises for reduce() and scale(), element by element, with the same rules for aliasing.
void reduce_reference(const ReduceOp& op, Dtype dtype, void* dst, std::span<const void* const> sources,
                      std::size_t count);
void scale_reference(const ReduceOp& op, int group_size, Dtype dtype, void* dst, const void* src,
                     std::size_t count);

// The value of one f16, bf16, f8e4m3 or f8e5m2 code, which is exact in f32; and the code nearest to a value
// (ties to even; overflow, NaN and zeros as in ops.hpp). Also what tools and tests use to make and print such
// values.
float decode_narrow(Dtype dtype, std::uint16_t code);
std::uint16_t encode_narrow(Dtype dtype, float value);

}  // namespace tutti
