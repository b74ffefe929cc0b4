// A lowered schedule compiled for one rank: a straight line of local steps, publishes and awaits.
// Structure only: no counts, no pointers, so one plan serves every call of a signature. Knows no transport.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "runtime/base/call.hpp"
#include "runtime/base/status.hpp"
#include "runtime/schedule/schedule.hpp"

namespace tutti {

struct LoweredStep {
  enum class Kind : std::uint8_t { copy, reduce, publish, await };
  Kind kind = Kind::copy;
  std::uint8_t source_count = 0;
  // The steps behind it, so many, store the same value elsewhere: one pass over the data.
  std::uint16_t more_stores = 0;
  std::uint32_t line = 0;          // publish, await
  std::uint32_t peer = 0;          // await
  std::uint32_t dst = 0;           // in LoweredPlan::slices
  std::uint32_t first_source = 0;  // in LoweredPlan::slices
};
static_assert(sizeof(LoweredStep) == 20);

// A slice and, if it is what one publish makes known, the line of that publish: where its elements fit, they
// travel in the line itself.
struct LoweredSlice {
  static constexpr std::uint32_t kNoLine = 0;
  Slice slice;
  std::uint32_t owner = 0;  // the rank whose memory it is
  std::uint32_t line = kNoLine;
};

struct LoweredPlan {
  std::uint64_t number = 0;  // of this object and no other
  Schedule shape;            // grid, windows and flags; its step lists are emptied
  std::vector<LoweredStep> steps;
  std::vector<LoweredSlice> slices;
  std::uint32_t line_count = 1;     // lines it uses, of all ranks; line 0 is the announcement
  std::uint32_t staging_slots = 0;  // scratch slots of the rank that has most
  std::size_t bytes() const {
    return sizeof *this + steps.size() * sizeof(LoweredStep) + slices.size() * sizeof(LoweredSlice);
  }
};

// The program of `ranks[rank]`; the others say which lines carry what. What a mapped plan publishes or awaits
// in order to know that all ranks have come is left out: the executor's announcements tell. Errors:
// unsupported for schedules of several channels, of reductions of more than 255 sources, or of more than
// `max_lines` lines.
Result<LoweredPlan> compile_lowered(std::span<const Schedule> ranks, std::uint32_t rank,
                                    std::uint32_t max_lines);

// Where a lowered plan finds the caller's buffers: plans are the same in place and not. `shape`: of this
// rank.
struct LoweredBuffers {
  std::byte* input = nullptr;  // no step writes to it
  std::byte* output = nullptr;
};
inline LoweredBuffers lowered_buffers(const Call& call, const Schedule& shape) {
  LoweredBuffers at{const_cast<std::byte*>(static_cast<const std::byte*>(call.input)),
                    static_cast<std::byte*>(call.output)};
  if (!call.in_place) return at;
  if (at.input == nullptr || shape.collective == Collective::broadcast) at.input = at.output;
  const std::size_t own_bytes = call.count * size_of(call.dtype) * shape.rank;
  if (shape.collective == Collective::allgather || shape.collective == Collective::gather)
    at.input = at.output + own_bytes;
  if (shape.collective == Collective::reduce_scatter || shape.collective == Collective::scatter)
    at.output = at.input + own_bytes;
  return at;
}

// The two forms of one signature. Either may be missing: then messages carry the operation.
struct LoweredPlans {
  std::shared_ptr<const LoweredPlan> staged;  // ranks read each other's control blocks
  std::shared_ptr<const LoweredPlan> mapped;  // ranks read and write each other's buffers

  // Of the plan that has more.
  std::size_t slice_count() const {
    return std::max(staged ? staged->slices.size() : 0, mapped ? mapped->slices.size() : 0);
  }
  std::size_t bytes() const {
    return sizeof *this + (staged ? staged->bytes() : 0) + (mapped ? mapped->bytes() : 0);
  }
};

}  // namespace tutti
