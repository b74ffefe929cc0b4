// The kernels of backends/cuda, compiled for the host: the very bodies, with one thread in every block.
#include "tests/support/cuda_stand_in/host_kernels.hpp"

#include <cstring>

#include "backends/cuda/kernel_bodies.hpp"
#include "backends/cuda/peer_bodies.hpp"

namespace cuda_stand_in {
namespace {

using namespace tutti::cuda;

template <class Element>
void reduce_blocks(const void* parameters, unsigned blocks) {
  ReduceArguments arguments;
  std::memcpy(&arguments, parameters, sizeof arguments);
  for (unsigned block = 0; block < blocks; ++block) reduce_body<Element>(arguments, Thread{block, blocks});
}

template <class Element>
void scale_blocks(const void* parameters, unsigned blocks) {
  ScaleArguments arguments;
  std::memcpy(&arguments, parameters, sizeof arguments);
  for (unsigned block = 0; block < blocks; ++block) scale_body<Element>(arguments, Thread{block, blocks});
}

template <class Element>
void one_shot_blocks(const void* parameters, unsigned blocks) {
  PeerArguments arguments;
  std::memcpy(&arguments, parameters, sizeof arguments);
  for (unsigned block = 0; block < blocks; ++block) {
    one_shot_body<Element>(arguments, PeerThread{block, blocks, 0, 1});
  }
}

template <class Element>
void two_shot_blocks(const void* parameters, unsigned blocks) {
  PeerArguments arguments;
  std::memcpy(&arguments, parameters, sizeof arguments);
  for (unsigned block = 0; block < blocks; ++block) {
    PeerVectors vectors;
    two_shot_body<Element>(arguments, PeerThread{block, blocks, 0, 1}, vectors);
  }
}

#define STAND_IN_KERNELS(name, Element)                                                     \
  HostKernel{"tutti_reduce_" #name, sizeof(ReduceArguments), reduce_blocks<Element>},       \
      HostKernel{"tutti_scale_" #name, sizeof(ScaleArguments), scale_blocks<Element>},      \
      HostKernel{"tutti_one_shot_" #name, sizeof(PeerArguments), one_shot_blocks<Element>}, \
      HostKernel{"tutti_two_shot_" #name, sizeof(PeerArguments), two_shot_blocks<Element>},
constexpr HostKernel kKernels[] = {TUTTI_DEVICE_ELEMENTS(STAND_IN_KERNELS)};

}  // namespace

const HostKernel* find_host_kernel(std::string_view name) {
  for (const HostKernel& kernel : kKernels) {
    if (kernel.name == name) return &kernel;
  }
  return nullptr;
}

}  // namespace cuda_stand_in
