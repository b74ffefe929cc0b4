// Static checks: the shape of every step, and the order that dependencies and channels guarantee.
#include "runtime/schedule/check_steps.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "runtime/schedule/text.hpp"

namespace tutti::detail {

namespace {

// A grid this large is a mistake in a text file, not a schedule.
constexpr std::uint64_t kMaxLocations = 1ULL << 28;

Status bad(const Schedule& s, std::uint32_t step, const std::string& why) {
  return internal_error(fmt::format("{}: {}", describe_step(s, step), why));
}

Status check_owner(const Schedule& s, std::uint32_t step, const Slice& slice) {
  if (slice.owner != kSelf && (slice.owner < 0 || static_cast<std::uint32_t>(slice.owner) >= s.size))
    return bad(s, step, fmt::format("names memory of rank {} of {}", slice.owner, s.size));
  if (slice.owner == static_cast<std::int32_t>(s.rank))
    return bad(s, step,
               fmt::format("{} names its own memory as that of a rank: leave the rank out", to_text(slice)));
  return {};
}

Status check_slice(std::span<const Schedule> ranks, const Schedule& s, std::uint32_t step, const Slice& slice,
                   bool is_written) {
  TUTTI_RETURN_IF_ERROR(check_owner(s, step, slice));
  const Schedule& owner = slice.owner == kSelf ? s : ranks[static_cast<std::uint32_t>(slice.owner)];
  if (slice.count == 0) return bad(s, step, "touches a slice of no blocks");
  if (slice.is_wire && (!s.has_wire_copies || slice.owner != kSelf))
    return bad(s, step, fmt::format("{} of a schedule without wire copies", to_text(slice)));
  if (slice.count > s.atoms() || slice.first >= s.atoms())
    return bad(s, step, fmt::format("{} is outside a grid of {} atoms", to_text(slice), s.atoms()));
  if (slice.buffer == Buffer::scratch) {
    if (std::uint64_t{slice.slot} + slice.count > owner.scratch_slots)
      return bad(s, step, fmt::format("{} is outside {} scratch slots", to_text(slice), owner.scratch_slots));
    return {};
  }
  if (is_written && slice.buffer == Buffer::input && !slice.is_wire)
    return bad(s, step, "writes to an input");
  const Window here = window(owner, slice.buffer);
  for (std::uint32_t k = 0; k < slice.count; ++k) {
    if (!here.contains(s.atom(slice, k)))
      return bad(s, step,
                 fmt::format("touches {}, which rank {} does not hold",
                             describe_location(owner, location(s, slice, k)), owner.rank));
  }
  return {};
}

// A step may overwrite a source in place, position by position, but must not overwrite what it reads later.
Status check_overlap(const Schedule& s, std::uint32_t number, std::vector<std::uint64_t>& written_at) {
  const Step& step = s.steps[number];
  const std::uint64_t mark = std::uint64_t{number + 1} << 32;
  for (std::uint32_t k = 0; k < step.dst.count; ++k) {
    std::uint64_t& at = written_at[location(s, step.dst, k)];
    if (at >> 32 == number + 1) return bad(s, number, "writes one location twice");
    at = mark | k;
  }
  for (const Slice& source : s.sources_of(step)) {
    if (source.owner != step.dst.owner) continue;
    for (std::uint32_t k = 0; k < source.count; ++k) {
      const std::uint64_t at = written_at[location(s, source, k)];
      if (at >> 32 == number + 1 && at != (mark | k))
        return bad(s, number, fmt::format("{} overlaps what it writes, shifted", to_text(source)));
    }
  }
  return {};
}

// Has more than 15 decisions because there is one for each rule of form.
Status check_form(const Schedule& s, std::uint32_t number) {
  const Step& step = s.steps[number];
  if (std::uint64_t{step.first_source} + step.source_count > s.sources.size() ||
      std::uint64_t{step.first_dependency} + step.dependency_count > s.dependencies.size())
    return internal_error(fmt::format("rank {} step {}: broken source or dependency range", s.rank, number));
  const bool is_computed = is_local(step.verb);
  const std::uint32_t sources = step.source_count;
  const bool fits = step.verb == Verb::send || step.verb == Verb::copy ? sources == 1
                    : step.verb == Verb::reduce                        ? sources >= 2
                                                                       : sources == 0;
  if (!fits) return bad(s, number, fmt::format("a {} with {} sources", to_string(step.verb), sources));
  if (step.channel >= s.channels)
    return bad(s, number, fmt::format("channel {} of {}", step.channel, s.channels));
  for (std::uint32_t d : s.dependencies_of(step)) {
    if (d >= number) return bad(s, number, fmt::format("depends on step {}, which is not earlier", d));
  }
  if (!is_computed && step.verb != Verb::signal) {
    if (step.peer >= s.size) return bad(s, number, fmt::format("peer {} of {}", step.peer, s.size));
    if (step.peer == s.rank && step.verb != Verb::wait) return bad(s, number, "a message to itself");
  }
  for (const Slice& source : s.sources_of(step)) {
    if (is_computed && source.count != step.dst.count)
      return bad(s, number, fmt::format("{} blocks into {}", source.count, step.dst.count));
  }
  return {};
}

Status check_header(std::span<const Schedule> ranks, std::uint32_t r) {
  const Schedule &s = ranks[r], &first = ranks[0];
  if (s.rank != r || s.size != ranks.size())
    return internal_error(
        fmt::format("schedule {} of {} says it is rank {} of {}", r, ranks.size(), s.rank, s.size));
  if (s.collective != first.collective || s.root != first.root || s.in_place != first.in_place ||
      s.blocks != first.blocks || s.segments != first.segments || s.is_staged != first.is_staged ||
      s.has_wire_copies != first.has_wire_copies)
    return internal_error(fmt::format(
        "rank {} and rank 0 differ in collective, root, placement, grid, wire copies or in what they share",
        r));
  if (s.blocks == 0 || s.segments == 0 || s.channels == 0)
    return internal_error(fmt::format("rank {}: a grid without blocks, segments or channels", r));
  if (std::uint64_t{s.blocks} * s.segments * 2 + s.scratch_slots > kMaxLocations)
    return internal_error(fmt::format("rank {}: more than {} locations", r, kMaxLocations));
  if (is_rooted(s.collective) && s.root >= s.size)
    return internal_error(fmt::format("root {} of {} ranks", s.root, s.size));
  return {};
}

}  // namespace

std::string describe_step(const Schedule& s, std::uint32_t step) {
  return fmt::format("rank {} step {} ({})", s.rank, step, to_text(s, s.steps[step]));
}

std::string describe_location(const Schedule& s, std::uint32_t where) {
  const std::uint32_t own = 2 * s.atoms() + s.scratch_slots;
  if (s.has_wire_copies && where >= own)
    return fmt::format("the wire copy of {}", describe_location(s, where - own));
  if (where >= 2 * s.atoms()) return fmt::format("scratch slot {}", where - 2 * s.atoms());
  const std::uint32_t atom = where % s.atoms();
  std::string text = fmt::format("{} block {}", where < s.atoms() ? "input" : "output", atom / s.segments);
  if (s.segments > 1) text += fmt::format(" segment {}", atom % s.segments);
  return text;
}

bool is_lowered(const Schedule& s) {
  const auto foreign = [](const Slice& slice) { return slice.owner != kSelf; };
  return std::any_of(s.steps.begin(), s.steps.end(),
                     [&](const Step& step) {
                       return step.verb == Verb::signal || step.verb == Verb::wait || foreign(step.dst);
                     }) ||
         std::any_of(s.sources.begin(), s.sources.end(), foreign);
}

Status check_structure(std::span<const Schedule> ranks) {
  if (ranks.empty()) return internal_error("no ranks");
  for (std::uint32_t r = 0; r < ranks.size(); ++r) TUTTI_RETURN_IF_ERROR(check_header(ranks, r));
  std::vector<std::uint64_t> written_at;
  for (const Schedule& s : ranks) {
    std::uint32_t slots = 0;
    for (const Schedule& other : ranks) slots = std::max(slots, other.scratch_slots);
    written_at.assign(std::max(location_count(s), 2 * s.atoms() + slots), 0);
    for (std::uint32_t i = 0; i < s.steps.size(); ++i) {
      TUTTI_RETURN_IF_ERROR(check_form(s, i));
      for (const Slice& source : s.sources_of(s.steps[i]))
        TUTTI_RETURN_IF_ERROR(check_slice(ranks, s, i, source, false));
      if (!writes(s.steps[i].verb)) continue;
      TUTTI_RETURN_IF_ERROR(check_slice(ranks, s, i, s.steps[i].dst, true));
      TUTTI_RETURN_IF_ERROR(check_overlap(s, i, written_at));
    }
  }
  return {};
}

Status check_rounding(const Schedule& s) {
  if (!s.has_wire_copies) return {};
  constexpr std::uint32_t kNobody = ~0U;
  std::vector<std::uint32_t> unsent(location_count(s), kNobody);  // the copy that rounded into it
  const auto refuse = [&](std::uint32_t copy) {
    return bad(s, copy, "rounds a value that no message carries");
  };
  for (std::uint32_t i = 0; i < s.steps.size(); ++i) {
    const Step& step = s.steps[i];
    const auto sources = s.sources_of(step);
    if (step.verb == Verb::send && sources[0].is_wire) {
      for (std::uint32_t k = 0; k < sources[0].count; ++k) unsent[location(s, sources[0], k)] = kNobody;
    }
    if (!writes(step.verb) || !step.dst.is_wire) continue;
    if (step.verb == Verb::reduce) return bad(s, i, "forms a sum in the wire dtype");
    if (step.verb == Verb::copy) {
      Slice original = step.dst;
      original.is_wire = false;
      if (sources[0] != original) return bad(s, i, "writes the wire copy of another location");
    }
    for (std::uint32_t k = 0; k < step.dst.count; ++k) {
      std::uint32_t& at = unsent[location(s, step.dst, k)];
      if (at != kNobody) return refuse(at);
      if (step.verb == Verb::copy) at = i;
    }
  }
  const Window results = result_window(s);
  for (std::uint32_t atom = results.first; atom < results.first + results.count; ++atom)
    unsent[location(s, {.first = atom, .is_wire = true}, 0)] = kNobody;
  const auto left =
      std::find_if(unsent.begin(), unsent.end(), [](std::uint32_t copy) { return copy != kNobody; });
  return left == unsent.end() ? Status() : refuse(*left);
}

OrderSearch::OrderSearch(const Schedule& s)
    : s_(s), previous_(s.steps.size(), kNone), seen_(s.steps.size(), 0) {
  std::vector<std::uint32_t> last(s.channels, kNone);
  for (std::uint32_t i = 0; i < s.steps.size(); ++i) {
    previous_[i] = last[s.steps[i].channel];
    last[s.steps[i].channel] = i;
  }
}

bool OrderSearch::is_complete_before(std::uint32_t first, std::uint32_t second) {
  ++search_;
  todo_.assign(1, second);
  while (!todo_.empty()) {
    const std::uint32_t at = todo_.back();
    todo_.pop_back();
    for (const std::uint32_t d : s_.dependencies_of(s_.steps[at])) {
      if (d == first) return true;
      push(d, first);
    }
    const std::uint32_t before = previous_[at];
    if (before == kNone) continue;
    if (before == first && !is_message(s_.steps[before].verb)) return true;
    push(before, first);
  }
  return false;
}

void OrderSearch::push(std::uint32_t step, std::uint32_t first) {
  if (step <= first || seen_[step] == search_) return;  // what is earlier cannot imply `first`
  seen_[step] = search_;
  todo_.push_back(step);
}

namespace {

// A location that both steps touch, one of them writing: for the message.
std::string shared_location(const Schedule& s, const Step& a, const Step& b) {
  const auto touches = [&s](const Step& step, std::uint32_t where) {
    const auto in = [&](const Slice& slice) {
      for (std::uint32_t k = 0; k < slice.count; ++k)
        if (location(s, slice, k) == where) return true;
      return false;
    };
    if (writes(step.verb) && in(step.dst)) return true;
    const auto sources = s.sources_of(step);
    return std::any_of(sources.begin(), sources.end(), in);
  };
  for (const auto& [writer, other] : {std::pair{&a, &b}, std::pair{&b, &a}}) {
    if (!writes(writer->verb)) continue;
    for (std::uint32_t k = 0; k < writer->dst.count; ++k) {
      if (touches(*other, location(s, writer->dst, k)))
        return describe_location(s, location(s, writer->dst, k));
    }
  }
  return "a location";
}

}  // namespace

Status check_local_order(const Schedule& s) {
  // Orders that program order demands. Neighbouring conflicts suffice, because the relation is transitive.
  Schedule wanted = s;
  infer_dependencies(wanted);
  OrderSearch order(s);
  for (std::uint32_t i = 0; i < s.steps.size(); ++i) {
    const auto given = s.dependencies_of(s.steps[i]), asked = wanted.dependencies_of(wanted.steps[i]);
    if (std::equal(given.begin(), given.end(), asked.begin(), asked.end())) continue;
    for (std::uint32_t d : asked) {
      if (std::find(given.begin(), given.end(), d) != given.end() || order.is_complete_before(d, i)) continue;
      return bad(
          s, i,
          fmt::format("may run before step {} ({}) is complete, and both touch {}: a dependency is missing",
                      d, to_text(s, s.steps[d]), shared_location(s, s.steps[d], s.steps[i])));
    }
  }
  return {};
}

}  // namespace tutti::detail
