// Operations whose messages travel in another dtype than their vector has: where the wire copies lie, and steps that
// convert. Sums are formed in the vector's dtype.
#include <algorithm>
#include <array>
#include <cmath>

#include "runtime/scheduler/operation.hpp"

namespace tutti {
namespace {

std::size_t in_lines(std::size_t bytes) { return (bytes + 63) & ~std::size_t{63}; }

}  // namespace

// Memory that no step touches is never made, so each location has its wire copy whether it is used or not.
std::size_t Operation::place_wire_copies(std::size_t offset) {
  const std::size_t bytes = messages_.wire.element_bytes;
  messages_.wire_slot_bytes = in_lines(map_.max_atom_count() * bytes);
  messages_.wire_input = in_lines(offset);
  messages_.wire_output = messages_.wire_input + in_lines(map_.extent(Buffer::input) * bytes);
  messages_.wire_slots = messages_.wire_output + in_lines(map_.extent(Buffer::output) * bytes);
  return messages_.wire_slots + messages_.plan->shape.scratch_slots * messages_.wire_slot_bytes;
}

std::byte* Operation::wire_address(const Slice& slice, std::uint32_t k) const {
  if (slice.buffer == Buffer::scratch)
    return messages_.scratch + messages_.wire_slots + (slice.slot + k) * messages_.wire_slot_bytes;
  const Range range = map_.range(slice.buffer, messages_.plan->shape.atom(slice, k));
  return messages_.scratch + (slice.buffer == Buffer::input ? messages_.wire_input : messages_.wire_output) +
         range.first * messages_.wire.element_bytes;
}

void Operation::compute_converting(const PlanStep& step, std::size_t offset, std::size_t length,
                                   const std::byte* arriving) {
  const Slice& dst = messages_.plan->slices[step.dst];
  const std::span<const Slice> sources(messages_.plan->slices.data() + step.first_source, step.source_count);
  const auto bytes_of = [&](const Slice& slice) {
    return slice.is_wire ? messages_.wire.element_bytes : element_bytes_;
  };
  // Lengths are those of the message, or of anything at all.
  const std::size_t unit = arriving != nullptr ? bytes_of(sources[step.arriving]) : 1;
  const std::uint64_t first = offset / unit, end = first + length / unit;
  std::array<const void*, 256> at;
  std::uint64_t atom_start = 0;  // of atom k in the slice, in elements
  for (std::uint32_t k = 0; k < dst.count && atom_start < end; ++k) {
    const std::uint64_t count = map_.range(dst.buffer, messages_.plan->shape.atom(dst, k)).count;
    const std::uint64_t from = std::max(first, atom_start), to = std::min(end, atom_start + count);
    if (from < to) {
      for (std::size_t i = 0; i < sources.size(); ++i) {
        const bool is_message = arriving != nullptr && i == step.arriving;
        at[i] = is_message ? arriving + (from - first) * unit
                           : address(sources[i], k) + (from - atom_start) * bytes_of(sources[i]);
      }
      std::byte* const result = address(dst, k) + (from - atom_start) * bytes_of(dst);
      convert_run(dst, result, sources, at.data(), to - from);
      if (dst.is_wire && call_.residual != nullptr && step.peer != 0) {
        const std::uint64_t atom = map_.range(Buffer::output, messages_.plan->shape.atom(dst, k)).first;
        keep_loss(step, atom + from - atom_start, to - from, at[0], result);
      }
    }
    atom_start += count;
  }
}

// Elements [first, first + count) of the vector have been rounded. Losses that are not finite would never leave.
void Operation::keep_loss(const PlanStep& step, std::uint64_t first, std::uint64_t count, const void* exact,
                          const void* rounded) const {
  constexpr std::uint64_t kPieceElements = 1024;
  alignas(64) std::array<float, kPieceElements> widened;
  const auto* from = static_cast<const float*>(exact);
  const auto* at = static_cast<const std::byte*>(rounded);
  const float share = 1 / static_cast<float>(step.peer);
  float* to = call_.residual + first;
  for (std::uint64_t done = 0; done < count; done += kPieceElements) {
    const std::uint64_t n = std::min(kPieceElements, count - done);
    messages_.wire.convert.widen(widened.data(), at + done * messages_.wire.element_bytes, n);
    for (std::uint64_t i = 0; i < n; ++i) {
      const float loss = from[done + i] - widened[i];
      if (std::isfinite(loss)) to[done + i] += loss * share;
    }
  }
}

// A few KiB at a time, sources from messages are widened to the stack, where the kernel adds them.
void Operation::convert_run(const Slice& dst, std::byte* to, std::span<const Slice> sources, const void** at,
                            std::uint64_t count) const {
  constexpr std::uint64_t kPieceElements = 4096;
  const Conversions& convert = messages_.wire.convert;
  if (sources.size() == 1) {
    if (dst.is_wire) return convert.narrow(to, at[0], count);
    if (sources[0].is_wire) return convert.widen(to, at[0], count);
    return copy_bytes(to, at[0], count * element_bytes_);
  }
  const auto wires = static_cast<std::uint64_t>(
      std::count_if(sources.begin(), sources.end(), [](const Slice& source) { return source.is_wire; }));
  const std::uint64_t most = wires == 0 ? count : kPieceElements / wires;
  alignas(64) std::array<float, kPieceElements> widened;
  std::array<const void*, 256> piece;
  for (std::uint64_t done = 0; done < count; done += most) {
    const std::uint64_t n = std::min(most, count - done);
    float* next = widened.data();
    for (std::size_t i = 0; i < sources.size(); ++i) {
      const auto* source = static_cast<const std::byte*>(at[i]);
      if (sources[i].is_wire) {
        convert.widen(next, source + done * messages_.wire.element_bytes, n);
        piece[i] = next;
        next += most;
      } else {
        piece[i] = source + done * element_bytes_;
      }
    }
    kernel_(&call_.op.user, to + done * element_bytes_, piece.data(), sources.size(), n);
  }
}

}  // namespace tutti
