// Argument checks. Knows no group.
#include "runtime/group/call_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <vector>

#include "runtime/base/wire_setting.hpp"

namespace tutti {
namespace {

using Bytes = std::uint64_t;

bool holds_blocks_in_output(Collective c) { return c == Collective::allgather || c == Collective::gather; }
bool holds_blocks_in_input(Collective c) {
  return c == Collective::reduce_scatter || c == Collective::scatter;
}

bool is_in_place(const Call& call, std::uint32_t rank) {
  if (call.collective == Collective::broadcast) return true;
  if (call.collective == Collective::barrier || call.collective == Collective::send_recv) return false;
  // Only the root has both buffers; other ranks may pass anything for the missing one.
  if (call.input == nullptr || call.output == nullptr || !is_root(call, rank)) return false;
  const auto* input = static_cast<const std::byte*>(call.input);
  const auto* output = static_cast<const std::byte*>(call.output);
  const std::size_t offset = block_offset(call, rank) * element_bytes(call);
  if (holds_blocks_in_output(call.collective)) return input == output + offset;
  if (holds_blocks_in_input(call.collective)) return output == input + offset;
  if (input != output) return false;
  const auto is_equal = [](std::span<const std::uint64_t> a, std::span<const std::uint64_t> b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  };
  return call.output_counts.empty() || (is_equal(call.counts, call.output_counts) &&
                                        is_equal(call.displacements, call.output_displacements));
}

Status check_list(std::string_view name, std::string_view what, std::span<const std::uint64_t> list,
                  std::uint32_t size, bool may_be_empty) {
  if (list.size() == size || (may_be_empty && list.empty())) return {};
  return invalid_argument(
      fmt::format("{}: {}: {} numbers for {} ranks; one per rank is needed", name, what, list.size(), size));
}

// The count of this rank, where only the root has counts.
Status check_own_count(std::string_view name, const Call& call, std::uint32_t rank, std::uint32_t size) {
  if (!is_root(call, rank)) return {};
  TUTTI_RETURN_IF_ERROR(check_list(name, "counts", call.counts, size, false));
  TUTTI_RETURN_IF_ERROR(check_list(name, "displacements", call.displacements, size, true));
  if (call.counts[rank] == call.count) return {};
  return invalid_argument(fmt::format("{}: own_count: {}, but counts[{}], of the root itself, is {}", name,
                                      call.count, rank, call.counts[rank]));
}

Status check_lists(std::string_view name, const Call& call, std::uint32_t rank, std::uint32_t size) {
  if (call.has_counts_at_root) return check_own_count(name, call, rank, size);
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
                    const Call& call) {
  if (!extent.is_used) return {};
  const auto bytes = extent.bytes(element_bytes(call));
  if (!bytes || *bytes > static_cast<Bytes>(std::numeric_limits<std::ptrdiff_t>::max())) {
    return invalid_argument(
        fmt::format("{}: {}: the counts ask for more bytes than there can be", name, what));
  }
  if (memory == nullptr && *bytes > 0) {
    return invalid_argument(fmt::format("{}: {}: a null pointer for {} elements of {}", name, what,
                                        *extent.count, to_string(call.dtype)));
  }
  return {};
}

struct Piece {
  std::uintptr_t begin = 0, end = 0;
  bool is_input = false;
};

// The memory of one buffer of the call that its elements take, block by block where it has listed blocks.
void add_pieces(const Call& call, bool is_input, const Extent& extent, std::vector<Piece>& pieces) {
  const void* const memory = is_input ? call.input : call.output;
  const auto base = reinterpret_cast<std::uintptr_t>(memory);
  const std::size_t bytes = element_bytes(call);
  const auto add = [&](std::uint64_t first, std::uint64_t count) {
    if (count > 0) pieces.push_back({base + first * bytes, base + (first + count) * bytes, is_input});
  };
  const bool has_own_lists = call.collective == Collective::alltoall && !is_input;
  const auto& counts = has_own_lists ? call.output_counts : call.counts;
  const auto& displacements = has_own_lists ? call.output_displacements : call.displacements;
  const bool has_blocks =
      call.collective == Collective::alltoall ||
      (is_input ? holds_blocks_in_input(call.collective) : holds_blocks_in_output(call.collective));
  if (!has_blocks || displacements.empty()) return add(0, *extent.count);
  for (std::size_t block = 0; block < counts.size(); ++block) add(displacements[block], counts[block]);
}

// Whether some byte belongs to both buffers. Blocks of one may lie between blocks of the other.
bool shares_elements(const Call& call, const Extent& input, const Extent& output) {
  std::vector<Piece> pieces;
  add_pieces(call, true, input, pieces);
  add_pieces(call, false, output, pieces);
  std::sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) { return a.begin < b.begin; });
  std::array<std::uintptr_t, 2> end{};  // of the pieces so far, of output and input
  for (const Piece& piece : pieces) {
    if (piece.begin < end[piece.is_input ? 0 : 1]) return true;
    std::uintptr_t& own_end = end[piece.is_input ? 1 : 0];
    own_end = std::max(own_end, piece.end);
  }
  return false;
}

