// A compression library: blocks of 8 numbers, each rounded to a byte; the residual goes into the next call.
#include <cmath>
#include <cstddef>

#pragma GCC visibility push(default)
extern "C" {

int rounding_quant(void* src, void* dst, std::size_t count, void* diff, int src_dtype, std::size_t ratio,
                   int method) {
  if (src_dtype != 2 || ratio != 4 || method != 1) return 1;
  const float* const values = static_cast<float*>(src);
  float* const residual = static_cast<float*>(diff);
  signed char* const bytes = static_cast<signed char*>(dst);
  for (std::size_t i = 0; i < count; ++i) {
    const float wanted = values[i] + residual[i];
    bytes[i] = static_cast<signed char>(std::lround(wanted));
    residual[i] = wanted - static_cast<float>(bytes[i]);
  }
  return 0;
}

int rounding_dequant(void* src, void* dst, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i)
    static_cast<float*>(dst)[i] = static_cast<float>(static_cast<signed char*>(src)[i]);
  return 0;
}

int rounding_sum(const void* in, void* inout, std::size_t block_count) {
  for (std::size_t i = 0; i < block_count * 8; ++i)
    static_cast<signed char*>(inout)[i] = static_cast<signed char>(static_cast<signed char*>(inout)[i] +
                                                                   static_cast<const signed char*>(in)[i]);
  return 0;
}
}
#pragma GCC visibility pop
