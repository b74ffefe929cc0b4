// Every catalogue row against the serial reference, on inproc and shm: counts, ranks, roots, in place, uneven
// counts, element types.
#include <algorithm>

#include "tests/collectives/exercise.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/test_fraction.hpp"

namespace tutti::test {
namespace {

constexpr std::uint64_t kLarge = 1ULL << 20U;

// The cases of a row at one group size, in an order that all ranks share.
std::vector<Case> cases_of(const AlgorithmRow& row, std::uint32_t p) {
  std::vector<std::uint64_t> counts = {0, 1, p - 1, p, p + 1, 4097, kLarge};
  std::sort(counts.begin(), counts.end());
  counts.erase(std::unique(counts.begin(), counts.end()), counts.end());
  std::vector<Case> cases;
  const Hierarchy domains = domains_of(p);
  for (const Flavour& flavour : kFlavours) {
    const bool is_first = &flavour == &kFlavours[0];
    if (!is_reducing(row.collective) && !is_first) continue;  // moving bytes is the same for every type
    for (const std::uint64_t count : counts) {
      if (row.collective == Collective::barrier && count != 0) continue;
      const bool is_large = count == kLarge;
      if (is_large && flavour.dtype != Dtype::i32 && flavour.dtype != Dtype::f32) continue;
      for (std::uint32_t root = 0; root < (is_rooted(row.collective) ? p : 1U); ++root) {
        if (is_large && root != p / 2) continue;
        for (const bool in_place : {false, true}) {
          for (const bool has_counts : {false, true}) {
            if (has_counts && (!has_rank_blocks(row.collective) || is_large)) continue;
            if (!check_legality(row, p, flavour.is_commutative, in_place, !has_counts, &domains)) continue;
            Case c{&row, &flavour, count, root, in_place, has_counts};
            if (is_large && has_rank_blocks(row.collective)) c.count = kLarge / p;
            cases.push_back(c);
          }
        }
      }
    }
  }
  return cases;
}

void run_all(WorldTransport transport, bool uses_control_blocks) {
  const std::uint32_t p = GENERATE(1U, 2U, 3U, 4U, 5U, 7U, 8U);
  CAPTURE(p);
  World::Adjust adjust;
  adjust.group = [uses_control_blocks](std::uint32_t, GroupContext::Options& group) {
    group.uses_control_blocks = uses_control_blocks;
  };
  adjust.hierarchy = domains_of(p);
  World world(transport, p, World::oversubscribed(), {}, adjust);
  ReferenceCache references;
  std::uint64_t number = p * 1000003ULL;
  for (const AlgorithmRow& row : catalog()) {
    std::vector<Case> cases = cases_of(row, p);
    std::erase_if(cases, [&](const Case&) { return !is_selected(number++); });
    std::vector<std::vector<std::byte>> outputs(p);
    const auto body = [&](Member& member) -> std::string {
      for (const Case& c : cases) {
        if (std::string wrong = exercise(member, c, references, &outputs[member.rank]); !wrong.empty())
          return wrong;
        if (row.collective != Collective::allreduce || !row.same_bits) continue;
        // Outputs of all ranks are stable between these two barriers.
        Call barrier;
        barrier.collective = Collective::barrier;
        if (Status s = member.run(barrier); !s) return s.to_string();
        if (outputs[member.rank] != outputs[0]) return describe(c) + ": not the bits of rank 0";
        if (Status s = member.run(barrier); !s) return s.to_string();
      }
      return {};
    };
    INFO(to_string(row.collective) << " " << row.name << ", " << cases.size() << " cases");
    REQUIRE(world.run(body) == "");
  }
}

// Calls of one group that differ in nothing but parameters.
void run_settings(WorldTransport transport, bool uses_control_blocks) {
  constexpr std::uint32_t kRanks = 7;
  const std::uint32_t caches[] = {2, 1, 2, 1, 1}, sockets[] = {2, 3};
  World::Adjust adjust;
  adjust.group = [uses_control_blocks](std::uint32_t, GroupContext::Options& group) {
    group.uses_control_blocks = uses_control_blocks;
  };
  adjust.hierarchy = Hierarchy::of_sizes(caches).with_upper(Hierarchy::of_sizes(sockets)).with_joined();
  REQUIRE(adjust.hierarchy.joined() != nullptr);
  World world(transport, kRanks, World::oversubscribed(), {}, adjust);
  const auto body = [&](Member& member) -> std::string {
    for (const std::uint64_t count : {1ULL, 6ULL, 1000ULL, 70000ULL}) {
      for (const char* algorithm : {"hierarchical", "hierarchical(mates=1)", "hierarchical(across=3)",
                                    "hierarchical(across=3,mates=1)", "hierarchical(leaders=1)",
                                    "hierarchical(leaders=1,mates=1)", "hierarchical"}) {
        std::vector<std::int32_t> values(count);
        for (std::uint64_t i = 0; i < count; ++i)
          values[i] = static_cast<std::int32_t>(i * (member.rank + 1));
        Call call;
        call.collective = Collective::allreduce;
        call.dtype = Dtype::i32;
        call.count = count;
        call.in_place = true;
        call.input = call.output = values.data();
        if (Status s = member.run(call, algorithm); !s) return s.to_string();
        for (std::uint64_t i = 0; i < count; ++i) {
          if (values[i] != static_cast<std::int32_t>(i * kRanks * (kRanks + 1) / 2))
            return std::string(algorithm) + ": element " + std::to_string(i) + " of " + std::to_string(count);
        }
      }
    }
    return {};
  };
  REQUIRE(world.run(body) == "");
}

}  // namespace

TEST_CASE("hierarchical allreduces with other parameters share a group, on control blocks",
          "[collectives][shm]") {
  run_settings(WorldTransport::shm, true);
}
TEST_CASE("hierarchical allreduces with other parameters share a group, as messages",
          "[collectives][inproc]") {
  run_settings(WorldTransport::inproc, false);
}
TEST_CASE("rows agree with the serial reference on control blocks, inproc", "[collectives][inproc]") {
  run_all(WorldTransport::inproc, true);
}
TEST_CASE("rows agree with the serial reference on control blocks, shm", "[collectives][shm]") {
  run_all(WorldTransport::shm, true);
}
TEST_CASE("rows agree with the serial reference as messages, inproc", "[collectives][inproc]") {
  run_all(WorldTransport::inproc, false);
}
TEST_CASE("rows agree with the serial reference as messages, shm", "[collectives][shm]") {
  run_all(WorldTransport::shm, false);
}

}  // namespace tutti::test
