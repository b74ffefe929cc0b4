// Hierarchies as values, the splicing of parts into a whole, and what hierarchical rows promise beyond what
// every row does: how little leaves a domain.
#include "runtime/schedule/compose.hpp"

#include <algorithm>

#include "runtime/algorithms/patterns/leaders.hpp"
#include "runtime/schedule/passes/lower.hpp"
#include "tests/schedule/support.hpp"

using namespace tutti;
using namespace tutti::test;

namespace {

Hierarchy of_sizes(const std::vector<std::uint32_t>& sizes) { return Hierarchy::of_sizes(sizes); }
Hierarchy of_labels(const std::vector<std::uint32_t>& labels) { return Hierarchy(labels); }

const AlgorithmRow& hierarchical(Collective collective) {
  const AlgorithmRow* row = find_algorithm(collective, "hierarchical");
  REQUIRE(row != nullptr);
  return *row;
}

// The message if the row is not proved over this hierarchy, in both placements, for all roots and in both
// lowered forms.
std::string prove_everywhere(const AlgorithmRow& row, const Hierarchy& hierarchy,
                             const AlgorithmParams& params) {
  for (std::uint32_t root = 0; root < (is_rooted(row.collective) ? hierarchy.size() : 1U); ++root) {
    for (const bool in_place : {false, true}) {
      const Instance instance{hierarchy.size(), root, in_place, params, hierarchy};
      const auto ranks = emit_all(row, instance);
      if (!ranks) return ranks.status().message();
      if (const Status proved = prove(row, instance, *ranks); !proved) return proved.message();
      if (in_place) continue;
      if (const Status proved = prove_lowered(row, instance, *ranks); !proved) return proved.message();
    }
  }
  return "";
}

}  // namespace

TEST_CASE("domains are numbered by their smallest rank, with members in order") {
  const Hierarchy h = of_labels({7, 3, 7, 9, 3, 7});
  CHECK(h.size() == 6);
  REQUIRE(h.domain_count() == 3);
  CHECK(h.members(0) == std::vector<std::uint32_t>{0, 2, 5});
  CHECK(h.members(1) == std::vector<std::uint32_t>{1, 4});
  CHECK(h.members(2) == std::vector<std::uint32_t>{3});
  CHECK(h.domain_of(4) == 1);
  CHECK(h.smallest_domain() == 1);
  CHECK(h.largest_domain() == 3);
  CHECK_FALSE(h.is_even());
  CHECK_FALSE(h.is_contiguous());
  CHECK_FALSE(h.is_flat());
  CHECK(to_text(h) == "3 domains: 0+2+5, 1+4, 3");
  CHECK(h == of_labels({0, 1, 0, 2, 1, 0}));
  CHECK_FALSE(h == of_labels({0, 1, 0, 2, 1, 1}));
}

TEST_CASE("levels above and clusters are hierarchies again") {
  const Hierarchy two = of_sizes({2, 2, 1, 3}).with_upper(of_sizes({2, 2}));
  REQUIRE(two.upper() != nullptr);
  CHECK(two.upper()->members(1) == std::vector<std::uint32_t>{2, 3});
  CHECK(to_text(two) == "4 domains: 0-1, 2-3, 4, 5-7; of these 2 domains: 0-1, 2-3");
  CHECK(of_sizes({2, 2}).with_upper(of_sizes({2})).upper() == nullptr);
  CHECK_FALSE(of_sizes({1, 1, 1}).with_upper(of_labels({0, 1, 0})).is_contiguous());
  const Hierarchy parted = of_labels({0, 1, 0, 1, 0, 1, 0}).with_clusters(2);
  REQUIRE(parted.clusters() != nullptr);
  CHECK(parted.clusters()->members(0) == std::vector<std::uint32_t>{0, 2});
  CHECK(parted.clusters()->members(3) == std::vector<std::uint32_t>{5});
  CHECK(parted.clusters()->upper()->members(0) == std::vector<std::uint32_t>{0, 2});
  CHECK(of_sizes({2, 2}).with_clusters(8).clusters() == nullptr);
  // Where a rank is alone, domains are joined by the level above, again and again.
  const Hierarchy alone = of_sizes({2, 1, 2, 1}).with_upper(of_labels({0, 1, 0, 1})).with_joined();
  REQUIRE(alone.joined() != nullptr);
  CHECK(to_text(*alone.joined()) == "2 domains: 0-1+3-4, 2+5");
  const Hierarchy deep =
      of_sizes({1, 1, 1, 1, 1}).with_upper(of_sizes({1, 2, 2}).with_upper(of_sizes({2, 1}))).with_joined();
  REQUIRE(deep.joined() != nullptr);
  CHECK(to_text(*deep.joined()) == "2 domains: 0-2, 3-4");
  CHECK(of_sizes({2, 2, 2}).with_upper(of_sizes({1, 2})).with_joined().joined() == nullptr);  // nobody is
  CHECK(of_sizes({1, 2, 2}).with_upper(of_sizes({1, 2})).with_joined().joined() == nullptr);  // still is
  CHECK(of_sizes({1, 2}).with_joined().joined() == nullptr);
}

