// Emission of all ranks, and the comparison of claims with the verifier's findings.
#include "runtime/algorithms/prove.hpp"

#include <algorithm>
#include <bit>

#include <fmt/format.h>

#include "runtime/algorithms/patterns/leaders.hpp"
#include "runtime/schedule/passes/compress.hpp"
#include "runtime/schedule/passes/fuse.hpp"
#include "runtime/schedule/passes/lower.hpp"

namespace tutti {
namespace {

std::string name_of(const AlgorithmRow& row, const Instance& i) {
  return fmt::format("{} {} over {} ranks{}{}{}", to_string(row.collective), row.name, i.size,
                     is_rooted(row.collective) ? fmt::format(", root {}", i.root) : "",
                     i.in_place ? ", in place" : "",
                     row.legality.needs_hierarchy ? ", " + to_text(i.hierarchy) : "");
}

// The most atoms that the ranks of one domain send to ranks of others.
std::uint64_t crossing_atoms(const Hierarchy& hierarchy, const std::vector<Schedule>& ranks) {
  std::vector<std::uint64_t> leaving(hierarchy.domain_count(), 0);
  for (const Schedule& s : ranks) {
    const std::uint32_t domain = hierarchy.domain_of(s.rank);
    for (const Step& step : s.steps) {
      if (step.verb == Verb::send && hierarchy.domain_of(step.peer) != domain)
        leaving[domain] += s.sources_of(step)[0].count;
    }
  }
  return *std::max_element(leaving.begin(), leaving.end());
}

// Proves a form that a pass has made of a row's schedules, by what holds for every form. The report is that of its
// expressions, or of its values where the row does not reduce.
Result<VerifyReport> prove_form(const AlgorithmRow& row, const Instance& i,
                                const std::vector<Schedule>& ranks) {
  auto values = verify(ranks, Algebra::multiset);
  if (!values || !is_reducing(row.collective)) return values;
  if (keeps_rank_order(row, i)) {
    if (const auto ordered = verify(ranks, Algebra::word); !ordered) return ordered.status();
  }
  auto trees = verify(ranks, Algebra::expression);
  if (trees && row.same_bits && !trees->same_bits)
    return internal_error("claims the same bits on all ranks, but their sums are formed differently");
  return trees;
}

}  // namespace

bool is_legal(const AlgorithmRow& row, const Instance& i) {
  return may_run(row, i.size, true, i.in_place, true, &i.hierarchy);
}

bool keeps_rank_order(const AlgorithmRow& row, const Instance& i) {
  return may_run(row, i.size, false, i.in_place, true, &i.hierarchy);
}

std::vector<Hierarchy> sample_hierarchies(std::uint32_t p) {
  std::vector<Hierarchy> samples;
  const auto add = [&](const auto& label_of) {
    std::vector<std::uint32_t> labels;
    for (std::uint32_t rank = 0; rank < p; ++rank) labels.push_back(label_of(rank));
    Hierarchy hierarchy(labels);
    if (!hierarchy.is_flat() && std::find(samples.begin(), samples.end(), hierarchy) == samples.end())
      samples.push_back(std::move(hierarchy));
  };
  const auto width = static_cast<std::uint32_t>(std::bit_ceil(std::max(p, 1U)));
  std::uint32_t root = 1;
  while (root * root < width) root *= 2;
  add([&](std::uint32_t rank) { return rank < (p + 1) / 2 ? 0U : 1U; });      // halves
  add([](std::uint32_t rank) { return rank == 0 ? 0U : 1U; });                // a domain of one: 1 + 3
  add([](std::uint32_t rank) { return rank / 6 * 3 + (rank % 6 + 1) / 3; });  // 2, 3, 1, 2, 3, 1, ...
  add([](std::uint32_t rank) { return rank % 3; });                           // dealt out in turn
  add([&](std::uint32_t rank) { return rank / root; });                       // as many domains as members
  if (!samples.empty()) {                                                     // clusters in halves
    Hierarchy clusters = samples.front().with_clusters(2);
    if (clusters.clusters() != nullptr) samples.push_back(std::move(clusters));
  }
  // A level above: uneven domains in uneven ones.
  const auto over = [&](const auto& label_of, const auto& upper_of) {
    std::vector<std::uint32_t> labels, uppers;
    for (std::uint32_t rank = 0; rank < p; ++rank) labels.push_back(label_of(rank));
    const Hierarchy lower(labels);
    for (std::uint32_t d = 0; d < lower.domain_count(); ++d) uppers.push_back(upper_of(d));
    Hierarchy both = lower.with_upper(Hierarchy(uppers)).with_joined();
    if (!both.is_flat() && both.upper() != nullptr) samples.push_back(std::move(both));
  };
  over([](std::uint32_t rank) { return rank / 6 * 3 + (rank % 6 + 1) / 3; },
       [](std::uint32_t d) { return d < 3 ? 0U : d % 2 + 1; });
  return samples;
}

Result<std::vector<Schedule>> emit_all(const AlgorithmRow& row, const Instance& i, std::uint64_t most_steps) {
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
    if (!i.hierarchy.is_flat()) view.hierarchy = &i.hierarchy;
    auto schedule = row.emit(spec, view, i.params);
    if (!schedule) return schedule.status().with_context(fmt::format("{}: rank {}", name_of(row, i), r));
    if (schedule->steps.size() > most_steps) return std::vector<Schedule>{};
    most_steps -= schedule->steps.size();
    ranks.push_back(*std::move(schedule));
  }
  return ranks;
}

