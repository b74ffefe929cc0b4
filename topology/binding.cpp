// The policies of binding. Knows values only; see binding.hpp.
//
// Everything is in positions of PUs. A *core* is what is allowed of a core; a *unit* is what a policy gives
// ranks: a set of cores. Ranks go to units by `assign`, so all policies share what order means and what
// happens where ranks outnumber units.
#include "topology/binding.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "topology/nearby.hpp"

namespace tutti {
namespace {

using Pus = std::vector<std::uint32_t>;
using Cores = std::vector<Pus>;
using Partition = std::vector<PuRange>;

// -- the machine, as far as it is allowed -------------------------------------------------------------------

Cores allowed_cores(const Topology& topology, const Pus& within) {
  Cores cores;
  for (const PuRange& core : topology.cores) {
    Pus pus;
    for (std::uint32_t pu = core.first; pu < core.end(); ++pu) {
      if (std::binary_search(within.begin(), within.end(), pu)) pus.push_back(pu);
    }
    if (!pus.empty()) cores.push_back(std::move(pus));
  }
  return cores;
}

Pus joined(const Cores& cores, std::size_t first, std::size_t end) {
  Pus pus;
  for (std::size_t i = first; i < end; ++i) pus.insert(pus.end(), cores[i].begin(), cores[i].end());
  return pus;
}

std::size_t index_of(const Partition& partition, std::uint32_t pu) {
  const auto after = std::upper_bound(partition.begin(), partition.end(), pu,
                                      [](std::uint32_t p, const PuRange& range) { return p < range.first; });
  return static_cast<std::size_t>(after - partition.begin()) - 1;
}

// Neighbouring PUs that no object holds are one group, not one each, as far as `outer` allows.
template <class Objects>
Partition merge_uncovered(const Partition& partition, const Objects& objects, const Partition& outer) {
  const auto is_covered = [&](std::uint32_t pu) {
    return std::any_of(objects.begin(), objects.end(),
                       [&](const auto& object) { return object.pus.contains(pu); });
  };
  Partition merged;
  for (const PuRange& range : partition) {
    const bool goes_on = !merged.empty() && !is_covered(range.first) && !is_covered(merged.back().first) &&
                         index_of(outer, range.first) == index_of(outer, merged.back().first);
    if (goes_on) {
      merged.back().count += range.count;
    } else {
      merged.push_back(range);
    }
  }
  return merged;
}

Partition numa_partition(const Topology& topology) {
  return merge_uncovered(topology.groups_by_numa(), topology.numa_nodes, topology.sockets);
}

Partition l3_partition(const Topology& topology) {
  std::vector<Cache> l3;
  for (const Cache& cache : topology.caches) {
    if (cache.level == 3) l3.push_back(cache);
  }
  if (l3.empty()) return numa_partition(topology);
  return merge_uncovered(topology.groups_by_cache(3), l3, numa_partition(topology));
}

struct Border {
  Partition groups;
  bool is_of_memory = false;  // other memory, or another socket, lies behind it; else only another cache
};

// All borders that are worth keeping, the coarsest first.
std::vector<Border> borders_of(const Topology& topology) {
  std::vector<Border> borders = {{topology.sockets, true}, {numa_partition(topology), true}};
  for (std::uint32_t level = topology.last_level(); level >= 2; --level)
    borders.push_back({topology.groups_by_cache(level), false});
  std::stable_sort(borders.begin(), borders.end(),
                   [](const Border& a, const Border& b) { return a.groups.size() < b.groups.size(); });
  return borders;
}

// -- ranks to units -----------------------------------------------------------------------------------------

// Positions [first, end) of `count` things for the k-th of r sharers: at least one, also where they are
// fewer.
std::pair<std::size_t, std::size_t> slice(std::size_t k, std::size_t r, std::size_t count) {
  const std::size_t first = k * count / r;
  return {first, std::max(first + 1, (k + 1) * count / r)};
}

// An order of units, known by their first PUs, in which neighbours are as far apart as possible: from socket
// to socket in turn, inside of each from NUMA node to NUMA node, and so on.
std::vector<std::size_t> scattered(const std::vector<Border>& borders, std::size_t level,
                                   const Pus& first_pus, std::vector<std::size_t> units) {
  if (level == borders.size() || units.size() <= 1) return units;
  std::map<std::size_t, std::vector<std::size_t>> groups;
  for (const std::size_t unit : units)
    groups[index_of(borders[level].groups, first_pus[unit])].push_back(unit);
  std::vector<std::vector<std::size_t>> orders;
  orders.reserve(groups.size());
  for (auto& [index, members] : groups)
    orders.push_back(scattered(borders, level + 1, first_pus, std::move(members)));
  std::vector<std::size_t> order;
  for (std::size_t turn = 0; order.size() < units.size(); ++turn) {
    for (const std::vector<std::size_t>& group : orders) {
      if (turn < group.size()) order.push_back(group[turn]);
    }
  }
  return order;
}

struct Unit {
  std::uint32_t first_pu = 0;
  std::size_t capacity = 1;  // ranks that it takes before other units with room get their next
};

// The unit of each rank. Every unit gets one before any gets two.
std::vector<std::size_t> assign(const Topology& topology, const std::vector<Unit>& units,
                                std::uint32_t rank_count, PinOrder order) {
  std::vector<std::size_t> sequence(units.size());
  std::iota(sequence.begin(), sequence.end(), std::size_t{0});
  if (order == PinOrder::scatter) {
    Pus first_pus;
    for (const Unit& unit : units) first_pus.push_back(unit.first_pu);
    sequence = scattered(borders_of(topology), 0, first_pus, std::move(sequence));
  }
  std::vector<std::size_t> ranks;
  for (std::size_t turn = 0; ranks.size() < rank_count; ++turn) {
    const std::size_t before = ranks.size();
    for (const std::size_t unit : sequence) {
      if (turn < units[unit].capacity && ranks.size() < rank_count) ranks.push_back(unit);
    }
    if (ranks.size() == before)
      turn = static_cast<std::size_t>(-1);  // all are full: once more from the start
  }
  if (order == PinOrder::compact) std::stable_sort(ranks.begin(), ranks.end());
  return ranks;
}

// -- policies -----------------------------------------------------------------------------------------------

// Each rank has its unit whole, together with the others there.
std::vector<Pus> place_in(const Topology& topology, const Partition& partition, std::uint32_t rank_count,
                          PinOrder order) {
  const Pus allowed = topology.allowed_pus();
  std::vector<Pus> sets;
  std::vector<Unit> units;
  for (const PuRange& range : partition) {
    Pus pus;
    for (const std::uint32_t pu : allowed) {
      if (range.contains(pu)) pus.push_back(pu);
    }
    if (pus.empty()) continue;
    units.push_back({pus.front(), allowed_cores(topology, pus).size()});
    sets.push_back(std::move(pus));
  }
  std::vector<Pus> places;
  for (const std::size_t unit : assign(topology, units, rank_count, order)) places.push_back(sets[unit]);
  return places;
}

// A core for each rank; those that have to share one share out its threads.
std::vector<Pus> place_on_cores(const Topology& topology, const Cores& cores, std::uint32_t rank_count,
                                PinOrder order) {
  std::vector<Unit> units;
  for (const Pus& core : cores) units.push_back({core.front(), core.size()});
  const std::vector<std::size_t> core_of = assign(topology, units, rank_count, order);
  std::vector<std::size_t> sharers(cores.size()), seen(cores.size());
  for (const std::size_t core : core_of) ++sharers[core];
  std::vector<Pus> places;
  for (const std::size_t core : core_of) {
    const auto [first, end] = slice(seen[core]++, sharers[core], cores[core].size());
    places.emplace_back(cores[core].begin() + static_cast<std::ptrdiff_t>(first),
                        cores[core].begin() + static_cast<std::ptrdiff_t>(end));
  }
  return places;
}

// Where the groups of a border end, in cores.
std::vector<std::size_t> ends_of(const Border& border, const Cores& cores) {
  std::vector<std::size_t> ends;
  for (std::size_t i = 1; i <= cores.size(); ++i) {
    if (i == cores.size() ||
        index_of(border.groups, cores[i].front()) != index_of(border.groups, cores[i - 1].front()))
      ends.push_back(i);
  }
  return ends;
}

// Cuts cores into runs of groups and assigns a number of ranks to each run. With more groups than ranks each
// rank gets a run of several groups. Else each group gets one rank, and each further rank goes where its
// share is largest.
struct Run {
  std::size_t first = 0, end = 0;
  std::size_t weight = 0;
  std::uint32_t rank_count = 1;
};

// Units that ranks share out: cores as long as there are enough, else hardware threads. Cores may differ in
// these: performance cores beside efficiency cores, or a cpuset with half of some cores.
std::size_t weight_of(const Cores& cores, std::size_t first, std::size_t end, bool is_by_threads) {
  if (!is_by_threads) return end - first;
  std::size_t threads = 0;
  for (std::size_t i = first; i < end; ++i) threads += cores[i].size();
  return threads;
}

std::vector<Run> cut_at(const std::vector<std::size_t>& ends, const Cores& cores, std::uint32_t rank_count) {
  const bool is_by_threads = rank_count > cores.size();
  std::vector<Run> runs;
  const std::size_t run_count = std::min<std::size_t>(ends.size(), rank_count);
  for (std::size_t i = 0; i < run_count; ++i) {
    const auto [first_group, end_group] = slice(i, run_count, ends.size());
    const std::size_t first = first_group == 0 ? 0 : ends[first_group - 1], end = ends[end_group - 1];
    runs.push_back({first, end, weight_of(cores, first, end, is_by_threads), 1});
  }
  for (std::size_t rank = run_count; rank < rank_count; ++rank) {
    Run* best = &runs[0];
    for (Run& run : runs) {
      if (run.weight * (best->rank_count + 1) > best->weight * (run.rank_count + 1)) best = &run;
    }
    ++best->rank_count;
  }
  return runs;
}

// Would some rank of the run have fewer cores (or threads) than it could, or share one with more others?
bool costs_somebody(const Run& run, std::size_t whole_weight, std::uint32_t rank_count) {
  const auto most_sharers = [](std::size_t ranks, std::size_t weight) {
    return (ranks + weight - 1) / weight;
  };
  return run.weight / run.rank_count < whole_weight / rank_count ||
         most_sharers(run.rank_count, run.weight) > most_sharers(rank_count, whole_weight);
}

// Shares cores out to ranks, in machine order. As far as possible no rank has cores on both sides of a
// border. A border of caches is ignored where it would cost some rank a core.
void share_out(const Topology& topology, const std::vector<Border>& borders, std::size_t level,
               const Cores& cores, std::uint32_t rank_count, std::vector<Pus>* places) {
  if (rank_count == 0) return;
  if (rank_count == 1) {
    places->push_back(joined(cores, 0, cores.size()));
    return;
  }
  if (level == borders.size()) {
    if (rank_count > cores.size()) {
      for (Pus& place : place_on_cores(topology, cores, rank_count, PinOrder::compact))
        places->push_back(std::move(place));
      return;
    }
    for (std::uint32_t rank = 0; rank < rank_count; ++rank) {
      const auto [first, end] = slice(rank, rank_count, cores.size());
      places->push_back(joined(cores, first, end));
    }
    return;
  }
  const std::vector<Run> runs = cut_at(ends_of(borders[level], cores), cores, rank_count);
  const std::size_t whole_weight = weight_of(cores, 0, cores.size(), rank_count > cores.size());
  const bool costs_cores = std::any_of(runs.begin(), runs.end(), [&](const Run& run) {
    return costs_somebody(run, whole_weight, rank_count);
  });
  if (costs_cores && !borders[level].is_of_memory)
    return share_out(topology, borders, level + 1, cores, rank_count, places);
  for (const Run& run : runs) {
    const Cores part(cores.begin() + static_cast<std::ptrdiff_t>(run.first),
                     cores.begin() + static_cast<std::ptrdiff_t>(run.end));
    share_out(topology, borders, level + 1, part, run.rank_count, places);
  }
}

std::vector<Pus> place_evenly(const Topology& topology, const Pus& allowed, std::uint32_t rank_count,
                              PinOrder order) {
  std::vector<Pus> slots;
  share_out(topology, borders_of(topology), 0, allowed_cores(topology, allowed), rank_count, &slots);
  std::vector<Unit> units;
  units.reserve(slots.size());
  for (const Pus& slot : slots) units.push_back({slot.front(), 1});
  std::vector<Pus> places;
  for (const std::size_t slot : assign(topology, units, rank_count, order)) places.push_back(slots[slot]);
  return places;
}

// The GPU of each rank by its number, in turn where ranks outnumber GPUs, as programs choose theirs; and a
// share of the cores next to it. Ranks of one GPU, or of several in one place, divide these cores. GPUs next
// to fewer cores come first, so that their cores are not given to a GPU that is next to more.
std::vector<Pus> place_at_gpus(const Topology& topology, std::uint32_t rank_count, PinOrder order,
                               std::vector<std::uint32_t>* gpus) {
  const std::vector<std::uint32_t> all = topology.devices_of(Device::Kind::gpu);
  std::vector<Unit> units;
  units.reserve(all.size());
  for (const std::uint32_t gpu : all) units.push_back({topology.devices[gpu].pus.first, 1});
  const std::vector<std::size_t> turns =
      assign(topology, units, static_cast<std::uint32_t>(all.size()), order);
  for (std::uint32_t rank = 0; rank < rank_count; ++rank) gpus->push_back(all[turns[rank % turns.size()]]);
  const auto by_size = [](const PuRange& a, const PuRange& b) {
    return std::pair(a.count, a.first) < std::pair(b.count, b.first);
  };
  std::map<PuRange, std::vector<std::uint32_t>, decltype(by_size)> ranks_of(by_size);
  for (std::uint32_t rank = 0; rank < rank_count; ++rank)
    ranks_of[topology.devices[(*gpus)[rank]].pus].push_back(rank);
  const Pus allowed = topology.allowed_pus();
  Pus taken;
  std::vector<Pus> places(rank_count);
  for (const auto& [range, ranks] : ranks_of) {
    Pus near, free;
    for (const std::uint32_t pu : allowed) {
      if (range.contains(pu)) near.push_back(pu);
    }
    if (near.empty()) near = allowed;
    std::set_difference(near.begin(), near.end(), taken.begin(), taken.end(), std::back_inserter(free));
    if (free.empty()) free = near;
    const auto count = static_cast<std::uint32_t>(ranks.size());
    const std::vector<Pus> shares = place_evenly(topology, free, count, PinOrder::compact);
    for (std::uint32_t i = 0; i < count; ++i) places[ranks[i]] = shares[i];
    taken.insert(taken.end(), free.begin(), free.end());
    std::sort(taken.begin(), taken.end());
  }
  return places;
}

Result<std::vector<Pus>> place_by_list(const Topology& topology, std::uint32_t rank_count,
                                       const PinRequest& request) {
  if (request.list.size() < rank_count) {
    return invalid_argument(
        fmt::format("the list has {} entries for {} ranks of this node", request.list.size(), rank_count));
  }
  std::vector<Pus> places;
  for (std::uint32_t rank = 0; rank < rank_count; ++rank) {
    Pus pus;
    for (const std::uint32_t cpu : request.list[rank]) {
      const auto pu = topology.find_pu(cpu);
      if (!pu) return invalid_argument(fmt::format("there is no CPU {}", cpu));
      if (!topology.pus[*pu].is_allowed)
        return invalid_argument(fmt::format("CPU {} is not allowed to this process", cpu));
      pus.push_back(*pu);
    }
    std::sort(pus.begin(), pus.end());
    places.push_back(std::move(pus));
  }
  return places;
}

// -- threads ------------------------------------------------------------------------------------------------

void count_threads(const Topology& topology, std::vector<Placement>* placements) {
  std::vector<std::uint32_t> users(topology.cores.size());
  const auto cores_of = [&](const Placement& placement) {
    std::vector<std::size_t> cores;
    for (const std::uint32_t pu : placement.pus) {
      const std::size_t core = index_of(topology.cores, pu);
      if (cores.empty() || cores.back() != core) cores.push_back(core);
    }
    return cores;
  };
  for (const Placement& placement : *placements) {
    for (const std::size_t core : cores_of(placement)) ++users[core];
  }
  for (Placement& placement : *placements) {
    double cores = 0;
    for (const std::size_t core : cores_of(placement)) cores += 1.0 / users[core];
    constexpr double kRounding = 1e-6;
    auto threads = static_cast<std::uint32_t>(cores + kRounding);
    if (topology.cpu_quota_milli > 0) {
      const std::uint64_t quota = topology.cpu_quota_milli / (std::uint64_t{1000} * placements->size());
      threads = static_cast<std::uint32_t>(std::min<std::uint64_t>(threads, quota));
    }
    placement.thread_count = std::max(1U, threads);
  }
}

}  // namespace

// Many decisions: one for each policy.
Result<std::vector<Placement>> plan_placements(const Topology& topology, std::uint32_t rank_count,
                                               const PinRequest& request) {
  const Pus allowed = topology.allowed_pus();
  if (allowed.empty()) return unsupported("no CPU of this topology is allowed");
  const std::vector<std::uint32_t> gpus = topology.devices_of(Device::Kind::gpu);
  PinPolicy policy = request.policy;
  if (policy == PinPolicy::automatic && gpus.size() == rank_count && rank_count > 1) policy = PinPolicy::gpu;
  std::vector<Pus> places;
  std::vector<std::uint32_t> gpu_of_rank;
  switch (policy) {
    case PinPolicy::off:
      places.assign(rank_count, allowed);
      break;
    case PinPolicy::automatic:
      places = place_evenly(topology, allowed, rank_count, request.order);
      break;
    case PinPolicy::core:
      places = place_on_cores(topology, allowed_cores(topology, allowed), rank_count, request.order);
      break;
    case PinPolicy::l3:
      places = place_in(topology, l3_partition(topology), rank_count, request.order);
      break;
    case PinPolicy::numa:
      places = place_in(topology, numa_partition(topology), rank_count, request.order);
      break;
    case PinPolicy::socket:
      places = place_in(topology, topology.sockets, rank_count, request.order);
      break;
    case PinPolicy::gpu:
      if (gpus.empty())
        return unsupported("no GPU of this machine is known; bind to numa or auto, which need none");
      places = place_at_gpus(topology, rank_count, request.order, &gpu_of_rank);
      break;
    case PinPolicy::list: {
      auto listed = place_by_list(topology, rank_count, request);
      if (!listed) return listed.status();
      places = *std::move(listed);
      break;
    }
  }
  const std::vector<std::uint32_t> nics = detail::usable_nics(topology);
  std::vector<std::uint32_t> loads(topology.devices.size());
  std::vector<Placement> placements(rank_count);
  for (std::uint32_t rank = 0; rank < rank_count; ++rank) {
    Placement& placement = placements[rank];
    placement.pus = std::move(places[rank]);
    placement.numa_nodes = detail::numa_nodes_of(topology, placement.pus);
    placement.gpu =
        gpu_of_rank.empty() ? detail::nearest_device(topology, gpus, placement, &loads) : gpu_of_rank[rank];
    placement.nic = detail::nearest_device(topology, nics, placement, &loads);
  }
  count_threads(topology, &placements);
  return placements;
}

std::string name_of(const Device& device) {
  return device.names.empty() ? device.address : device.names.front();
}

std::vector<std::uint32_t> cpus_of(const Topology& topology, const Placement& placement) {
  std::vector<std::uint32_t> cpus;
  for (const std::uint32_t pu : placement.pus) cpus.push_back(topology.pus[pu].os_index);
  std::sort(cpus.begin(), cpus.end());
  return cpus;
}

}  // namespace tutti
