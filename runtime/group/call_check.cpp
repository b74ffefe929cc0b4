// Argument checks. Knows no group.
#include "runtime/group/call_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>

namespace tutti {
namespace {

using Bytes = std::uint64_t;

// Where this rank's block lies in the whole vector, in elements.
std::uint64_t own_offset(const Call& call, std::uint32_t rank) {
  if (call.counts.empty()) return call.count * rank;
  if (!call.displacements.empty()) return call.displacements[rank];
  std::uint64_t offset = 0;
  for (std::uint32_t block = 0; block < rank; ++block) offset += call.counts[block];
  return offset;
}

bool holds_blocks_in_output(Collective c) { return c == Collective::allgather || c == Collective::gather; }
bool holds_blocks_in_input(Collective c) {
  return c == Collective::reduce_scatter || c == Collective::scatter;
}

bool is_in_place(const Call& call, std::uint32_t rank) {
  if (call.collective == Collective::broadcast) return true;
  if (call.collective == Collective::barrier || call.collective == Collective::send_recv) return false;
  // Only the root has both buffers; what the others pass for the missing one means nothing.
  if (call.input == nullptr || call.output == nullptr || !is_root(call, rank)) return false;
  const auto* input = static_cast<const std::byte*>(call.input);
  const auto* output = static_cast<const std::byte*>(call.output);
  const std::size_t offset = own_offset(call, rank) * size_of(call.dtype);
  if (holds_blocks_in_output(call.collective)) return input == output + offset;
  if (holds_blocks_in_input(call.collective)) return output == input + offset;
  return input == output && call.output_counts.empty();
}

Status check_list(std::string_view name, std::string_view what, std::span<const std::uint64_t> list,
                  std::uint32_t size, bool may_be_empty) {
  if (list.size() == size || (may_be_empty && list.empty())) return {};
  return invalid_argument(
      fmt::format("{}: {}: {} numbers for {} ranks; one per rank is needed", name, what, list.size(), size));
}

Status check_lists(std::string_view name, const Call& call, std::uint32_t size) {
  const bool is_v = !call.counts.empty() || !call.displacements.empty() || name.ends_with('v');
  if (!is_v || call.collective == Collective::send_recv) return {};
  const bool has_two_sides = call.collective == Collective::alltoall;
  TUTTI_RETURN_IF_ERROR(
      check_list(name, has_two_sides ? "input_counts" : "counts", call.counts, size, false));
  TUTTI_RETURN_IF_ERROR(check_list(name, has_two_sides ? "input_displacements" : "displacements",
                                   call.displacements, size, true));
  if (!has_two_sides) return {};
  TUTTI_RETURN_IF_ERROR(check_list(name, "output_counts", call.output_counts, size, false));
  return check_list(name, "output_displacements", call.output_displacements, size, true);
}

Status check_buffer(std::string_view name, std::string_view what, const void* memory, const Extent& extent,
                    Dtype dtype) {
  if (!extent.is_used) return {};
  const auto bytes = extent.bytes(dtype);
  if (!bytes || *bytes > static_cast<Bytes>(std::numeric_limits<std::ptrdiff_t>::max())) {
    return invalid_argument(
        fmt::format("{}: {}: the counts ask for more bytes than there can be", name, what));
  }
  if (memory == nullptr && *bytes > 0) {
    return invalid_argument(fmt::format("{}: {}: a null pointer for {} elements of {}", name, what,
                                        *extent.count, to_string(dtype)));
  }
  return {};
}

Status check_overlap(std::string_view name, const Call& call, std::uint32_t rank, const Extent& input,
                     const Extent& output) {
  if (!input.is_used || !output.is_used || is_in_place(call, rank)) return {};
  const auto in = reinterpret_cast<std::uintptr_t>(call.input),
             out = reinterpret_cast<std::uintptr_t>(call.output);
  const Bytes in_bytes = *input.count * size_of(call.dtype), out_bytes = *output.count * size_of(call.dtype);
  if (in_bytes == 0 || out_bytes == 0 || in + in_bytes <= out || out + out_bytes <= in) return {};
  const std::string_view rule =
      holds_blocks_in_output(call.collective)  ? "input must be this rank's block of output"
      : holds_blocks_in_input(call.collective) ? "output must be this rank's block of input"
      : !call.output_counts.empty()            ? "which is not possible with alltoallv"
                                               : "output must be equal to input";
  return invalid_argument(
      fmt::format("{}: output: overlaps input; for an operation in place {}", name, rule));
}

}  // namespace

void normalise(Call& call, std::uint32_t rank, std::uint32_t /*size*/) {
  call.in_place = is_in_place(call, rank);
  if (call.collective == Collective::broadcast) call.input = call.output;
  // The whole vector is this rank's memory to work in, as in every operation in place.
  if (call.in_place && holds_blocks_in_input(call.collective)) call.output = const_cast<void*>(call.input);
  if (call.in_place && holds_blocks_in_output(call.collective)) call.input = call.output;
}

Status check_call(std::string_view name, const Call& call, std::uint32_t rank, std::uint32_t size) {
  if (static_cast<int>(call.dtype) >= kDtypeCount) {
    return invalid_argument(fmt::format("{}: dtype: {} is no dtype", name, static_cast<int>(call.dtype)));
  }
  const bool is_message = call.collective == Collective::send_recv;
  const bool is_from_any = is_message && !call.is_send && call.root == kFromAnyRank;
  if (is_from_any && size == 1)
    return invalid_argument(fmt::format("{}: peer: the group has no other rank to receive from", name));
  if (call.tag > static_cast<std::uint32_t>(std::numeric_limits<std::int32_t>::max())) {
    return invalid_argument(fmt::format("{}: tag: {} is negative; expected 0 or more", name,
                                        static_cast<std::int32_t>(call.tag)));
  }
  if ((is_rooted(call.collective) || is_message) && !is_from_any && call.root >= size) {
    return invalid_argument(fmt::format("{}: {}: {} is no rank of the group; expected 0 to {}", name,
                                        is_message ? "peer" : "root", static_cast<std::int32_t>(call.root),
                                        size - 1));
  }
  if (is_message && call.root == rank) {
    return invalid_argument(fmt::format("{}: peer: {} is this rank itself", name, rank));
  }
  TUTTI_RETURN_IF_ERROR(check_lists(name, call, size));
  if (is_reducing(call.collective)) {
    if (const Status op = check_op(call.op, call.dtype); !op)
      return op.with_context(fmt::format("{}: op", name));
  }
  const Extent input = input_extent(call, rank, size), output = output_extent(call, rank, size);
  const bool has_one_buffer = call.collective == Collective::broadcast || is_message;
  TUTTI_RETURN_IF_ERROR(
      check_buffer(name, has_one_buffer ? "buffer" : "input", call.input, input, call.dtype));
  TUTTI_RETURN_IF_ERROR(
      check_buffer(name, has_one_buffer ? "buffer" : "output", call.output, output, call.dtype));
  return check_overlap(name, call, rank, input, output);
}

}  // namespace tutti
