// The verifier's static part: what can be said of a schedule without running it.
// Knows nothing of values and of other ranks' programs.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "runtime/base/status.hpp"
#include "runtime/schedule/schedule.hpp"

namespace tutti::detail {

// All ranks describe one collective, and every step is well formed: bounds, windows, peers, sources.
Status check_structure(std::span<const Schedule> ranks);

// Every two steps of one rank that touch a location, one of them writing, are ordered for every timing. That
// is, the earlier in program order is complete before the later is issued. Authored schedules only.
Status check_local_order(const Schedule& schedule);

bool is_lowered(const Schedule& schedule);

// Compressed schedules: sums are formed in the dtype itself, and a value is rounded for a message only, or as the
// result. That is, no reduce writes a wire copy. A copy writes only that of its source. A message sends it before it
// is written again, or it is that of a result and not written again.
Status check_rounding(const Schedule& schedule);

// Whether step `first` is complete before step `second` is issued, for every timing. Walks back from
// `second`: its dependencies are complete; earlier steps of its channel are issued, and local ones of them
// complete.
class OrderSearch {
 public:
  explicit OrderSearch(const Schedule& schedule);  // which outlives it
  bool is_complete_before(std::uint32_t first, std::uint32_t second);

 private:
  static constexpr std::uint32_t kNone = ~0U;
  void push(std::uint32_t step, std::uint32_t first);

  const Schedule& s_;
  std::vector<std::uint32_t> previous_;  // the step before it in its channel
  std::vector<std::uint32_t> seen_, todo_;
  std::uint32_t search_ = 0;
};

inline bool writes(Verb verb) { return verb == Verb::recv || verb == Verb::copy || verb == Verb::reduce; }
inline bool is_local(Verb verb) { return verb == Verb::copy || verb == Verb::reduce; }
inline bool is_message(Verb verb) { return verb == Verb::send || verb == Verb::recv; }

// Number of a location within its owner's memory: input atoms, output atoms, scratch slots; then the wire copies
// of all.
inline std::uint32_t location(const Schedule& s, const Slice& slice, std::uint32_t k) {
  const std::uint32_t first = slice.is_wire ? 2 * s.atoms() + s.scratch_slots : 0;
  if (slice.buffer == Buffer::scratch) return first + 2 * s.atoms() + slice.slot + k;
  return first + (slice.buffer == Buffer::output ? s.atoms() : 0) + s.atom(slice, k);
}
inline std::uint32_t location_count(const Schedule& s) {
  return (2 * s.atoms() + s.scratch_slots) * (s.has_wire_copies ? 2 : 1);
}

// "rank 3 step 12 (reduce output[4] = ...)"
std::string describe_step(const Schedule& schedule, std::uint32_t step);
// "output block 4", "output block 4 segment 1", "scratch slot 2"; `where` is a location number.
std::string describe_location(const Schedule& schedule, std::uint32_t where);

}  // namespace tutti::detail