TEST_CASE("a hierarchy without levels is flat") {
  CHECK(Hierarchy().is_flat());
  CHECK(of_sizes({4}).is_flat());
  CHECK(of_sizes({1, 1, 1}).is_flat());
  CHECK_FALSE(of_sizes({1, 2}).is_flat());
  CHECK(of_sizes({2, 3}).is_contiguous());
  CHECK(of_sizes({2, 2}).is_even());
  CHECK(to_text(of_sizes({2, 3})) == "2 domains: 0-1, 2-4");
}

TEST_CASE("a row has one kind of claim: over ranks, or over domains") {
  for (const AlgorithmRow& row : catalog()) {
    INFO(to_string(row.collective) << " " << row.name);
    CHECK((row.hierarchy_claim != nullptr) == row.legality.needs_hierarchy);
    CHECK((row.claim == nullptr) == row.legality.needs_hierarchy);
    for (const ParamRow& param : row.params) {
      if (param.name == "across") CHECK(param.max_value + 1 == across_count(row.collective));
    }
  }
}

TEST_CASE("hierarchical rows are legal where there is a hierarchy, and keep order where domains are ranges") {
  const AlgorithmRow& row = hierarchical(Collective::allreduce);
  const Hierarchy flat, ranges = of_sizes({2, 3}), dealt = of_labels({0, 1, 0, 1, 0});
  const auto why = [&](bool is_commutative, const Hierarchy* h) {
    return check_legality(row, 5, is_commutative, false, true, h).message();
  };
  CHECK(why(true, &ranges).empty());
  CHECK(why(false, &ranges).empty());
  CHECK(why(true, &dealt).empty());
  CHECK(why(false, &dealt).find("not commutative") != std::string::npos);
  for (const Hierarchy* none : {static_cast<const Hierarchy*>(nullptr), &flat})
    CHECK(why(true, none).find("needs a hierarchy") != std::string::npos);
  const Hierarchy other = of_sizes({2, 2});
  CHECK(why(true, &other).find("needs a hierarchy") != std::string::npos);
  // And emission says so itself.
  const auto emitted = row.emit({}, {0, 5}, default_params(row));
  CHECK(emitted.status().message().find("needs a hierarchy") != std::string::npos);
}

