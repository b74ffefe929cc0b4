// The schedule: one rank's part of a collective as a value (steps over slices of a grid of atoms).
// Knows no pointer, byte, dtype, clock or transport, so one schedule serves every count, buffer and wire.
//
// The vector of a collective is cut into `blocks` (ring: p of them) and each block into `segments`. One such
// piece is an *atom*, number block * segments + segment. A chunk map (chunk_map.hpp) turns atoms into element
// ranges when the counts are known. Uneven counts, v-variants and in place concern the chunk map alone.
//
//   collective                              blocks       a buffer of rank r holds
//   allreduce, broadcast, reduce, scan,     any number   all atoms, on every rank
//     exscan
//   allgather, gather                       p            block b is rank b's contribution; input: block r
//   reduce_scatter, scatter                 p            block b is for rank b; output: block r
//   alltoall                                p            input: block d for rank d; output: block s from rank s
//   barrier                                 1            one empty atom, to which every rank contributes
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

// Atoms first, first + stride, ... (`count` of them), modulo the grid. A scratch slice lies in slots slot,
// slot + 1, ... and has the element counts of these atoms. A slot is large enough for any atom.
struct Slice {
  Buffer buffer = Buffer::output;
  std::uint32_t first = 0;
  std::uint32_t count = 1;
  std::uint32_t stride = 1;
  std::uint32_t slot = 0;      // scratch only
  std::int32_t owner = kSelf;  // lowered schedules only: the rank whose memory this is
  bool is_wire = false;        // the wire copies of these locations (passes/compress.hpp)

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

// Steps are issued in program order within their channel. A step is issued when its dependencies are complete
// and all earlier steps of its channel are issued. Messages match first in first out per (sender, receiver,
// channel).
struct Step {
  Verb verb = Verb::copy;
  std::uint16_t channel = 0;
  std::uint32_t peer = 0;  // of a copy to a wire copy: see passes/share_losses.hpp
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
  // Lowered schedules only (passes/lower.hpp). `is_staged`: ranks read only each other's scratch, whose owner is
  // the executor and which stays valid after the rank has ended. `hears_from_all`: the rank cannot end before
  // every other rank has entered.
  bool is_staged = false;
  bool hears_from_all = false;
  // Compressed schedules only: each location has a *wire copy*, as long but in the narrower wire dtype. Writing it
  // rounds, reading it is exact. A message goes from wire copy to wire copy, or between locations themselves.
  bool has_wire_copies = false;
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

// The atoms of a buffer that exist at this rank, as a range [first, first + count); count 0: the buffer is
// absent. The input of reduce_scatter and scatter is the whole vector; in place only the output window may be
// written.
struct Window {
  std::uint32_t first = 0;
  std::uint32_t count = 0;
  bool contains(std::uint32_t atom) const { return atom - first < count; }
};
Window window(const Schedule& schedule, Buffer buffer);  // scratch: slots, not atoms
// The atoms that hold the rank's contribution at the start: of the input, in place of the output.
Window contribution_window(const Schedule& schedule);
// The output atoms whose contents the collective promises to this rank.
Window result_window(const Schedule& schedule);

// Infers the dependencies of every step from program order and replaces the present ones. A step depends on the
// last writer of its sources, and on the last writer and the later readers of its destination.
void infer_dependencies(Schedule& schedule);

}  // namespace tutti
