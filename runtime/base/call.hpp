// One collective call as its caller describes it: operation, memory and counts. Knows no algorithm, no group
// and no transport.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "runtime/base/ops.hpp"
#include "runtime/base/types.hpp"

namespace tutti {

// The peer of a receive from any source.
inline constexpr std::uint32_t kFromAnyRank = ~0U;

// `count` by collective, in elements:
//   allreduce, reduce, broadcast, scan, exscan   the vector (input and output alike)
//   allgather, gather                            one rank's contribution; the full vector has size() * count
//   reduce_scatter, scatter                      one rank's result; the full vector has size() * count
//   alltoall                                     one block; each buffer has size() * count
//   barrier                                      0
//   send_recv                                    the message
// With `counts` (v-variants) `count` is unused. Block b has counts[b] elements and starts at
// displacements[b]; without displacements it follows block b-1. alltoallv has own counts for each side;
// `counts` is the input's.
// `counts` and `displacements` must stay valid only until the call has been submitted.
// In place: input and output are the same memory. For allgather and gather, input is this rank's block of the
// output. For reduce_scatter, and for scatter at the root, output is this rank's block of the input.
struct Call {
  Collective collective = Collective::allreduce;
  Dtype dtype = Dtype::f32;
  ReduceOp op;
  std::uint32_t root = 0;  // rooted collectives: the root; send_recv: the peer, or kFromAnyRank
  std::uint32_t tag = 0;   // send_recv: messages of one pair and tag match in order
  bool in_place = false;
  bool is_send = false;  // send_recv: true for the send
  const void* input = nullptr;
  void* output = nullptr;
  std::uint64_t count = 0;
  std::span<const std::uint64_t> counts;
  std::span<const std::uint64_t> displacements;
  std::span<const std::uint64_t> output_counts;         // alltoallv only
  std::span<const std::uint64_t> output_displacements;  // alltoallv only
  // gather, scatter: only the root has `counts`; `count` is this rank's. Equal on all ranks.
  bool has_counts_at_root = false;
  // The dtype in which messages may travel; the call's own: in full. Unset: as the group is set.
  std::optional<Dtype> wire_dtype;
  // allreduce: the losses of roundings to it are added here, `count` elements; null: they are forgotten.
  float* residual = nullptr;
  // Where this rank's buffers lie: in the memory of a GPU, or of the host. A call on GPU memory runs in the
  // order of `stream` (a CUstream; null: the default one).
  bool is_device = false;
  int device = -1;  // its CUDA ordinal
  void* stream = nullptr;
};

// Length of an element.
inline std::size_t element_bytes(const Call& call) {
  return call.dtype == Dtype::opaque ? call.op.user.element_bytes : size_of(call.dtype);
}

// Whether blocks may have different lengths.
inline bool has_uneven_blocks(const Call& call) { return !call.counts.empty() || call.has_counts_at_root; }

// Whether this rank has the data of the root; true on all ranks where there is no root.
inline bool is_root(const Call& call, std::uint32_t rank) {
  return !is_rooted(call.collective) || call.root == rank;
}

// Whether its messages may travel in a narrower dtype: sums of f32.
bool has_wire_form(const Call& call);

// Position of a rank's block in the whole vector, in elements.
std::uint64_t block_offset(const Call& call, std::uint32_t rank);

// Bytes of the full vector, as rules and benchmarks count them.
std::uint64_t full_vector_bytes(const Call& call, std::uint32_t size);

// The extent of a buffer of a call, from its pointer on.
struct Extent {
  bool is_used = false;                // this rank has the buffer
  std::optional<std::uint64_t> count;  // elements; nullopt: more than there can be
  std::optional<std::uint64_t> bytes(std::size_t element_bytes) const;
};
// Of a call as its caller describes it. Broadcast has one buffer, the output; normalising makes it the input,
// too.
Extent input_extent(const Call& call, std::uint32_t rank, std::uint32_t size);
Extent output_extent(const Call& call, std::uint32_t rank, std::uint32_t size);

// "allreduce of 1024 f32, sum", ", bf16 on the wire" where the call says so
std::string describe_call(const Call& call);

}  // namespace tutti
