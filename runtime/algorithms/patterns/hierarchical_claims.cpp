// Claims of hierarchical rows: in the domain, across, in the domain.
#include "runtime/algorithms/patterns/hierarchical_claims.hpp"

#include <algorithm>

#include "runtime/algorithms/patterns/allgather_patterns.hpp"
#include "runtime/algorithms/patterns/leaders.hpp"

namespace tutti {
namespace {

using Params = const AlgorithmParams&;

// Sizes that every claim starts from.
struct Parts {
  std::uint64_t leaders = 1;
  std::uint64_t domains = 1;
  std::uint64_t largest = 1;  // domain
  Claim across;               // of one leader group
  bool is_nested = false;     // which has domains itself
};

Parts parts_of(Collective collective, const Hierarchy& h, Params params) {
  const AlgorithmRow& row = across_row(collective, params.across, h);
  const std::uint32_t most = h.smallest_domain();
  return {params.leaders == 0 ? most : std::min(params.leaders, most), h.domain_count(), h.largest_domain(),
          claim_of(row, h.domain_count(), across_params(row, params), h.upper()),
          row.legality.needs_hierarchy};
}

// With clusters the row runs in them, and once more over them.
Parts parts_in_clusters(Collective collective, const Hierarchy& clusters, Params params) {
  const AlgorithmRow& row = *find_algorithm(collective, "hierarchical");
  return {1, clusters.domain_count(), clusters.largest_domain(),
          claim_of(row, clusters.domain_count(), params, clusters.upper()), true};
}

Claim allreduce_claim(Collective collective, const Hierarchy& h, Params params) {
  const Hierarchy& used = hierarchy_of(h, params);
  const bool is_in_clusters = &used == h.clusters();
  const Parts parts =
      is_in_clusters ? parts_in_clusters(collective, used, params) : parts_of(collective, used, params);
  const std::uint64_t width = parts.across.blocks;
  Claim claim;
  claim.rounds = 2 + parts.across.rounds;
  claim.sent_blocks = (parts.leaders - 1 + parts.largest - 1) * width + parts.across.sent_blocks;
  claim.blocks = parts.leaders * width;
  claim.is_bound = !used.is_even() || parts.is_nested;
  claim.is_crossing_bound = parts.is_nested;
  claim.crossing_blocks =
      is_in_clusters ? parts.across.crossing_blocks : parts.leaders * parts.across.sent_blocks;
  return claim;
}

// How many of the blocks of domain d leader j moves.
std::uint64_t moved_count(const Hierarchy& h, std::uint32_t d, std::uint64_t j, std::uint64_t leaders) {
  return (h.members(d).size() - j + leaders - 1) / leaders;
}

}  // namespace

Claim hierarchical_allreduce_claim(const Hierarchy& h, Params params) {
  return allreduce_claim(Collective::allreduce, h, params);
}

Claim hierarchical_barrier_claim(const Hierarchy& h, Params) {
  AlgorithmParams one_leader;
  one_leader.leaders = 1;
  return allreduce_claim(Collective::barrier, h, one_leader);
}

Claim hierarchical_broadcast_claim(const Hierarchy& h, Params params) {
  Claim claim = allreduce_claim(Collective::broadcast, h, params);
  if (parts_of(Collective::broadcast, h, params).leaders == 1) --claim.rounds;  // the root keeps its share
  return claim;
}

Claim hierarchical_reduce_claim(const Hierarchy& h, Params params) {
  const Parts parts = parts_of(Collective::reduce, h, params);
  const std::uint64_t width = parts.across.blocks, others = (parts.leaders - 1) * width;
  // Where different ranks add the blocks (direct), the leaders of the root's domain send all but their own;
  // then they send their share to the root.
  const std::uint64_t beside_root = parts.leaders > 1 ? others + width - 1 + width : 0;
  const std::uint64_t idle = parts.largest > parts.leaders ? parts.leaders * width : 0;
  Claim claim;
  claim.rounds = 1 + parts.across.rounds + (parts.leaders > 1 ? 1 : 0);
  claim.sent_blocks = std::max({others + parts.across.sent_blocks, beside_root, idle});
  claim.blocks = parts.leaders * width;
  claim.is_bound = !h.is_even();
  claim.crossing_blocks = parts.leaders * parts.across.sent_blocks;
  return claim;
}

Claim hierarchical_allgather_claim(const Hierarchy& h, Params params) {
  const Parts parts = parts_of(Collective::allgather, h, params);
  const auto domains = static_cast<std::uint32_t>(parts.domains);
  const std::string_view name = across_row(Collective::allgather, params.across, h).name;
  Claim claim;
  claim.blocks = h.size();
  claim.is_bound = !h.is_even();
  claim.rounds = (parts.leaders < parts.largest ? 1 : 0) + parts.across.rounds + 1;
  for (std::uint32_t d = 0; d < domains; ++d) {
    const ExchangePattern pattern =
        name == "ring" ? ring_pattern(domains, d)
                       : window_pattern(domains, d, bruck_windows(domains, name == "bruck" ? 2 : domains));
    const std::uint64_t mates = h.members(d).size() - 1;
    std::uint64_t crossing = 0;
    for (std::uint64_t j = 0; j < parts.leaders; ++j) {
      std::uint64_t leaves = 0, comes = 0;
      const auto count = [&](std::int64_t domain) {
        return moved_count(h, static_cast<std::uint32_t>((domain % domains + domains) % domains), j,
                           parts.leaders);
      };
      for (const ExchangeRound& round : pattern.rounds) {
        for (const auto& [peer, run] : round.sends) {
          for (std::uint32_t k = 0; k < run.count; ++k)
            leaves += count(run.first + std::int64_t{k} * run.stride);
        }
      }
      for (std::uint32_t e = 0; e < domains; ++e) comes += e == d ? 0 : count(e);
      claim.sent_blocks = std::max(claim.sent_blocks, mates * (1 + comes) + leaves);
      crossing += leaves;
    }
    claim.crossing_blocks = std::max(claim.crossing_blocks, crossing);
  }
  return claim;
}

Claim hierarchical_reduce_scatter_claim(const Hierarchy& h, Params params) {
  const Parts parts = parts_of(Collective::reduce_scatter, h, params);
  const bool has_idle = parts.largest > parts.leaders;
  Claim claim;
  claim.rounds = 1 + parts.across.rounds + (has_idle ? 1 : 0);
  // A leader sends the blocks of other leaders, its own for other domains, and its mates' finished blocks.
  claim.sent_blocks = has_idle ? h.size() : h.size() - 1;
  claim.blocks = h.size();
  claim.is_bound = !h.is_even();
  claim.crossing_blocks = h.size() - h.smallest_domain();
  return claim;
}

// Nothing is added up on the way, so all of it is exact for every hierarchy.
Claim hierarchical_alltoall_claim(const Hierarchy& h, Params params) {
  const std::uint32_t most = h.smallest_domain(), p = h.size();
  const std::uint64_t leaders = params.leaders == 0 ? most : std::min(params.leaders, most);
  Claim claim;
  claim.blocks = p;
  for (std::uint32_t d = 0; d < h.domain_count(); ++d) {
    const std::uint64_t mates = h.members(d).size(), outside = p - mates;
    claim.crossing_blocks = std::max(claim.crossing_blocks, mates * outside);
    for (std::uint64_t j = 0; j < leaders; ++j) {
      std::uint64_t through = 0;  // blocks of each mate that leave through this leader
      for (std::uint32_t e = 0; e < h.domain_count(); ++e)
        through += e == d ? 0 : moved_count(h, e, j, leaders);
      // To mates, across for all of them, and the arrived blocks of members that do not lead.
      const std::uint64_t leader =
          mates - 1 + outside - through + mates * through + (moved_count(h, d, j, leaders) - 1) * outside;
      const std::uint64_t idle = mates > leaders ? p - 1 : 0;
      claim.sent_blocks = std::max({claim.sent_blocks, leader, idle});
    }
    for (std::uint32_t e = 0; e < h.domain_count(); ++e) {
      if (e == d) continue;
      const std::uint64_t rounds = (mates > 1 ? 1 : 0) + 1 + (h.members(e).size() > leaders ? 1 : 0);
      claim.rounds = std::max(claim.rounds, rounds);
    }
  }
  return claim;
}

Claim hierarchical_gather_claim(const Hierarchy& h, Params params) {
  const Parts parts = parts_of(Collective::gather, h, params);
  Claim claim;
  claim.rounds = 1 + parts.across.rounds;
  claim.sent_blocks = parts.across.sent_blocks * parts.largest;
  claim.blocks = h.size();
  claim.crossing_blocks = claim.sent_blocks;
  claim.is_bound = claim.is_crossing_bound = !h.is_even();
  return claim;
}

Claim hierarchical_scatter_claim(const Hierarchy& h, Params params) {
  const Parts parts = parts_of(Collective::scatter, h, params);
  Claim claim;
  claim.rounds = 1 + parts.across.rounds;
  claim.sent_blocks = h.size() - 1;
  claim.blocks = h.size();
  claim.crossing_blocks = h.size() - h.smallest_domain();
  claim.is_bound = claim.is_crossing_bound = !h.is_even();
  return claim;
}

}  // namespace tutti
