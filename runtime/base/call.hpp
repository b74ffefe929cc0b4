// One collective call as its caller describes it: what, on which memory, with which counts.
// Knows no algorithm, no group and no transport.
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
//   reduce_scatter, scatter                      what one rank receives; the full vector has size() * count
//   alltoall                                     one block; each buffer has size() * count
//   barrier                                      0
//   send_recv                                    the message
// With `counts` (v-variants) block b has counts[b] elements, starts at displacements[b] (or right behind
// block b-1 where no displacements are given) and `count` is unused. alltoallv has its own counts for each
// side; `counts` is the input's. In place means that input is the same memory as the output: its own block of
// the output for allgather and gather, the whole vector (of which output is this rank's block) for
// reduce_scatter and scatter at the root. `counts` and `displacements` must stay valid only until the call
// has been submitted.
struct Call {
  Collective collective = Collective::allreduce;
  Dtype dtype = Dtype::f32;
  ReduceOp op;
  std::uint32_t root = 0;  // rooted collectives: the root; send_recv: the peer, or kFromAnyRank
  std::uint32_t tag = 0;   // send_recv: messages of one pair and tag match in order
  bool in_place = false;
  bool is_send = false;  // send_recv: which half of it
  const void* input = nullptr;
  void* output = nullptr;
  std::uint64_t count = 0;
  std::span<const std::uint64_t> counts;
  std::span<const std::uint64_t> displacements;
  std::span<const std::uint64_t> output_counts;         // alltoallv only
  std::span<const std::uint64_t> output_displacements;  // alltoallv only
  // gather, scatter: the root alone has `counts`; `count` is the own block's. On all ranks alike.
  bool has_counts_at_root = false;
  // Where the buffers lie that this rank has: in the memory of a GPU, or of the host. A call on a GPU's
  // memory is ordered behind what `stream` (a CUstream; null: the default one) holds, and before what comes
  // after it.
  bool is_device = false;
  int device = -1;  // its CUDA ordinal
  void* stream = nullptr;
};

// How long an element is.
inline std::size_t element_bytes(const Call& call) {
  return call.dtype == Dtype::opaque ? call.op.user.element_bytes : size_of(call.dtype);
}

// May blocks have different lengths?
inline bool has_uneven_blocks(const Call& call) { return !call.counts.empty() || call.has_counts_at_root; }

// Has this rank what only the root has? Everybody has it where there is no root.
inline bool is_root(const Call& call, std::uint32_t rank) {
  return !is_rooted(call.collective) || call.root == rank;
}

// Where a rank's block lies in the whole vector, in elements.
std::uint64_t block_offset(const Call& call, std::uint32_t rank);

// Bytes of the full vector, as rules and benchmarks count them.
std::uint64_t full_vector_bytes(const Call& call, std::uint32_t size);

// A buffer of a call, from its pointer on.
struct Extent {
  bool is_used = false;                // this rank has the buffer
  std::optional<std::uint64_t> count;  // elements; nullopt: more than there can be
  std::optional<std::uint64_t> bytes(std::size_t element_bytes) const;
};
// Of a call as its caller describes it. Broadcast has one buffer, taken as the output, and is normalised to
// have it as both.
Extent input_extent(const Call& call, std::uint32_t rank, std::uint32_t size);
Extent output_extent(const Call& call, std::uint32_t rank, std::uint32_t size);

// "allreduce of 1024 f32, sum"
std::string describe_call(const Call& call);

}  // namespace tutti
