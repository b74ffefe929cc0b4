// One call, as the calls of NCCL that carry it out.
// Knows no works; puts calls on the stream in order.
#pragma once

#include <cuda.h>

#include "backends/nccl/communicator.hpp"
#include "backends/nccl/mapping.hpp"
#include "runtime/base/call.hpp"

namespace tutti::nccl {

// Puts a call that check_call() found good on its stream. `reduction` is its reduction_of(); `scratch` is
// device memory of scratch_bytes().
// Collective as the call is. The calling thread is in the device's context.
Status issue(Communicator& communicator, const Call& call, const NcclReduction& reduction, void* scratch);

// Device memory that a call needs besides its buffers: for alltoall in place, which NCCL does not do, and for
// the element that a barrier sends round.
std::size_t scratch_bytes(const Call& call, std::uint32_t rank, std::uint32_t size);

}  // namespace tutti::nccl
