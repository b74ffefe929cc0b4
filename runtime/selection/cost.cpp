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

// How rank r's schedule follows from rank 0's: peers shifted by r, or combined with r.
enum class Symmetry : std::uint8_t { shift, exclusive_or };

// How far the peer of each of rank 0's steps is, as seen from the sender; empty where the symmetry cannot be.
std::vector<std::uint32_t> distances_of(const Schedule& of_rank_0, Symmetry symmetry) {
  const std::uint32_t p = of_rank_0.size;
  std::vector<std::uint32_t> distances;
  if (p < 2 || (symmetry == Symmetry::exclusive_or && !std::has_single_bit(p))) return distances;
  for (const Step& step : of_rank_0.steps) {
    const bool is_mirrored = symmetry == Symmetry::shift && step.verb == Verb::recv;
    distances.push_back(is_mirrored ? (p - step.peer) % p : step.peer);
  }
  return distances;
}

bool has_shape_of(const Schedule& s, const Schedule& of_rank_0, std::span<const std::uint32_t> distances,
                  Symmetry symmetry) {
  if (s.steps.size() != of_rank_0.steps.size() || s.dependencies != of_rank_0.dependencies) return false;
  for (std::size_t i = 0; i < s.steps.size(); ++i) {
    const Step &a = s.steps[i], &b = of_rank_0.steps[i];
    if (a.verb != b.verb || a.channel != b.channel || a.source_count != b.source_count ||
        a.dependency_count != b.dependency_count || a.dst.count != b.dst.count)
      return false;
    const auto sources = s.sources_of(a), others = of_rank_0.sources_of(b);
    for (std::size_t k = 0; k < sources.size(); ++k) {
      if (sources[k].count != others[k].count) return false;
    }
    if (a.verb != Verb::send && a.verb != Verb::recv) continue;
    const std::uint32_t distance = symmetry == Symmetry::exclusive_or ? a.peer ^ s.rank
                                   : a.verb == Verb::send             ? (a.peer + s.size - s.rank) % s.size
                                                                      : (s.rank + s.size - a.peer) % s.size;
    if (distance != distances[i]) return false;
  }
  return true;
}

// Compared with some ranks only: this is a prediction, and where ranks differ at all their neighbours do.
bool is_alike(const PricedCall& call, std::uint32_t size, const Schedule& of_rank_0,
              std::span<const std::uint32_t> distances, Symmetry symmetry) {
  for (const std::uint32_t rank : {1U, 2U, 3U, size / 3, size / 2, size / 2 + 1, size - 2, size - 1}) {
    if (rank == 0 || rank >= size) continue;
    const auto schedule = emit(call, size, rank);
    if (!schedule || !has_shape_of(*schedule, of_rank_0, distances, symmetry)) return false;
  }
  return true;
}

// Is every rank as far from every other, with a way of its own? Then symmetric schedules take equally long.
bool stands_for_all(const PricedCall& call, const Places& places, const CostModel& model) {
  if (call.is_lowered || is_rooted(call.row->collective) || !places.is_uniform()) return false;
  const Level level = places.level(0, places.size() - 1);
  return level == Level::network || model.link(level).shared_kib_ps == 0;
}

}  // namespace

std::string_view to_string(Level level) {
  return level == Level::cache ? "cache" : level == Level::node ? "node" : "network";
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
  return is_one(cache) || is_each(cache);
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
    const LinkCost& link = model.links[i];
    const PathCounts::AtLevel& at = path.levels[i];
    price.latency_ps += at.latencies * link.latency_ps + at.messages * link.message_ps;
    price.bytes_ps +=
        detail::of_kib(at.bytes, link.kib_ps) + detail::of_kib(at.shared_bytes, link.shared_kib_ps);
  }
  price.bytes_ps += detail::of_kib(path.copied_bytes, model.copy_kib_ps);
  price.reduce_ps = detail::of_kib(path.reduced_bytes, model.reduce_kib_ps);
  price.total_ps = price.latency_ps + price.bytes_ps + price.reduce_ps;
  return price;
}

Result<Price> price_schedules(std::span<const Schedule> ranks, std::uint64_t bytes, const Places& places,
                              const CostModel& model) {
  return detail::walk_all(ranks, bytes, places, model);
}

Result<Price> price_call(const PricedCall& call, const Places& places, const CostModel& model) {
  const std::uint32_t size = places.size();
  auto first = emit(call, size, 0);
  if (!first) return first.status();
  if (stands_for_all(call, places, model)) {
    for (const Symmetry symmetry : {Symmetry::shift, Symmetry::exclusive_or}) {
      const auto distances = distances_of(*first, symmetry);
      if (!distances.empty() && is_alike(call, size, *first, distances, symmetry))
        return detail::walk_one(*first, distances, call.bytes, places, model);
    }
  }
  std::vector<Schedule> ranks;
  std::uint64_t steps = first->steps.size();
  ranks.push_back(*std::move(first));
  for (std::uint32_t rank = 1; rank < size; ++rank) {
    auto schedule = emit(call, size, rank);
    if (!schedule) return schedule.status();
    steps += schedule->steps.size();
    if (steps > kMostWalkedSteps)
      return unsupported(fmt::format("more than {} steps in all ranks' schedules", kMostWalkedSteps));
    ranks.push_back(*std::move(schedule));
  }
  if (call.is_lowered && size > 1) {
    auto lowered = lower_for_shared_memory(ranks, Sharing::scratch);
    if (!lowered) return lowered.status();
    ranks = *std::move(lowered);
  }
  return detail::walk_all(ranks, call.bytes, places, model);
}

}  // namespace tutti