TEST_CASE("hierarchical rows are proved over even, uneven and interleaved domains, with every row across") {
  std::vector<Hierarchy> hierarchies;
  for (const auto& sizes : std::vector<std::vector<std::uint32_t>>{{1, 2},
                                                                   {2, 1},
                                                                   {2, 2},
                                                                   {1, 3},
                                                                   {3, 1},
                                                                   {2, 3, 1},
                                                                   {1, 1, 2},
                                                                   {4, 4},
                                                                   {2, 2, 2, 2},
                                                                   {1, 5, 2},
                                                                   {3, 3, 3}})
    hierarchies.push_back(of_sizes(sizes));
  hierarchies.push_back(of_labels({0, 1, 0, 1}));
  hierarchies.push_back(of_labels({0, 1, 2, 0, 1, 2, 0}));
  hierarchies.push_back(of_labels({1, 0, 0, 2, 1, 0, 1, 1}));
  // Levels above, even, uneven and interleaved; three levels; clusters.
  hierarchies.push_back(of_sizes({2, 2, 2, 2}).with_upper(of_sizes({2, 2})));
  hierarchies.push_back(of_sizes({1, 2, 2, 3, 1}).with_upper(of_labels({0, 1, 0, 1, 1})).with_joined());
  hierarchies.push_back(
      of_sizes({1, 1, 1, 1, 2, 1, 1, 1}).with_upper(of_sizes({2, 2, 2, 2}).with_upper(of_sizes({2, 2}))));
  hierarchies.push_back(of_sizes({5, 4}).with_clusters(2));
  hierarchies.push_back(of_labels({0, 1, 0, 1, 0, 1, 0}).with_clusters(3));
  for (const AlgorithmRow& row : catalog()) {
    if (!row.legality.needs_hierarchy) continue;
    std::uint32_t most_across = 0, most_leaders = 0, most_mates = 0;
    for (const ParamRow& param : row.params) {
      if (param.name == "across") most_across = param.max_value;
      if (param.name == "leaders") most_leaders = 4;
      if (param.name == "mates") most_mates = param.max_value;
    }
    for (const Hierarchy& h : hierarchies) {
      const std::uint32_t end = (most_leaders + 1) * (h.joined() != nullptr ? most_mates + 1 : 1);
      for (std::uint32_t i = 0; i < end; ++i) {
        const std::uint32_t leaders = i % (most_leaders + 1), mates = i / (most_leaders + 1);
        for (std::uint32_t across = 0; across <= most_across; ++across) {
          AlgorithmParams params = default_params(row);
          params.leaders = leaders;
          params.across = across;
          params.mates = mates;
          INFO(to_string(row.collective) << ", " << to_text(h) << ", leaders " << leaders << ", across "
                                         << across << ", mates " << mates);
          REQUIRE(prove_everywhere(row, h, params) == "");
        }
      }
    }
  }
}

TEST_CASE("the bytes that leave a domain are those of the row across, for any number of leaders") {
  struct Row {
    Collective collective;
    std::uint32_t across;
    std::vector<std::uint32_t> sizes;
    double crossing;  // of the vector
  };
  const Row rows[] = {
      {Collective::allreduce, 0, {4, 4}, 1},  // recursive doubling of two
      {Collective::allreduce, 1, {4, 4}, 1},  // two_shot: 2 (D-1)/D
      {Collective::allreduce, 1, {4, 2, 3, 3}, 1.5},
      {Collective::broadcast, 0, {4, 4}, 1},
      {Collective::broadcast, 1, {2, 3, 4}, 2},  // linear: to two domains
      {Collective::reduce, 0, {5, 2, 2}, 1},
      {Collective::allgather, 0, {4, 4}, 0.5},  // a domain's blocks, once
      {Collective::allgather, 0, {1, 3}, 0.75},
      {Collective::allgather, 1, {2, 2, 2}, 2.0 / 3},  // around a ring: all but one domain's
      {Collective::reduce_scatter, 0, {4, 4}, 0.5},
      {Collective::gather, 0, {4, 4}, 0.5},
      {Collective::gather, 1, {2, 2, 2, 2}, 0.5},  // binomial: two domains' blocks from one of them
      {Collective::gather, 0, {1, 3}, 0.75},       // at most: with a root in the domain of one
      {Collective::scatter, 0, {4, 4, 4}, 2.0 / 3},
      {Collective::scatter, 0, {1, 3}, 0.75},
      {Collective::reduce_scatter, 0, {1, 3}, 0.75},  // of the domain of one
  };
  for (const Row& r : rows) {
    const AlgorithmRow& row = hierarchical(r.collective);
    const Hierarchy h = of_sizes(r.sizes);
    for (const std::uint32_t leaders : {0U, 1U}) {
      AlgorithmParams params = default_params(row);
      params.leaders = leaders;
      params.across = r.across;
      const Claim claim = claim_of(row, h.size(), params, &h);
      INFO(to_string(r.collective) << ", " << to_text(h) << ", leaders " << leaders << ", across "
                                   << r.across);
      // The claim is compared with what the schedules do by prove(), above.
      CHECK(static_cast<double>(claim.crossing_blocks) / static_cast<double>(claim.blocks) == r.crossing);
      CHECK(claim.is_bound != h.is_even());
    }
  }
}

