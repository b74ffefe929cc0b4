// Rolling and unrolling. Every number of a step may advance by a constant from turn to turn; everything else
// must repeat exactly.
#include "runtime/schedule/loop_form.hpp"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

namespace tutti {

namespace {

constexpr std::uint32_t kLongestBody = 16;
constexpr std::uint32_t kFewestTurns = 3;

std::uint32_t difference(std::uint32_t from, std::uint32_t to, std::uint32_t modulus) {
  return static_cast<std::uint32_t>((std::uint64_t{to} % modulus + modulus - from % modulus) % modulus);
}
std::uint32_t advanced(std::uint32_t value, std::uint32_t by, std::uint32_t turn, std::uint32_t modulus) {
  if (by == 0) return value;  // also keeps a number outside the modulus as it is
  return static_cast<std::uint32_t>((value + std::uint64_t{by} * turn) % modulus);
}

LoopStep plain_step(const Schedule& s, std::uint32_t number) {
  LoopStep at;
  at.step = s.steps[number];
  at.dst.slice = at.step.dst;
  for (const Slice& source : s.sources_of(at.step)) at.sources.push_back({source, 0, 0, 0});
  for (const std::uint32_t d : s.dependencies_of(at.step)) at.dependencies.push_back({number - d, 0});
  if (at.step.fused_with != kNotFused) at.fused_ahead = at.step.fused_with - number;
  at.step.first_source = at.step.source_count = at.step.first_dependency = at.step.dependency_count = 0;
  at.step.fused_with = kNotFused;
  at.step.dst = {};
  return at;
}

void set_advance(LoopSlice& at, const Slice& next, const Schedule& s) {
  at.first_advance = difference(at.slice.first, next.first, s.atoms());
  at.slot_advance = std::int64_t{next.slot} - at.slice.slot;
  if (at.slice.owner != kSelf && next.owner != kSelf)
    at.owner_advance = difference(static_cast<std::uint32_t>(at.slice.owner),
                                  static_cast<std::uint32_t>(next.owner), s.size);
}

// A number that advances must stay one that may be written without a loop, too.
bool in_range(std::int64_t value, std::int64_t advance, std::int64_t least, std::int64_t most) {
  return advance == 0 || (value >= least && value <= most);
}
bool is_sequence(std::int64_t value, std::int64_t advance) {
  return in_range(value, advance, 1, std::numeric_limits<std::uint32_t>::max());
}

// The slice in a turn; false if a number leaves its range.
bool slice_in_turn(const LoopSlice& at, std::uint32_t turn, const Schedule& s, Slice& slice) {
  slice = at.slice;
  slice.first = advanced(slice.first, at.first_advance, turn, s.atoms());
  const std::int64_t slot = at.slice.slot + at.slot_advance * turn;
  const std::int64_t slots = slice.owner == kSelf ? std::int64_t{s.scratch_slots} : std::int64_t{kMaxGrid};
  if (!in_range(slot, at.slot_advance, 0, slots - 1)) return false;
  slice.slot = static_cast<std::uint32_t>(slot);
  if (slice.owner != kSelf)
    slice.owner = static_cast<std::int32_t>(
        advanced(static_cast<std::uint32_t>(slice.owner), at.owner_advance, turn, s.size));
  return true;
}

// Appends the step of a turn to the schedule; false if a number leaves its range.
bool append_turn(const LoopStep& at, std::uint32_t turn, Schedule& s, std::vector<Slice>& sources,
                 std::vector<std::uint32_t>& dependencies) {
  const auto number = static_cast<std::uint32_t>(s.steps.size());
  Step step = at.step;
  step.peer = advanced(step.peer, at.peer_advance, turn, s.size);
  const std::int64_t sequence = at.step.sequence + at.sequence_advance * turn;
  if (!is_sequence(sequence, at.sequence_advance) || !slice_in_turn(at.dst, turn, s, step.dst)) return false;
  step.sequence = static_cast<std::uint32_t>(sequence);
  if (at.fused_ahead != 0) step.fused_with = number + at.fused_ahead;
  sources.clear();
  dependencies.clear();
  for (const LoopSlice& source : at.sources) {
    sources.emplace_back();
    if (!slice_in_turn(source, turn, s, sources.back())) return false;
  }
  for (const LoopDependency& d : at.dependencies) {
    const std::int64_t back = d.back + d.advance * turn;
    if (back <= 0 || back > number) return false;
    dependencies.push_back(static_cast<std::uint32_t>(number - back));
  }
  s.append(step, sources, dependencies);
  return true;
}

// A step of the schedule as turn `turn` of a body's step?
bool is_turn(const LoopStep& at, std::uint32_t turn, const LoopStep& found, const Schedule& s) {
  if (at.dependencies.size() != found.dependencies.size() || at.fused_ahead != found.fused_ahead ||
      at.sources.size() != found.sources.size())
    return false;
  for (std::size_t k = 0; k < at.dependencies.size(); ++k) {
    const LoopDependency& d = at.dependencies[k];
    if (d.back + d.advance * turn != found.dependencies[k].back) return false;
  }
  Step step = at.step;
  step.peer = advanced(step.peer, at.peer_advance, turn, s.size);
  const std::int64_t sequence = at.step.sequence + at.sequence_advance * turn;
  if (!is_sequence(sequence, at.sequence_advance)) return false;
  step.sequence = static_cast<std::uint32_t>(sequence);
  if (step != found.step) return false;
  Slice slice;
  if (!slice_in_turn(at.dst, turn, s, slice) || slice != found.dst.slice) return false;
  for (std::size_t k = 0; k < at.sources.size(); ++k) {
    if (!slice_in_turn(at.sources[k], turn, s, slice) || slice != found.sources[k].slice) return false;
  }
  return true;
}

// The step with the advance that leads from it to `next`.
LoopStep with_advance(LoopStep step, const LoopStep& next, const Schedule& s) {
  step.peer_advance = difference(step.step.peer, next.step.peer, s.size);
  step.sequence_advance = std::int64_t{next.step.sequence} - step.step.sequence;
  set_advance(step.dst, next.dst.slice, s);
  for (std::size_t k = 0; k < std::min(step.dependencies.size(), next.dependencies.size()); ++k)
    step.dependencies[k].advance = std::int64_t{next.dependencies[k].back} - step.dependencies[k].back;
  for (std::size_t k = 0; k < std::min(step.sources.size(), next.sources.size()); ++k)
    set_advance(step.sources[k], next.sources[k].slice, s);
  return step;
}

// Turns of a body of that length that the plain steps from `at` on are; fills in the body if enough.
std::uint32_t count_turns(const std::vector<LoopStep>& plain, std::size_t at, std::uint32_t length,
                          const Schedule& s, std::vector<LoopStep>& body) {
  body.clear();
  for (std::size_t j = at; j < at + length; ++j) {
    body.push_back(with_advance(plain[j], plain[j + length], s));
    if (!is_turn(body.back(), 1, plain[j + length], s)) return 1;
  }
  std::uint32_t turns = 2;
  for (;; ++turns) {
    const std::size_t next = at + std::size_t{turns} * length;
    if (next + length > plain.size()) return turns;
    for (std::uint32_t j = 0; j < length; ++j)
      if (!is_turn(body[j], turns, plain[next + j], s)) return turns;
  }
}

}  // namespace

RolledSchedule roll(const Schedule& s, bool find_loops) {
  RolledSchedule rolled;
  rolled.header = s;
  rolled.header.steps.clear();
  rolled.header.sources.clear();
  rolled.header.dependencies.clear();
  std::vector<LoopStep> plain, body;
  for (std::uint32_t i = 0; i < s.steps.size(); ++i) plain.push_back(plain_step(s, i));
  for (std::size_t at = 0; at < plain.size();) {
    Loop best{1, {plain[at]}};
    std::size_t covered = 1;
    const std::uint32_t longest = find_loops ? kLongestBody : 0;
    for (std::uint32_t length = 1; length <= longest && at + kFewestTurns * length <= plain.size();
         ++length) {
      const std::uint32_t turns = count_turns(plain, at, length, s, body);
      if (turns < kFewestTurns || std::size_t{turns} * length <= covered) continue;
      covered = std::size_t{turns} * length;
      best = {turns, body};
    }
    rolled.loops.push_back(std::move(best));
    at += covered;
  }
  return rolled;
}

Result<Schedule> unroll(const RolledSchedule& rolled) {
  Schedule s = rolled.header;
  s.steps.clear();
  s.sources.clear();
  s.dependencies.clear();
  if (s.atoms() == 0 || s.size == 0) return invalid_argument("a grid or group of nothing");
  std::vector<Slice> sources;
  std::vector<std::uint32_t> dependencies;
  for (const Loop& loop : rolled.loops) {
    for (std::uint32_t turn = 0; turn < loop.turns; ++turn) {
      for (const LoopStep& step : loop.body) {
        if (s.steps.size() >= kMaxSteps || s.sources.size() > 4 * kMaxSteps ||
            s.dependencies.size() > 4 * kMaxSteps)
          return invalid_argument(fmt::format("more than {} steps", kMaxSteps));
        if (!append_turn(step, turn, s, sources, dependencies))
          return invalid_argument(
              fmt::format("step {}: a slot, signal or dependency leaves its range", s.steps.size()));
      }
    }
  }
  return s;
}

}  // namespace tutti
