// The schedule: one rank's part of a collective as a value (steps over slices of a grid of atoms).
// Knows no pointer, no byte, no dtype, no clock and no transport, so one schedule serves every count, buffer
// and wire.
//
// Words. The vector of a collective is cut into `blocks` (ring: p of them) and each block into `segments`;
// one such piece is an *atom*, number block * segments + segment. A chunk map (chunk_map.hpp) turns atoms
// into element ranges when the counts are known; uneven counts, v-variants and in place are its business
// alone, never an algorithm's.
//   allreduce, broadcast, reduce, scan, exscan
//                           atoms cut the vector; every buffer of every rank holds all of them
//   allgather, gather       blocks = p; block b is rank b's contribution; input holds the rank's own block
//   reduce_scatter, scatter blocks = p; block b is for rank b; output holds the rank's own block
//   alltoall                blocks = p; input block d goes to rank d, output block s came from rank s
//   barrier                 one empty atom that gathers every rank's arrival
//
// In place, input and output are the same memory under the same atom numbers; the builder then writes every
// slice as `output`.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/base/types.hpp"

namespace tutti {

enum class Buffer : std::uint8_t { input, output, scratch };

inline constexpr std::int32_t kSelf = -1;
inline constexpr std::uint32_t kNotFused = ~0U;

// Atoms first, first + stride, ... (`count` of them), modulo the grid. A scratch slice has the *shape* of
// these atoms (so its element counts are known) and lies in slots slot, slot + 1, ...; a slot is large enough
// for any atom.
struct Slice {
  Buffer buffer = Buffer::output;
  std::uint32_t first = 0;
  std::uint32_t count = 1;
  std::uint32_t stride = 1;
  std::uint32_t slot = 0;      // scratch only
  std::int32_t owner = kSelf;  // lowered schedules only: the rank whose memory this is

  bool operator==(const Slice&) const = default;
};

enum class Verb : std::uint8_t {
  send,    // sources[0] to peer; complete when the peer has received it (rendezvous: no buffering is assumed)
  recv,    // from peer into dst
  copy,    // dst <- sources[0]; complete when issued
  reduce,  // dst <- ((s0 + s1) + s2) + ... in exactly this order; dst may be one of the sources; complete
           // when issued
  signal,  // lowered: sets the rank's flag of the channel to `sequence` (1, 2, ...): all earlier steps of the
           // channel are done
  wait,    // lowered: waits until the flag of `peer` on this channel has reached `sequence`
};
std::string_view to_string(Verb verb);

// Steps are issued in program order within their channel; a step is issued when its dependencies are complete
// and all earlier steps of its channel are issued. Messages match first in first out per (sender, receiver,
// channel).
struct Step {
  Verb verb = Verb::copy;
  std::uint16_t channel = 0;
  std::uint32_t peer = 0;
  std::uint32_t sequence = 0;
  Slice dst;
  std::uint32_t first_source = 0, source_count = 0;  // in Schedule::sources
  std::uint32_t first_dependency = 0,
                dependency_count = 0;  // in Schedule::dependencies: numbers of earlier steps
  // A later step that may run in one pass over the data with this one (passes/fuse.hpp), or kNotFused. Only
  // a permission: a schedule means the same without it.
  std::uint32_t fused_with = kNotFused;

  bool operator==(const Step&) const = default;
};

struct Schedule {
  Collective collective = Collective::allreduce;
  std::uint32_t rank = 0;
  std::uint32_t size = 1;
  std::uint32_t root = 0;
  bool in_place = false;
  std::uint32_t blocks = 1;
  std::uint32_t segments = 1;
  std::uint32_t scratch_slots = 0;
  std::uint32_t channels = 1;
  // Lowered schedules only (passes/lower.hpp). `is_staged`: ranks read each other's scratch and nothing else;
  // scratch belongs to whoever runs the schedule and keeps what it holds after the rank has left.
  // `hears_from_all`: the rank cannot end before every other rank has entered.
  bool is_staged = false;
  bool hears_from_all = false;
  std::vector<Step> steps;
  std::vector<Slice> sources;
  std::vector<std::uint32_t> dependencies;

  bool operator==(const Schedule&) const = default;

  std::uint32_t atoms() const { return blocks * segments; }
  std::span<const Slice> sources_of(const Step& s) const {
    return {sources.data() + s.first_source, s.source_count};
  }
  std::span<const std::uint32_t> dependencies_of(const Step& s) const {
    return {dependencies.data() + s.first_dependency, s.dependency_count};
  }
  // Atom number k of a slice.
  std::uint32_t atom(const Slice& s, std::uint32_t k) const {
    const std::uint64_t unwrapped = s.first + std::uint64_t{k} * s.stride;
    return static_cast<std::uint32_t>(unwrapped < atoms() ? unwrapped : unwrapped % atoms());
  }
  // Appends a step with its sources and dependencies; keeps the index ranges right. For the builder and the
  // passes.
  void append(Step step, std::span<const Slice> step_sources,
              std::span<const std::uint32_t> step_dependencies);
};

// Which atoms of a buffer exist at this rank, as a range [first, first + count); count 0: the buffer is
// absent. The input of reduce_scatter and scatter is the whole vector, of which only the output window may be
// written in place.
struct Window {
  std::uint32_t first = 0;
  std::uint32_t count = 0;
  bool contains(std::uint32_t atom) const { return atom - first < count; }
};
Window window(const Schedule& schedule, Buffer buffer);  // scratch: slots, not atoms
// Which atoms hold the rank's contribution at the start: of the input, in place of the output.
Window contribution_window(const Schedule& schedule);

// Fills in the dependencies of every step from program order: a step waits for the last writer of what it
// reads and for the last writer and the active readers of what it writes. Replaces what was there.
void infer_dependencies(Schedule& schedule);

}  // namespace tutti
