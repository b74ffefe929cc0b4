// Data types, reduction operations, collectives and error codes of the public interface. Knows nothing else
// of tutti.
#pragma once

#include <cstdint>

namespace tutti {

enum class Dtype : std::uint8_t {
  i8,
  u8,
  i16,
  u16,
  i32,
  u32,
  i64,
  u64,
  f16,
  bf16,
  f32,
  f64,
  f8e4m3,
  f8e5m2,
  boolean,
  c64,   // complex numbers of two f32
  c128,  // of two f64
  // A value and an index, for Op::minloc and Op::maxloc, laid out as ValueIndex<value, index> of element.hpp.
  f32_i32,
  f64_i32,
  i32_i32,
  i64_i32,
  f64_i64,
  i64_i64,
  opaque  // elements of any size, which only a user-defined op reads; see Reduction::user
};
inline constexpr int kDtypeCount = 24;

enum class Op : std::uint8_t {
  sum,
  prod,
  min,
  max,
  avg,
  band,
  bor,
  bxor,
  land,
  lor,
  premul_sum,
  user,
  lxor,
  minloc,  // the pair with the least value; of equal values the one with the least index
  maxloc   // the pair with the greatest value; of equal values the one with the least index
};
inline constexpr int kOpCount = 15;

enum class Collective : std::uint8_t {
  allreduce,
  broadcast,
  reduce,
  allgather,
  reduce_scatter,
  alltoall,
  gather,
  scatter,
  barrier,
  scan,
  exscan,
  send_recv,
};
inline constexpr int kCollectiveCount = 12;
// The v-variants (allgatherv, reduce_scatterv, gatherv, scatterv, alltoallv) are the same collectives with
// another chunk map.

// Where the buffers of a call lie. `detect`: found out by tutti, which takes some time only where CUDA is in
// use. A program that knows can state it. In a call on GPUs a rank without buffers (with counts of 0, say)
// must state it.
enum class Memory : std::uint8_t { detect, host, device };

// The kind of an error, to act on. The message gives the details.
enum class StatusCode : std::uint8_t {
  ok = 0,
  invalid_argument,    // the caller's mistake: argument, variable or file; nothing was changed
  unsupported,         // legal elsewhere, not for this build, transport, dtype or group
  mismatch,            // ranks of one group made different calls
  timeout,             // a deadline passed; the message names who is missing
  peer_failed,         // a peer died or its connection broke
  refused,             // a peer or process without the right secret, build or contract
  resource_exhausted,  // memory, descriptors or a limit; the message names the limit
  aborted,             // the group was aborted here or by another rank
  internal,            // a broken invariant of tutti itself
};

}  // namespace tutti
