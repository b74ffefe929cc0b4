// The dtypes, operations and collectives that a version of NCCL has, and the reason where it lacks one.
// Knows no communicator and no stream. Depends only on properties of a call that all ranks share, so that all
// ranks decide alike.
#pragma once

#include <cstdint>

#include "backends/nccl/library.hpp"
#include "runtime/base/call.hpp"

namespace tutti::nccl {

// Elements of a reduction. A dtype that NCCL cannot reduce is unsupported, and so is one that it would reduce
// to something else than ops.hpp says (bool: its "or" of a 2 is 2).
Result<ncclDataType_t> reduced_type(Dtype dtype, int version);

// sum, prod, min, max and avg; premul_sum, which is made for each call, is ncclSum here.
Result<ncclRedOp_t> reduce_op(Op op);

// Both, worked out once for calls of one signature; of moves it says nothing.
struct NcclReduction {
  ncclDataType_t type = ncclInt8;
  ncclRedOp_t op = ncclSum;
};

// The scalar of premul_sum as NCCL takes it: one element of the dtype.
struct Scalar {
  alignas(8) unsigned char bytes[8];
};
Scalar scalar_of(const ReduceOp& op, Dtype dtype);

// ok, or why NCCL cannot carry out the call in a group of `size` ranks.
Status check_call(const Call& call, std::uint32_t rank, std::uint32_t size, int version);
// Of a call that check_call() found good.
NcclReduction reduction_of(const Call& call, int version);

}  // namespace tutti::nccl
