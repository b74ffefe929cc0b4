// Prices of rows: emission, the search for symmetry, and the sum of a path. The walk itself is in
// cost_walk.cpp.
#include "runtime/selection/cost.hpp"

#include <algorithm>
#include <bit>
#include <functional>

#include <fmt/format.h>

#include "runtime/schedule/passes/lower.hpp"
#include "runtime/schedule/passes/segment.hpp"
#include "runtime/selection/cost_walk.hpp"

namespace tutti {
namespace {

Result<Schedule> emit(const PricedCall& call, std::uint32_t size, std::uint32_t rank) {
  CollectiveSpec spec;
  spec.collective = call.row->collective;
  const GroupView view{rank, size, 0, 1, nullptr, call.hierarchy};
  auto schedule = call.row->emit(spec, view, call.params);
  if (!schedule || call.params.segments <= 1 || !has_segment_pass(*call.row)) return schedule;
  return segment(*schedule, call.params.segments, call.params.channels);
}

using detail::Symmetry;

// Is that rank's schedule the one of the rank that stands for it?
bool is_alike(const Schedule& s, const Schedule& other, Symmetry symmetry) {
  if (s.steps.size() != other.steps.size() || s.dependencies != other.dependencies) return false;
  for (std::size_t i = 0; i < s.steps.size(); ++i) {
    const Step &a = s.steps[i], &b = other.steps[i];
    if (a.verb != b.verb || a.channel != b.channel || a.source_count != b.source_count ||
        a.dependency_count != b.dependency_count || a.dst.count != b.dst.count)
      return false;
    const auto sources = s.sources_of(a), others = other.sources_of(b);
    for (std::size_t k = 0; k < sources.size(); ++k) {
      if (sources[k].count != others[k].count) return false;
    }
    if (a.verb != Verb::send && a.verb != Verb::recv) continue;
    if (detail::displacement(symmetry, s.rank, a.peer, s.size) !=
        detail::displacement(symmetry, other.rank, b.peer, s.size))
      return false;
  }
  return true;
}

// The smallest k such that rank r is placed as rank r - k is. 1 where all ranks are equally far from each
// other and share nothing; the ranks of a node where all nodes are alike; else all.
std::uint32_t period_of(const Places& places, bool is_node_shared) {
  const std::uint32_t size = places.size();
  if (places.is_uniform()) {
    const Level level = places.level(0, size - 1);
    return level == Level::network || !is_node_shared ? 1 : size;
  }
  std::uint32_t period = 1;
  while (period < size && places.node[period] == places.node[0]) ++period;
  if (size % period != 0) return size;
  for (std::uint32_t rank = 1; rank < size; ++rank) {
    const std::uint32_t in_node = rank % period;
    const Level before = places.level(rank - 1, rank);
    // Neighbours in rank are neighbours in place: levels from one rank to the next tell nodes and caches.
    if (before != (in_node == 0 ? Level::network : places.level(in_node - 1, in_node))) return size;
  }
  return period;
}

// Whether the first ranks, which are given, stand for all. Compared with some of the others only: this is a
// prediction, and where ranks differ at all their neighbours do.
bool stand_for_all(const PricedCall& call, std::uint32_t size, std::span<const Schedule> first,
                   Symmetry symmetry) {
  const auto k = static_cast<std::uint32_t>(first.size());
  if (symmetry == Symmetry::exclusive_or && (!std::has_single_bit(size) || !std::has_single_bit(k)))
    return false;
  const auto is_as_expected = [&](std::uint32_t rank) {
    const auto schedule = emit(call, size, rank);
    return schedule && is_alike(*schedule, first[rank % k], symmetry);
  };
  // All of the next ones: the root of a tree, say, is among the first.
  for (std::uint32_t rank = k; rank < std::min(2 * k, size); ++rank) {
    if (!is_as_expected(rank)) return false;
  }
  for (const std::uint32_t turn : {2U, 3U, size / k / 3, size / k / 2, size / k - 1}) {
    const std::uint32_t in_first = turn * 5 % k;  // a few of a node's ranks
    if (turn > 0 && turn < size / k && !is_as_expected(turn * k + in_first)) return false;
  }
  return is_as_expected(size - 1);
}

// Appends the schedules of ranks up to `count`; `is_too_long` if a walk would have more steps than it may.
Status emit_up_to(const PricedCall& call, std::uint32_t size, std::uint32_t count,
                  std::vector<Schedule>& ranks, bool& is_too_long) {
  std::uint64_t steps = 0;
  for (const Schedule& schedule : ranks) steps += schedule.steps.size();
  while (ranks.size() < count) {
    auto schedule = emit(call, size, static_cast<std::uint32_t>(ranks.size()));
    if (!schedule) return schedule.status();
    steps += schedule->steps.size();
    // The first rank tells how many there will be.
    const std::uint64_t expected = schedule->steps.size() * std::uint64_t{count} / 2;
    is_too_long = std::max(steps, expected) > kMostWalkedSteps;
    if (is_too_long) return {};
    ranks.push_back(*std::move(schedule));
  }
  return {};
}

// Into the form that runs in shared memory. Messages carry schedules of too many steps.
Status lower(std::vector<Schedule>& ranks) {
  std::uint64_t steps = 0;
  for (const Schedule& schedule : ranks) steps += schedule.steps.size();
  if (steps > most_lowered_steps(static_cast<std::uint32_t>(ranks.size()))) return {};
  auto lowered = lower_for_shared_memory(ranks, Sharing::scratch);
  if (!lowered) return lowered.status();
  ranks = *std::move(lowered);
  return {};
}

std::uint64_t latency_at(const PathCounts& path, const CostModel& model, std::size_t level) {
  const LinkCost& link = model.links[level];
  const LineCost& line = model.lines[level];
  const PathCounts::AtLevel& at = path.levels[level];
  return at.latencies * link.latency_ps + at.messages * link.message_ps +
         at.line_transfers * line.transfer_ps + at.further_lines * line.further_ps;
}

std::uint64_t bytes_at(const PathCounts& path, const CostModel& model, std::size_t level) {
  const LinkCost& link = model.links[level];
  const LineCost& line = model.lines[level];
  const PathCounts::AtLevel& at = path.levels[level];
  return detail::of_kib(at.bytes, link.kib_ps) + detail::of_kib(at.shared_bytes, link.shared_kib_ps) +
         detail::of_kib(at.line_bytes, line.kib_ps) + detail::of_kib(at.crowd_bytes, line.crowd_kib_ps);
}

}  // namespace

std::string_view to_string(Level level) {
  constexpr std::array<std::string_view, kLevelCount> kNames = {"core",   "cache", "numa",
                                                                "socket", "node",  "network"};
  return kNames.at(static_cast<std::size_t>(level));
}

bool Places::is_uniform() const {
  const auto is_one = [](const std::vector<std::uint32_t>& numbers) {
    return std::adjacent_find(numbers.begin(), numbers.end(), std::not_equal_to<>()) == numbers.end();
  };
  const auto is_each = [](std::vector<std::uint32_t> numbers) {
    std::sort(numbers.begin(), numbers.end());
    return std::adjacent_find(numbers.begin(), numbers.end()) == numbers.end();
  };
  if (!is_one(node)) return is_each(node);
  for (const auto* const part : {&core, &cache, &numa, &socket}) {
    if (part->empty() || is_each(*part)) continue;
    return is_one(*part);
  }
  return true;
}

void CostModel::complete() {
  constexpr std::size_t kNode = static_cast<std::size_t>(Level::node);
  const auto fill = [&](auto& figures) {
    const std::decay_t<decltype(figures[0])> none{};
    for (std::size_t i = kNode; i > 0; --i) {
      if (figures[i - 1] == none) figures[i - 1] = figures[i];
    }
    for (std::size_t i = 1; i <= kNode; ++i) {
      if (figures[i] == none) figures[i] = figures[i - 1];
    }
  };
  fill(links);
  const bool had_lines = has_lines();
  for (std::size_t i = 0; i <= kNode && !had_lines; ++i) {
    const LinkCost& link = links[i];
    lines[i] = {(link.latency_ps + link.message_ps) / 2, link.message_ps, link.kib_ps, 0};
  }
  fill(lines);
}

Places places_of(std::uint32_t size, std::uint32_t per_node) {
  Places places;
  for (std::uint32_t rank = 0; rank < size; ++rank) {
    places.node.push_back(rank / std::max(per_node, 1U));
    places.cache.push_back(rank);
  }
  return places;
}

Price price_path(const PathCounts& path, const CostModel& model) {
  Price price;
  price.path = path;
  price.latency_ps = model.call_ps;
  for (std::size_t i = 0; i < kLevelCount; ++i) {
    price.latency_ps += latency_at(path, model, i);
    price.bytes_ps += bytes_at(path, model, i);
  }
  price.bytes_ps += detail::of_kib(path.copied_bytes, model.copy_kib_ps);
  price.reduce_ps = detail::of_kib(path.reduced_bytes, model.reduce_kib_ps) +
                    detail::of_kib(path.cached_reduced_bytes, model.cached_reduce_kib_ps);
  price.total_ps = price.latency_ps + price.bytes_ps + price.reduce_ps;
  return price;
}

std::uint64_t price_level(const PathCounts& path, const CostModel& model, Level level) {
  const auto i = static_cast<std::size_t>(level);
  return latency_at(path, model, i) + bytes_at(path, model, i);
}

Result<Price> price_schedules(std::span<const Schedule> ranks, std::uint64_t bytes, const Places& places,
                              const CostModel& model, std::vector<std::vector<std::uint64_t>>* ends) {
  return detail::walk(ranks, Symmetry::shift, bytes, places, model, ends);
}

Result<Program> Program::make(const PricedCall& call, const Places& places, bool is_node_shared) {
  const std::uint32_t size = places.size();
  Program program;
  program.collective_ = call.row->collective;
  program.claim_ = claim_of(*call.row, size, call.params, call.hierarchy);
  std::vector<Schedule> ranks;
  bool is_too_long = false;
  if (!call.is_lowered && !is_rooted(call.row->collective)) {
    // Some patterns differ between even and odd ranks, so twice the period is tried, too.
    const std::uint32_t period = period_of(places, is_node_shared);
    for (const std::uint32_t first : {period, 2 * period}) {
      if (first >= size || size % first != 0 || is_too_long) break;
      TUTTI_RETURN_IF_ERROR(emit_up_to(call, size, first, ranks, is_too_long));
      for (const Symmetry symmetry : {Symmetry::shift, Symmetry::exclusive_or}) {
        if (is_too_long || !stand_for_all(call, size, ranks, symmetry)) continue;
        program.ranks_ = std::move(ranks);
        program.is_butterfly_ = symmetry == Symmetry::exclusive_or;
        return program;
      }
    }
  }
  if (!is_too_long) TUTTI_RETURN_IF_ERROR(emit_up_to(call, size, size, ranks, is_too_long));
  if (is_too_long) return program;
  if (call.is_lowered && size > 1) TUTTI_RETURN_IF_ERROR(lower(ranks));
  program.ranks_ = std::move(ranks);
  return program;
}

Result<Price> Program::price(std::uint64_t bytes, const Places& places, const CostModel& model) const {
  if (ranks_.empty()) return estimate(bytes, places, model);
  return detail::walk(ranks_, is_butterfly_ ? Symmetry::exclusive_or : Symmetry::shift, bytes, places, model);
}

Price Program::estimate(std::uint64_t bytes, const Places& places, const CostModel& model) const {
  const std::uint32_t last = places.size() - 1;
  const Level level = places.level(0, last);
  PathCounts path;
  auto& at = path.levels[static_cast<std::size_t>(level)];
  const std::uint64_t blocks = std::max<std::uint64_t>(claim_.blocks, 1);
  at.latencies = at.messages = claim_.rounds;
  at.bytes = bytes / blocks * claim_.sent_blocks + bytes % blocks * claim_.sent_blocks / blocks;
  // The NIC carries the messages of all its ranks.
  const auto mates = std::count(places.node.begin(), places.node.end(), places.node[0]);
  if (level == Level::network && mates > 1 && model.link(level).shared_kib_ps != 0) {
    at.shared_bytes = at.bytes * static_cast<std::uint64_t>(mates);
    at.bytes = 0;
  }
  if (is_reducing(collective_)) {
    // Where blocks go around in two halves, one half adds.
    const bool is_in_halves = collective_ == Collective::allreduce && claim_.blocks > 1;
    path.reduced_bytes =
        (at.bytes + at.shared_bytes / static_cast<std::uint64_t>(mates)) / (is_in_halves ? 2 : 1);
  }
  Price price = price_path(path, model);
  price.is_estimate = true;
  return price;
}

Result<Price> price_call(const PricedCall& call, const Places& places, const CostModel& model) {
  const bool is_node_shared =
      model.link(Level::cache).shared_kib_ps != 0 || model.link(Level::node).shared_kib_ps != 0;
  const auto program = Program::make(call, places, is_node_shared);
  if (!program) return program.status();
  return program->price(call.bytes, places, model);
}

}  // namespace tutti