Status check_overlap(std::string_view name, const Call& call, std::uint32_t rank, const Extent& input,
                     const Extent& output) {
  if (!input.is_used || !output.is_used || is_in_place(call, rank)) return {};
  const auto in = reinterpret_cast<std::uintptr_t>(call.input),
             out = reinterpret_cast<std::uintptr_t>(call.output);
  const Bytes in_bytes = *input.count * element_bytes(call), out_bytes = *output.count * element_bytes(call);
  if (in_bytes == 0 || out_bytes == 0 || in + in_bytes <= out || out + out_bytes <= in) return {};
  if (!shares_elements(call, input, output)) return {};
  const std::string_view rule =
      holds_blocks_in_output(call.collective)  ? "input must be this rank's block of output"
      : holds_blocks_in_input(call.collective) ? "output must be this rank's block of input"
      : !call.output_counts.empty() ? "output must be equal to input, with equal counts and displacements"
                                    : "output must be equal to input";
  return invalid_argument(
      fmt::format("{}: output: shares elements with input; for an operation in place, {}", name, rule));
}

// The root, or the peer and tag of a message.
Status check_root_and_tag(std::string_view name, const Call& call, std::uint32_t rank, std::uint32_t size) {
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
  return {};
}

}  // namespace

void normalise(Call& call, std::uint32_t rank, std::uint32_t /*size*/) {
  call.in_place = is_in_place(call, rank);
  if (call.collective == Collective::broadcast) call.input = call.output;
  // Plans in place find the own block in the whole vector.
  if (call.in_place && holds_blocks_in_input(call.collective)) call.output = const_cast<void*>(call.input);
  if (call.in_place && holds_blocks_in_output(call.collective)) call.input = call.output;
}

Status check_call(std::string_view name, const Call& call, std::uint32_t rank, std::uint32_t size) {
  if (static_cast<int>(call.dtype) >= kDtypeCount) {
    return invalid_argument(fmt::format("{}: dtype: {} is no dtype", name, static_cast<int>(call.dtype)));
  }
  TUTTI_RETURN_IF_ERROR(check_root_and_tag(name, call, rank, size));
  TUTTI_RETURN_IF_ERROR(check_lists(name, call, rank, size));
  if (call.dtype == Dtype::opaque && !is_reducing(call.collective)) {
    return invalid_argument(
        fmt::format("{}: dtype: opaque is for user-defined ops; move elements of any kind as u8", name));
  }
  if (is_reducing(call.collective)) {
    if (const Status op = check_op(call.op, call.dtype); !op)
      return op.with_context(fmt::format("{}: op", name));
  }
  TUTTI_RETURN_IF_ERROR(check_wire_dtype(name, call));
  if (call.residual != nullptr && (call.collective != Collective::allreduce || !has_wire_form(call)))
    return invalid_argument(fmt::format("{}: residual: only sums of f32 by allreduce have one, not {} of {}",
                                        name, to_string(call.collective), to_string(call.dtype)));
  const Extent input = input_extent(call, rank, size), output = output_extent(call, rank, size);
  const bool has_one_buffer =
      call.collective == Collective::broadcast || call.collective == Collective::send_recv;
  TUTTI_RETURN_IF_ERROR(check_buffer(name, has_one_buffer ? "buffer" : "input", call.input, input, call));
  TUTTI_RETURN_IF_ERROR(check_buffer(name, has_one_buffer ? "buffer" : "output", call.output, output, call));
  return check_overlap(name, call, rank, input, output);
}

}  // namespace tutti
