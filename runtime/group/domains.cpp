// Maps ranks to CPUs, to caches and sockets, to domains. Knows values only.
#include "runtime/group/domains.hpp"

#include <algorithm>
#include <charconv>
#include <map>
#include <numeric>
#include <utility>

#include <fmt/format.h>

namespace tutti {
namespace {

// The system's number of the first PU in a range names the range on every rank of the node.
std::int32_t name_of(const Topology& topology, const PuRange& range) {
  std::uint32_t smallest = topology.pus[range.first].os_index;
  for (std::uint32_t pu = range.first; pu < range.end(); ++pu)
    smallest = std::min(smallest, topology.pus[pu].os_index);
  return static_cast<std::int32_t>(smallest);
}

RankDomains domains_of_pus(const Topology& topology, const std::vector<std::uint32_t>& pus) {
  RankDomains domains;
  const auto holds_all = [&](const PuRange& range) {
    return std::all_of(pus.begin(), pus.end(), [&](std::uint32_t pu) { return range.contains(pu); });
  };
  const Cache* cache = topology.last_level_cache_of(pus[0]);
  if (cache != nullptr && holds_all(cache->pus)) domains.cache = name_of(topology, cache->pus);
  for (const PuRange& socket : topology.sockets) {
    if (!holds_all(socket)) continue;
    domains.socket = name_of(topology, socket);
    for (const PuRange& numa : topology.groups_by_numa()) {
      if (holds_all(numa) && numa.count <= socket.count) domains.numa = name_of(topology, numa);
    }
  }
  const Cache* second = topology.cache_of(pus[0], 2);
  for (const PuRange& core : topology.cores) {
    const PuRange& part =
        second != nullptr && second != cache && second->pus.count > core.count ? second->pus : core;
    if (core.contains(pus[0]) && holds_all(part)) domains.core = name_of(topology, part);
  }
  return domains;
}

// Whether a hierarchy is useful: at least two domains with two members or more.
bool divides(const Hierarchy& hierarchy) {
  std::uint32_t several = 0;
  for (std::uint32_t d = 0; d < hierarchy.domain_count(); ++d)
    several += hierarchy.members(d).size() > 1 ? 1 : 0;
  return several >= 2;
}

}  // namespace

Result<HierarchySetting> parse_hierarchy(std::string_view text) {
  HierarchySetting setting;
  if (text == "auto") return setting;
  if (text == "off") {
    setting.kind = HierarchySetting::Kind::off;
    return setting;
  }
  setting.kind = HierarchySetting::Kind::sizes;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (true) {
    std::uint32_t ranks = 0;
    const auto [next, error] = std::from_chars(at, end, ranks);
    const bool is_good = error == std::errc() && ranks > 0 && (next == end || *next == ',');
    if (!is_good)
      return invalid_argument("expected auto, off, or the sizes of domains in rank order, such as 2,2,3");
    setting.sizes.push_back(ranks);
    if (next == end) return setting;
    at = next + 1;
  }
}

RankDomains find_domains(const Topology& topology, std::span<const std::uint32_t> cpus,
                         std::uint32_t local_rank, std::uint32_t local_size) {
  std::vector<std::uint32_t> pus;
  if (topology.is_this_machine) {
    for (const std::uint32_t cpu : cpus) {
      const auto pu = topology.find_pu(cpu);
      if (!pu) return {};
      pus.push_back(*pu);
    }
  } else if (local_size > 0) {
    const std::uint64_t core = std::uint64_t{local_rank} * topology.cores.size() / local_size;
    if (core < topology.cores.size()) pus.push_back(topology.cores[core].first);
  }
  if (pus.empty()) return {};
  return domains_of_pus(topology, pus);
}

Status WorldDomains::check() const {
  if (setting.kind != HierarchySetting::Kind::sizes) return {};
  const std::uint64_t sum = std::accumulate(setting.sizes.begin(), setting.sizes.end(), std::uint64_t{0});
  if (sum == ranks.size()) return {};
  return invalid_argument(
      fmt::format("TUTTI_HIERARCHY='{}': the sizes add up to {}; expected the number of ranks, {}",
                  fmt::join(setting.sizes, ","), sum, ranks.size()));
}

bool WorldDomains::spans_nodes(std::span<const int> world_ranks) const {
  return std::any_of(world_ranks.begin(), world_ranks.end(), [&](int rank) {
    return nodes[static_cast<std::size_t>(rank)] != nodes[static_cast<std::size_t>(world_ranks[0])];
  });
}

bool WorldDomains::shares_cpus(std::span<const int> world_ranks) const {
  return std::any_of(world_ranks.begin(), world_ranks.end(), [&](int rank) {
    return is_crowded.size() > static_cast<std::size_t>(rank) && is_crowded[static_cast<std::size_t>(rank)];
  });
}

bool WorldDomains::spans_sockets(std::span<const int> world_ranks) const {
  const auto socket_of = [&](int rank) { return ranks[static_cast<std::size_t>(rank)].socket; };
  const bool is_known = std::all_of(world_ranks.begin(), world_ranks.end(),
                                    [&](int rank) { return socket_of(rank) != RankDomains::kSeveral; });
  return is_known && std::any_of(world_ranks.begin(), world_ranks.end(),
                                 [&](int rank) { return socket_of(rank) != socket_of(world_ranks[0]); });
}

Places WorldDomains::places_of(std::span<const int> world_ranks) const {
  Places places;
  const auto size = static_cast<std::uint32_t>(world_ranks.size());
  for (std::uint32_t i = 0; i < size; ++i) {
    const auto rank = static_cast<std::size_t>(world_ranks[i]);
    const auto label = [&](std::int32_t number) {
      constexpr std::uint32_t kAlone = 1U << 31U;  // shares it with nobody
      return number == RankDomains::kSeveral ? kAlone + i : static_cast<std::uint32_t>(number);
    };
    places.node.push_back(static_cast<std::uint32_t>(nodes[rank]));
    places.core.push_back(label(ranks[rank].core));
    places.cache.push_back(label(ranks[rank].cache));
    places.numa.push_back(label(ranks[rank].numa));
    places.socket.push_back(label(ranks[rank].socket));
  }
  return places;
}

Hierarchy WorldDomains::hierarchy_of(std::span<const int> world_ranks) const {
  if (setting.kind == HierarchySetting::Kind::off) return {};
  if (setting.kind == HierarchySetting::Kind::sizes) {
    const Hierarchy world = Hierarchy::of_sizes(setting.sizes);
    std::vector<std::uint32_t> labels;
    for (const int rank : world_ranks) labels.push_back(world.domain_of(static_cast<std::uint32_t>(rank)));
    return Hierarchy(labels);
  }
  if (spans_nodes(world_ranks)) {
    std::vector<std::uint32_t> labels;
    for (const int rank : world_ranks)
      labels.push_back(static_cast<std::uint32_t>(nodes[static_cast<std::size_t>(rank)]));
    Hierarchy hierarchy(labels);
    return hierarchy.is_flat() ? Hierarchy() : hierarchy;
  }
  // So many ranks of a domain may signal one leader; in larger domains clusters do so first.
  constexpr std::uint32_t kMostTogether = 16, kCluster = 8;
  const Hierarchy hierarchy = levels_from(0, world_ranks).with_joined();
  return hierarchy.size() > 0 && hierarchy.largest_domain() > kMostTogether
             ? hierarchy.with_clusters(kCluster)
             : hierarchy;
}

// The domains of the first kind that divides these ranks, and above them those of the kinds behind it.
Hierarchy WorldDomains::levels_from(std::size_t first, std::span<const int> world_ranks) const {
  constexpr std::int32_t RankDomains::*kKinds[] = {&RankDomains::cache, &RankDomains::numa,
                                                   &RankDomains::socket};
  for (std::size_t i = first; i < std::size(kKinds); ++i) {
    std::map<std::pair<int, std::int32_t>, std::uint32_t> label_of;
    std::vector<std::uint32_t> labels;
    std::vector<int> firsts;  // a rank of each domain
    for (const int rank : world_ranks) {
      const auto at = static_cast<std::size_t>(rank);
      if (ranks[at].*kKinds[i] == RankDomains::kSeveral) break;
      const auto label = static_cast<std::uint32_t>(label_of.size());
      const auto [found, is_new] = label_of.try_emplace({nodes[at], ranks[at].*kKinds[i]}, label);
      if (is_new) firsts.push_back(rank);
      labels.push_back(found->second);
    }
    if (labels.size() != world_ranks.size()) continue;
    Hierarchy hierarchy(labels);
    if (!divides(hierarchy)) continue;
    Hierarchy upper = levels_from(i + 1, firsts);
    return upper.is_flat() ? hierarchy : hierarchy.with_upper(std::move(upper));
  }
  return {};
}

}  // namespace tutti
