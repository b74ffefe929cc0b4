// Can this nvcc, with the host compiler that it finds, compile what kernels.cu needs? Asked when the build is
// configured.
#include <stdint.h>

template <class Use>
__host__ __device__ __forceinline__ void use_twice(Use use) {
  use.template operator()<1>();
  use.template operator()<2>();
}

extern "C" __global__ void tutti_probe(const __grid_constant__ uint64_t value) {
  __shared__ uint64_t sum;
  use_twice([&]<int i>() { sum += value * i; });
}
