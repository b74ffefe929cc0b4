// A lowered schedule compiled for one rank: a straight line of local steps, signals and waits.
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
#include "runtime/schedule/chunk_map.hpp"
#include "runtime/schedule/schedule.hpp"

namespace tutti {

struct LoweredStep {
  enum class Kind : std::uint8_t { copy, reduce, signal, wait };
  Kind kind = Kind::copy;
  std::uint8_t source_count = 0;
  // The steps behind it, so many, store the same value elsewhere: one pass over the data.
  std::uint16_t more_stores = 0;
  std::uint32_t line = 0;          // signal, wait
  std::uint32_t peer = 0;          // wait
  std::uint32_t dst = 0;           // in LoweredPlan::slices
  std::uint32_t first_source = 0;  // in LoweredPlan::slices
};
static_assert(sizeof(LoweredStep) == 20);

// A slice and, if one signal alone makes it known, the flag line of that signal. Elements that fit travel in the
// line itself.
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
  std::uint32_t line_count = 1;        // lines it uses, of all ranks; line 0 is the announcement
  std::uint32_t staging_slots = 0;     // scratch slots of the rank that has most
  std::vector<std::uint32_t> readers;  // of the flags and the scratch of this rank, in ascending order
  std::size_t bytes() const {
    return sizeof *this + steps.size() * sizeof(LoweredStep) + slices.size() * sizeof(LoweredSlice) +
           readers.size() * sizeof(std::uint32_t);
  }
};

// The program of `ranks[rank]`; the other ranks' say which lines carry what. A direct plan's signals and
// waits that only tell that all ranks have arrived are left out, because the executor announces arrivals. Errors:
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

// Rules that all executors share: those on control blocks, by messages and on GPUs.

// A call whose staging does not fit goes in epochs, one after the other. Epochs have equal length, because a
// short last one costs as many synchronisations as a long one. Returns the elements of an epoch, of every
// block where ranks have blocks; the last epoch has what is left. `staging_bytes`: of one rank and epoch.
std::uint64_t epoch_length(const LoweredPlan& plan, std::uint64_t count, std::size_t element_bytes,
                           std::size_t staging_bytes);
// Binds the map to the first `length` elements of a call of `count`. The epoch that begins at element n has
// the same map, on buffers that begin n elements later.
void bind_epoch_map(ChunkMap& map, const Schedule& shape, std::uint64_t count, std::uint64_t length,
                    std::size_t element_bytes);
// The bytes of one scratch slot in the staging buffer, once the map is bound.
std::size_t slot_bytes_of(const ChunkMap& map, std::size_t element_bytes);

// Has the rank a result, which avg then divides? A reduce leaves its result at the root. An exscan leaves
// none at rank 0, whose output stays as it was.
constexpr bool has_result(Collective collective, std::uint32_t rank, std::uint32_t root) {
  if (collective == Collective::reduce) return rank == root;
  return collective != Collective::exscan || rank != 0;
}
// Is the input multiplied before the reduction, by premul_sum?
bool is_prescaled(const Call& call);
// The same call of `rank` as plans carry it out. A prescaled input lies in scratch, so such a call never runs
// in place: the output of a reduce_scatter is then the own block alone.
Call as_carried_out(const Call& call, std::uint32_t rank);

// The two forms of one signature. Either may be missing: then messages carry the operation.
struct LoweredPlans {
  std::shared_ptr<const LoweredPlan> staged;  // ranks read each other's control blocks
  std::shared_ptr<const LoweredPlan> direct;  // ranks read and write each other's buffers

  std::size_t bytes() const {
    return sizeof *this + (staged ? staged->bytes() : 0) + (direct ? direct->bytes() : 0);
  }
};

}  // namespace tutti
