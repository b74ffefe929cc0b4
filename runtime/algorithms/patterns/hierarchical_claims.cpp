// Claims of hierarchical rows: in the domain, across, in the domain.
#include "runtime/algorithms/patterns/hierarchical_claims.hpp"

#include <algorithm>

#include "runtime/algorithms/patterns/allgather_patterns.hpp"
#include "runtime/algorithms/patterns/columns.hpp"

namespace tutti {
namespace {

using Params = const AlgorithmParams&;

// What all of them start from.
struct Parts {
  std::uint64_t columns = 1;
  std::uint64_t domains = 1;
  std::uint64_t largest = 1;  // domain
  Claim across;               // of one column
};

Parts parts_of(Collective collective, const Hierarchy& h, Params params) {
  const AlgorithmRow& row = across_row(collective, params.across);
  const std::uint32_t most = h.smallest_domain();
  return {params.columns == 0 ? most : std::min(params.columns, most), h.domain_count(), h.largest_domain(),
          row.claim(h.domain_count(), default_params(row))};
}

Claim allreduce_claim(Collective collective, const Hierarchy& h, Params params) {
  const Parts parts = parts_of(collective, h, params);
  const std::uint64_t width = parts.across.blocks;
  Claim claim;
  claim.rounds = 2 + parts.across.rounds;
  claim.sent_blocks = (parts.columns - 1 + parts.largest - 1) * width + parts.across.sent_blocks;
  claim.blocks = parts.columns * width;
  claim.is_bound = !h.is_even();
  claim.crossing_blocks = parts.columns * parts.across.sent_blocks;
  return claim;
}

// How many of p blocks lie in domain d and belong to column j.
std::uint64_t carried_count(const Hierarchy& h, std::uint32_t d, std::uint64_t j, std::uint64_t columns) {
  return (h.members(d).size() - j + columns - 1) / columns;
}

}  // namespace

Claim hierarchical_allreduce_claim(const Hierarchy& h, Params params) {
  return allreduce_claim(Collective::allreduce, h, params);
}

Claim hierarchical_barrier_claim(const Hierarchy& h, Params) {
  AlgorithmParams one_column;
  one_column.columns = 1;
  return allreduce_claim(Collective::barrier, h, one_column);
}

Claim hierarchical_broadcast_claim(const Hierarchy& h, Params params) {
  Claim claim = allreduce_claim(Collective::broadcast, h, params);
  if (parts_of(Collective::broadcast, h, params).columns == 1) --claim.rounds;  // the root keeps its column
  return claim;
}

Claim hierarchical_reduce_claim(const Hierarchy& h, Params params) {
  const Parts parts = parts_of(Collective::reduce, h, params);
  const std::uint64_t width = parts.across.blocks, others = (parts.columns - 1) * width;
  // Of a row whose blocks are added by different ranks (direct), the carriers of the root's domain send all
  // but their own; then they hand their column to the root.
  const std::uint64_t beside_root = parts.columns > 1 ? others + width - 1 + width : 0;
  const std::uint64_t idle = parts.largest > parts.columns ? parts.columns * width : 0;
  Claim claim;
  claim.rounds = 1 + parts.across.rounds + (parts.columns > 1 ? 1 : 0);
  claim.sent_blocks = std::max({others + parts.across.sent_blocks, beside_root, idle});
  claim.blocks = parts.columns * width;
  claim.is_bound = !h.is_even();
  claim.crossing_blocks = parts.columns * parts.across.sent_blocks;
  return claim;
}

Claim hierarchical_allgather_claim(const Hierarchy& h, Params params) {
  const Parts parts = parts_of(Collective::allgather, h, params);
  const auto domains = static_cast<std::uint32_t>(parts.domains);
  const std::string_view name = across_row(Collective::allgather, params.across).name;
  Claim claim;
  claim.blocks = h.size();
  claim.is_bound = !h.is_even();
  claim.rounds = (parts.columns < parts.largest ? 1 : 0) + parts.across.rounds + 1;
  for (std::uint32_t d = 0; d < domains; ++d) {
    const ExchangePattern pattern =
        name == "ring" ? ring_pattern(domains, d)
                       : window_pattern(domains, d, bruck_windows(domains, name == "bruck" ? 2 : domains));
    const std::uint64_t mates = h.members(d).size() - 1;
    std::uint64_t crossing = 0;
    for (std::uint64_t j = 0; j < parts.columns; ++j) {
      std::uint64_t leaves = 0, comes = 0;
      const auto count = [&](std::int64_t domain) {
        return carried_count(h, static_cast<std::uint32_t>((domain % domains + domains) % domains), j,
                             parts.columns);
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
  const bool has_idle = parts.largest > parts.columns;
  Claim claim;
  claim.rounds = 1 + parts.across.rounds + (has_idle ? 1 : 0);
  // A carrier sends what it does not carry, what it does but for other domains, and what its mates own.
  claim.sent_blocks = has_idle ? h.size() : h.size() - 1;
  claim.blocks = h.size();
  claim.is_bound = !h.is_even();
  claim.crossing_blocks = h.size() - h.smallest_domain();
  return claim;
}

// Nothing is added up on the way, so all of it is exact for every hierarchy.
Claim hierarchical_alltoall_claim(const Hierarchy& h, Params params) {
  const std::uint32_t most = h.smallest_domain(), p = h.size();
  const std::uint64_t columns = params.columns == 0 ? most : std::min(params.columns, most);
  Claim claim;
  claim.blocks = p;
  for (std::uint32_t d = 0; d < h.domain_count(); ++d) {
    const std::uint64_t mates = h.members(d).size(), outside = p - mates;
    claim.crossing_blocks = std::max(claim.crossing_blocks, mates * outside);
    for (std::uint64_t j = 0; j < columns; ++j) {
      std::uint64_t through = 0;  // blocks of each mate that leave by this column
      for (std::uint32_t e = 0; e < h.domain_count(); ++e)
        through += e == d ? 0 : carried_count(h, e, j, columns);
      // To mates, across for all of them, and what came for members without a column.
      const std::uint64_t carrier =
          mates - 1 + outside - through + mates * through + (carried_count(h, d, j, columns) - 1) * outside;
      const std::uint64_t idle = mates > columns ? p - 1 : 0;
      claim.sent_blocks = std::max({claim.sent_blocks, carrier, idle});
    }
    for (std::uint32_t e = 0; e < h.domain_count(); ++e) {
      if (e == d) continue;
      const std::uint64_t rounds = (mates > 1 ? 1 : 0) + 1 + (h.members(e).size() > columns ? 1 : 0);
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
