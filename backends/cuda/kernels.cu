// The kernels of the device: one for every kind of element, around the bodies of kernel_bodies.hpp.
// Compiled by nvcc alone (compile_kernels.py); kernels.cpp finds them by name.
#include "backends/cuda/kernel_bodies.hpp"
#include "backends/cuda/peer_bodies.hpp"

namespace tutti::cuda {

__device__ __forceinline__ PeerThread this_peer_thread() {
  return {blockIdx.x, gridDim.x, threadIdx.x, blockDim.x};
}

__device__ __forceinline__ Thread this_thread() {
  return {uint64_t{blockIdx.x} * blockDim.x + threadIdx.x, uint64_t{gridDim.x} * blockDim.x};
}

#define TUTTI_KERNELS_OF(name, Element)                                        \
  extern "C" __global__ void __launch_bounds__(kThreads)                       \
      tutti_reduce_##name(const __grid_constant__ ReduceArguments arguments) { \
    reduce_body<Element>(arguments, this_thread());                            \
  }                                                                            \
  extern "C" __global__ void __launch_bounds__(kThreads)                       \
      tutti_scale_##name(const __grid_constant__ ScaleArguments arguments) {   \
    scale_body<Element>(arguments, this_thread());                             \
  }                                                                            \
  extern "C" __global__ void __launch_bounds__(kThreads)                       \
      tutti_one_shot_##name(const __grid_constant__ PeerArguments arguments) { \
    one_shot_body<Element>(arguments, this_peer_thread());                     \
  }                                                                            \
  extern "C" __global__ void __launch_bounds__(kThreads, 4)                    \
      tutti_two_shot_##name(const __grid_constant__ PeerArguments arguments) { \
    __shared__ PeerVectors vectors;                                            \
    two_shot_body<Element>(arguments, this_peer_thread(), vectors);            \
  }
TUTTI_DEVICE_ELEMENTS(TUTTI_KERNELS_OF)

}  // namespace tutti::cuda
