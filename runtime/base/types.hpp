// The vocabulary that every layer shares: data types, reduction operations and collectives, with their names.
// Knows no kernel, no algorithm and no transport; ops.hpp defines each op on each dtype.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "tutti/types.hpp"

namespace tutti {

inline constexpr std::array<std::string_view, kDtypeCount> kDtypeNames = {
    "i8",   "u8",      "i16",     "u16",     "i32",     "u32",     "i64",     "u64",
    "f16",  "bf16",    "f32",     "f64",     "f8e4m3",  "f8e5m2",  "bool",    "c64",
    "c128", "f32_i32", "f64_i32", "i32_i32", "i64_i32", "f64_i64", "i64_i64", "opaque"};
// 0: opaque, whose elements are as long as the call says (element_bytes() of call.hpp).
inline constexpr std::array<std::size_t, kDtypeCount> kDtypeBytes = {1, 1, 2, 2, 4,  4, 8,  8, 2,  2,  4,  8,
                                                                     1, 1, 1, 8, 16, 8, 16, 8, 16, 16, 16, 0};
inline constexpr std::array<std::string_view, kOpCount> kOpNames = {
    "sum",  "prod", "min",        "max",  "avg",  "band",   "bor",   "bxor",
    "land", "lor",  "premul_sum", "user", "lxor", "minloc", "maxloc"};
inline constexpr std::array<std::string_view, kCollectiveCount> kCollectiveNames = {
    "allreduce", "broadcast", "reduce",  "allgather", "reduce_scatter", "alltoall",
    "gather",    "scatter",   "barrier", "scan",      "exscan",         "send_recv"};

constexpr std::string_view to_string(Dtype d) { return kDtypeNames[static_cast<std::size_t>(d)]; }
constexpr std::string_view to_string(Op op) { return kOpNames[static_cast<std::size_t>(op)]; }
constexpr std::string_view to_string(Collective c) { return kCollectiveNames[static_cast<std::size_t>(c)]; }
constexpr std::size_t size_of(Dtype d) { return kDtypeBytes[static_cast<std::size_t>(d)]; }

// Exact lower-case names as above; nullopt for anything else. (Synonyms such as "float32" belong to the
// tools.)
std::optional<Dtype> parse_dtype(std::string_view name);
std::optional<Op> parse_op(std::string_view name);
std::optional<Collective> parse_collective(std::string_view name);

// Whether the collective combines values (and so needs an op); whether it has a root.
constexpr bool is_reducing(Collective c) {
  return c == Collective::allreduce || c == Collective::reduce || c == Collective::reduce_scatter ||
         c == Collective::scan || c == Collective::exscan;
}
// Whether the vector is made of one block per rank, instead of being whole on every rank.
constexpr bool has_rank_blocks(Collective c) {
  return c == Collective::allgather || c == Collective::gather || c == Collective::reduce_scatter ||
         c == Collective::scatter || c == Collective::alltoall;
}
constexpr bool is_rooted(Collective c) {
  return c == Collective::broadcast || c == Collective::reduce || c == Collective::gather ||
         c == Collective::scatter;
}
// Whether no rank can end before every other one has begun.
constexpr bool waits_for_all(Collective c) {
  return c == Collective::allreduce || c == Collective::reduce_scatter || c == Collective::allgather ||
         c == Collective::alltoall || c == Collective::barrier;
}

}  // namespace tutti