TEST_CASE("alltoall: what leaves a domain leaves together") {
  // The most messages that leave one domain, and the blocks in them.
  const auto leaving = [](const Hierarchy& h, std::uint32_t leaders) {
    const AlgorithmRow& row = hierarchical(Collective::alltoall);
    AlgorithmParams params = default_params(row);
    params.leaders = leaders;
    const auto ranks = emit_all(row, {h.size(), 0, false, params, h});
    REQUIRE(ranks.is_ok());
    std::vector<std::size_t> messages(h.domain_count());
    for (const Schedule& s : *ranks) {
      for (const Step& step : s.steps)
        messages[h.domain_of(s.rank)] +=
            step.verb == Verb::send && h.domain_of(step.peer) != h.domain_of(s.rank);
    }
    return std::pair(*std::max_element(messages.begin(), messages.end()),
                     claim_of(row, h.size(), params, &h).crossing_blocks);
  };
  using Leaving = std::pair<std::size_t, std::uint64_t>;
  CHECK(leaving(of_sizes({4, 4}), 0) == Leaving{4, 16});  // from each rank one, with four blocks
  CHECK(leaving(of_sizes({4, 4}), 1) == Leaving{2, 16});  // a message takes as many blocks as there are ranks
  CHECK(leaving(of_sizes({4, 4, 4, 4}), 0) == Leaving{12, 48});
  CHECK(leaving(of_sizes({4, 4, 4, 4}), 1) == Leaving{3, 48});
  CHECK(leaving(of_sizes({2, 3, 4}), 0) == Leaving{4, 20});
  CHECK(leaving(of_sizes({1, 3}), 0) == Leaving{1, 3});
  CHECK(leaving(of_labels({0, 1, 0, 1, 0, 1}), 0) == Leaving{3, 9});
}

TEST_CASE("for long vectors there is a form on each other's buffers, right in place, too") {
  // Without scratch, which would have to hold a part of the vector.
  for (const Collective collective : {Collective::allreduce, Collective::broadcast, Collective::allgather}) {
    for (const std::vector<std::uint32_t>& sizes :
         {std::vector<std::uint32_t>{2, 2}, {4, 4}, {3, 3, 3}, {5, 4}, {2, 3, 6}, {1, 3}, {1, 4, 4}}) {
      const AlgorithmRow& row = hierarchical(collective);
      const Hierarchy h = of_sizes(sizes);
      AlgorithmParams params = default_params(row);
      params.across = 1;  // allreduce: two_shot
      const auto ranks = emit_all(row, {h.size(), 0, false, params, h});
      REQUIRE(ranks.is_ok());
      const auto lowered = lower_for_shared_memory(*ranks, Sharing::buffers);
      REQUIRE(lowered.is_ok());
      INFO(to_string(collective) << ", " << to_text(h));
      CHECK(is_right_in_place(*lowered));
      for (const Schedule& s : *lowered) CHECK(s.scratch_slots == 0);
    }
  }
}

TEST_CASE("a claim about what leaves a domain is compared with what does") {
  const Hierarchy h = of_sizes({2, 2});
  const AlgorithmRow& row = hierarchical(Collective::allreduce);
  AlgorithmRow liar = row;
  liar.hierarchy_claim = [](const Hierarchy& hierarchy, const AlgorithmParams& params) {
    Claim claim = find_algorithm(Collective::allreduce, "hierarchical")->hierarchy_claim(hierarchy, params);
    --claim.crossing_blocks;
    return claim;
  };
  const Instance instance{4, 0, false, default_params(row), h};
  const auto ranks = emit_all(row, instance);
  REQUIRE(ranks.is_ok());
  CHECK(prove(liar, instance, *ranks).message().find("leave a domain") != std::string::npos);
}

