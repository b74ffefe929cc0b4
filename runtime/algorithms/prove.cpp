// Emission of all ranks, and the comparison of claims with the verifier's findings.
#include "runtime/algorithms/prove.hpp"

#include <fmt/format.h>

#include "runtime/schedule/passes/lower.hpp"

namespace tutti {
namespace {

std::string name_of(const AlgorithmRow& row, const Instance& i) {
  return fmt::format("{} {} over {} ranks{}{}", to_string(row.collective), row.name, i.size,
                     is_rooted(row.collective) ? fmt::format(", root {}", i.root) : "",
                     i.in_place ? ", in place" : "");
}

}  // namespace

bool is_legal(const AlgorithmRow& row, const Instance& i) {
  return check_legality(row, i.size, true, i.in_place, true).is_ok();
}

Result<std::vector<Schedule>> emit_all(const AlgorithmRow& row, const Instance& i) {
  CollectiveSpec spec;
  spec.collective = row.collective;
  spec.root = i.root;
  spec.in_place = i.in_place;
  std::vector<Schedule> ranks;
  ranks.reserve(i.size);
  for (std::uint32_t r = 0; r < i.size; ++r) {
    GroupView view;
    view.rank = r;
    view.size = i.size;
    auto schedule = row.emit(spec, view, i.params);
    if (!schedule) return schedule.status().with_context(fmt::format("{}: rank {}", name_of(row, i), r));
    ranks.push_back(*std::move(schedule));
  }
  return ranks;
}

Status prove(const AlgorithmRow& row, const Instance& i, const std::vector<Schedule>& ranks) {
  const auto refuse = [&](const std::string& why) {
    return internal_error(fmt::format("{}: {}", name_of(row, i), why));
  };
  auto found = verify(ranks, Algebra::multiset);
  if (!found) return found.status().with_context(name_of(row, i));

  const Claim claim = row.claim(i.size, i.params);
  if (found->rounds != claim.rounds) {
    return refuse(fmt::format("claims {} rounds, takes {}", claim.rounds, found->rounds));
  }
  // Blocks sent as a fraction of the vector: sent / grid must equal claimed / claimed grid.
  const std::uint64_t grid = ranks[0].atoms();
  if (found->max_sent_atoms * claim.blocks != claim.sent_blocks * grid) {
    return refuse(fmt::format("claims {} of {} blocks sent by a rank, sends {} of {}", claim.sent_blocks,
                              claim.blocks, found->max_sent_atoms, grid));
  }
  if (!row.legality.equal_counts_only && !found->v_safe) {
    return refuse("claims uneven counts: " + found->not_v_safe);
  }
  if (!is_reducing(row.collective)) return {};

  if (!row.legality.needs_commutative) {
    if (auto ordered = verify(ranks, Algebra::word); !ordered) {
      return ordered.status().with_context(name_of(row, i));
    }
  }
  auto trees = verify(ranks, Algebra::expression);
  if (!trees) return trees.status().with_context(name_of(row, i));
  if (row.same_bits && !trees->same_bits) {
    return refuse("claims the same bits on all ranks, but their sums are formed differently");
  }
  return {};
}

Status prove_lowered(const AlgorithmRow& row, const Instance& i, const std::vector<Schedule>& ranks) {
  if (i.size == 1 || ranks[0].channels != 1) return {};
  for (const Sharing sharing : {Sharing::scratch, Sharing::buffers}) {
    const std::string name =
        fmt::format("{}, lowered ({})", name_of(row, i), sharing == Sharing::scratch ? "staged" : "mapped");
    const auto lowered = lower_for_shared_memory(ranks, sharing);
    if (!lowered) return lowered.status().with_context(name);
    if (const auto values = verify(*lowered, Algebra::multiset); !values)
      return values.status().with_context(name);
    if (!is_reducing(row.collective)) continue;
    if (!row.legality.needs_commutative) {
      if (const auto ordered = verify(*lowered, Algebra::word); !ordered)
        return ordered.status().with_context(name);
    }
    const auto trees = verify(*lowered, Algebra::expression);
    if (!trees) return trees.status().with_context(name);
    if (row.same_bits && !trees->same_bits)
      return internal_error(name +
                            ": claims the same bits on all ranks, but their sums are formed differently");
  }
  return {};
}

}  // namespace tutti