// Has more than 15 decisions because there is one for each claim.
Status prove(const AlgorithmRow& row, const Instance& i, const std::vector<Schedule>& ranks) {
  const auto refuse = [&](const std::string& why) {
    return internal_error(fmt::format("{}: {}", name_of(row, i), why));
  };
  auto found = verify(ranks, Algebra::multiset);
  if (!found) return found.status().with_context(name_of(row, i));

  const Claim claim = claim_of(row, i.size, i.params, &i.hierarchy);
  const std::string_view most = claim.is_bound ? "at most " : "";
  if (claim.is_bound ? found->rounds > claim.rounds : found->rounds != claim.rounds) {
    return refuse(fmt::format("claims {}{} rounds, takes {}", most, claim.rounds, found->rounds));
  }
  // Blocks sent as a fraction of the vector: sent / grid must equal claimed / claimed grid.
  const std::uint64_t grid = ranks[0].atoms();
  const std::uint64_t sent = found->max_sent_atoms * claim.blocks, claimed = claim.sent_blocks * grid;
  if (claim.is_bound ? sent > claimed : sent != claimed) {
    return refuse(fmt::format("claims {}{} of {} blocks sent by a rank, sends {} of {}", most,
                              claim.sent_blocks, claim.blocks, found->max_sent_atoms, grid));
  }
  if (row.legality.needs_hierarchy) {
    const std::uint64_t crossing = crossing_atoms(joined_of(i.hierarchy, i.params), ranks);
    const std::uint64_t leaving = crossing * claim.blocks, claimed_leaving = claim.crossing_blocks * grid;
    if (claim.is_crossing_bound ? leaving > claimed_leaving : leaving != claimed_leaving)
      return refuse(fmt::format("claims that {}{} of {} blocks leave a domain, {} of {} do",
                                claim.is_crossing_bound ? "at most " : "", claim.crossing_blocks,
                                claim.blocks, crossing, grid));
  }
  if (!row.legality.equal_counts_only && !found->v_safe) {
    return refuse("claims uneven counts: " + found->not_v_safe);
  }
  if (!is_reducing(row.collective)) return {};

  if (keeps_rank_order(row, i)) {
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
    const std::string name = fmt::format("{}, lowered ({})", name_of(row, i), to_string(sharing));
    const auto lowered = lower_for_shared_memory(ranks, sharing);
    if (!lowered) return lowered.status().with_context(name);
    if (const auto proved = prove_form(row, i, *lowered); !proved) return proved.status().with_context(name);
  }
  return {};
}

Status prove_compressed(const AlgorithmRow& row, const Instance& i, const std::vector<Schedule>& ranks) {
  if (i.size == 1 || !is_compressible(row.collective)) return {};
  for (const Hierarchy* const domains : {static_cast<const Hierarchy*>(nullptr), &i.hierarchy}) {
    if (domains != nullptr && domains->is_flat()) continue;
    const std::string name =
        fmt::format("{}, compressed{}", name_of(row, i), domains == nullptr ? "" : " between domains");
    std::vector<Schedule> compressed;
    for (const Schedule& schedule : ranks) {
      auto made = compress(schedule, domains);
      if (!made) return made.status().with_context(name);
      compressed.push_back(fuse(*std::move(made)));
    }
    const auto proved = prove_form(row, i, compressed);
    if (!proved) return proved.status().with_context(name);
    if (proved->roundings > proved->rounds + 1)
      return internal_error(
          fmt::format("{}: rounds a value {} times in {} rounds", name, proved->roundings, proved->rounds));
  }
  return {};
}

}  // namespace tutti
