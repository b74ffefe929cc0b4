// The memory that a call's buffers take, and a description of a call.
#include "runtime/base/call.hpp"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

namespace tutti {
namespace {

std::optional<std::uint64_t> add(std::uint64_t a, std::uint64_t b) {
  std::uint64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) return std::nullopt;
  return sum;
}

std::optional<std::uint64_t> multiply(std::uint64_t a, std::uint64_t b) {
  std::uint64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

// One past the last element of listed blocks.
std::optional<std::uint64_t> span_of(std::span<const std::uint64_t> counts,
                                     std::span<const std::uint64_t> displacements) {
  std::uint64_t end = 0, next = 0;
  for (std::size_t block = 0; block < counts.size(); ++block) {
    const auto block_end = add(displacements.empty() ? next : displacements[block], counts[block]);
    if (!block_end) return std::nullopt;
    next = *block_end;
    if (counts[block] > 0) end = std::max(end, next);
  }
  return end;
}

// The whole vector of collectives with a block per rank.
std::optional<std::uint64_t> full_count(const Call& call, std::uint32_t size) {
  return call.counts.empty() ? multiply(call.count, size) : span_of(call.counts, call.displacements);
}

std::uint64_t own_count(const Call& call, std::uint32_t rank) {
  return call.counts.empty() ? call.count : call.counts[rank];
}

}  // namespace

std::uint64_t block_offset(const Call& call, std::uint32_t rank) {
  if (call.counts.empty()) return call.count * rank;
  if (!call.displacements.empty()) return call.displacements[rank];
  return std::accumulate(call.counts.begin(), call.counts.begin() + rank, std::uint64_t{0});
}

std::uint64_t full_vector_bytes(const Call& call, std::uint32_t size) {
  std::uint64_t count = has_rank_blocks(call.collective) ? call.count * size : call.count;
  if (!call.counts.empty()) count = std::accumulate(call.counts.begin(), call.counts.end(), std::uint64_t{0});
  return count * element_bytes(call);
}

std::optional<std::uint64_t> Extent::bytes(std::size_t element_bytes) const {
  return count ? multiply(*count, element_bytes) : std::nullopt;
}

Extent input_extent(const Call& call, std::uint32_t rank, std::uint32_t size) {
  switch (call.collective) {
    case Collective::allgather:
    case Collective::gather:
      return {true, own_count(call, rank)};
    case Collective::reduce_scatter:
    case Collective::alltoall:
      return {true, full_count(call, size)};
    case Collective::scatter:
      return {is_root(call, rank), full_count(call, size)};
    case Collective::barrier:
    case Collective::broadcast:
      return {};  // broadcast: one buffer, taken as the output
    case Collective::send_recv:
      return {call.is_send, call.count};
    default:
      return {true, call.count};
  }
}

Extent output_extent(const Call& call, std::uint32_t rank, std::uint32_t size) {
  switch (call.collective) {
    case Collective::reduce:
      return {is_root(call, rank), call.count};
    case Collective::allgather:
      return {true, full_count(call, size)};
    case Collective::gather:
      return {is_root(call, rank), full_count(call, size)};
    case Collective::reduce_scatter:
    case Collective::scatter:
      return {true, own_count(call, rank)};
    case Collective::alltoall:
      return {true, call.output_counts.empty() ? full_count(call, size)
                                               : span_of(call.output_counts, call.output_displacements)};
    case Collective::barrier:
      return {};
    case Collective::send_recv:
      return {!call.is_send, call.count};
    default:
      return {true, call.count};
  }
}

bool has_wire_form(const Call& call) {
  const bool adds = call.op.op == Op::sum || call.op.op == Op::avg || call.op.op == Op::premul_sum;
  const bool is_offered = call.collective == Collective::allreduce || call.collective == Collective::reduce ||
                          call.collective == Collective::reduce_scatter;
  return is_offered && adds && call.dtype == Dtype::f32;
}

std::string describe_call(const Call& call) {
  if (call.collective == Collective::barrier) return "barrier";
  if (call.has_counts_at_root) {
    return fmt::format("{} of {} with counts at the root, root {}", to_string(call.collective),
                       to_string(call.dtype), call.root);
  }
  std::uint64_t count = call.count;
  for (std::uint64_t c : call.counts) count += c;
  std::string text = fmt::format("{} of {} {}", to_string(call.collective), count, to_string(call.dtype));
  if (call.dtype == Dtype::opaque && call.op.user.element_bytes != 0)
    text += fmt::format(" ({} bytes each)", call.op.user.element_bytes);
  if (is_reducing(call.collective)) text += fmt::format(", {}", to_string(call.op.op));
  if (is_rooted(call.collective)) text += fmt::format(", root {}", call.root);
  if (call.collective == Collective::send_recv) {
    text += call.is_send ? " to " : " from ";
    text += call.root == kFromAnyRank ? "any rank" : fmt::format("rank {}", call.root);
    if (call.tag != 0) text += fmt::format(", tag {}", call.tag);
  }
  if (call.wire_dtype && is_narrow_float(*call.wire_dtype))
    text += fmt::format(", {} on the wire", to_string(*call.wire_dtype));
  return text;
}

}  // namespace tutti