TEST_CASE("a part is spliced in: peers, blocks and scratch are translated, dependencies inferred anew") {
  // Ranks 3 and 1 of four add up blocks 4, 2 and 0 of six by recursive doubling of a vector of one block.
  const std::uint32_t members[] = {3, 1};
  const AlgorithmRow* doubling = find_algorithm(Collective::allreduce, "recursive_doubling");
  REQUIRE(doubling != nullptr);
  const auto part = doubling->emit({}, {0, 2, 0, 1, members}, default_params(*doubling));
  REQUIRE(part.is_ok());
  Builder whole({}, {3, 4}, 6);
  whole.recv(0, whole.scratch(0, 0, 2));
  PartPlace place;
  place.blocks = {{4, 0, 2}};
  REQUIRE(splice(whole, *part, place).is_ok());
  const auto schedule = std::move(whole).finish();
  REQUIRE(schedule.is_ok());
  const std::vector<std::string> expected = {
      "recv scratch.0[0+2] from 0", "send input[4] to 1",           "send input[0+2*2] to 1",
      "recv scratch.2[4] from 1",   "recv scratch.3[0+2*2] from 1",
  };
  for (std::size_t i = 0; i < expected.size(); ++i) {
    CHECK(to_text(*schedule, schedule->steps[i]) == expected[i]);
  }
  REQUIRE(schedule->steps.size() == 7);
  CHECK(to_text(*schedule, schedule->steps[5]) == "reduce output[4] = input[4] + scratch.2[4] after 3");
  CHECK(schedule->scratch_slots == 5);
}

TEST_CASE("neighbouring blocks of a part stay one slice; uneven ones and a wrap are cut alike at both ends") {
  const std::uint32_t members[] = {0, 1};
  const auto spliced = [&](std::uint32_t rank, const std::vector<std::vector<std::uint32_t>>& blocks) {
    GroupView view{rank, 2, 0, 1, members};
    Builder part({}, view, 4);
    if (rank == 0) part.send(1, part.input(2, 3));  // blocks 2, 3, 0
    if (rank == 1) part.recv(0, part.scratch(0, 2, 3));
    const auto made = std::move(part).finish();
    REQUIRE(made.is_ok());
    Builder whole({}, {rank, 2}, 8);
    REQUIRE(splice(whole, *made, {blocks, {Buffer::input}, {Buffer::output}}).is_ok());
    const auto schedule = std::move(whole).finish();
    REQUIRE(schedule.is_ok());
    std::vector<std::string> lines;
    for (const Step& step : schedule->steps) lines.push_back(to_text(*schedule, step));
    return lines;
  };
  const auto even = neighbouring_blocks(0, 4, 2);
  CHECK(spliced(0, even) == std::vector<std::string>{"send input[4+4] to 1", "send input[0+2] to 1"});
  CHECK(spliced(1, even) ==
        std::vector<std::string>{"recv scratch.0[4+4] from 0", "recv scratch.4[0+2] from 0"});
  const std::vector<std::vector<std::uint32_t>> uneven = {{0, 1, 2}, {3}, {4, 5}, {6}};
  CHECK(spliced(0, uneven) ==
        std::vector<std::string>{"send input[4+2] to 1", "send input[6] to 1", "send input[0+3] to 1"});
  // Every block of the part has room for three.
  CHECK(spliced(1, uneven) == std::vector<std::string>{"recv scratch.0[4+2] from 0",
                                                       "recv scratch.3[6] from 0",
                                                       "recv scratch.6[0+3] from 0"});
}

TEST_CASE("a part that cannot be spliced is refused") {
  Builder whole({}, {0, 2}, 2);
  auto part = emit_row(Collective::allreduce, "ring", 2)[0];
  PartPlace place;
  place.blocks = {{0}};
  CHECK(splice(whole, part, place).message().find("another number of blocks") != std::string::npos);
  place.blocks = {{0}, {1}};
  CHECK(splice(whole, part, place).is_ok());
  part.segments = 2;
  CHECK(splice(whole, part, place).message().find("before they are segmented") != std::string::npos);
}
