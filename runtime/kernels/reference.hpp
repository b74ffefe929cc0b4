// The scalar reference of the reduction kernels: plain loops, written to be read rather than to be fast.
// Knows no vectors and shares no code with the kernels, so that comparing the two is a real test.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/base/ops.hpp"

namespace tutti {

// reduce() and scale() of kernels.hpp, element by element, with the same rules for aliasing.
void reduce_reference(const ReduceOp& op, Dtype dtype, void* dst, std::span<const void* const> sources,
                      std::size_t count);
void scale_reference(const ReduceOp& op, int group_size, Dtype dtype, void* dst, const void* src,
                     std::size_t count);

// The value of one f16, bf16, f8e4m3 or f8e5m2 code, which is exact in f32; and the code nearest to a value
// (ties to even; overflow, NaN and zeros as in ops.hpp). Tools and tests use them to make and print such
// values.
float decode_narrow(Dtype dtype, std::uint16_t code);
std::uint16_t encode_narrow(Dtype dtype, float value);

}  // namespace tutti
