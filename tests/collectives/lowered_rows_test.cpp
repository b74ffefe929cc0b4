// Catalogue rows on control blocks: buffers that all ranks, some ranks or no ranks share, ranks in place and not,
// streaming stores, vectors longer than the staging memory. The number of epochs tells which form ran.
#include <algorithm>
#include <set>

#include "tests/collectives/exercise.hpp"
#include "tests/scheduler/lowered_support.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/test_fraction.hpp"

namespace tutti::test {
namespace {

constexpr std::size_t kNever = std::size_t{1} << 60U;

enum class Sharers { all, all_but_last, inputs_only, outputs_only, none };
enum class Placement { apart, in_place, odd_ranks_in_place };

struct LoweredCase {
  Case call;
  Sharers sharers = Sharers::none;
  Placement placement = Placement::apart;
  Forms forms;

  Case of_rank(std::uint32_t rank, std::uint32_t p) const {
    Case c = call;
    c.in_place =
        placement == Placement::in_place || (placement == Placement::odd_ranks_in_place && rank % 2 == 1);
    const bool is_sharer = sharers != Sharers::none && (sharers != Sharers::all_but_last || rank + 1 < p);
    c.maps_input = is_sharer && sharers != Sharers::outputs_only;
    c.maps_output = is_sharer && sharers != Sharers::inputs_only;
    return c;
  }
};

const char* name_of(Sharers sharers) {
  constexpr const char* kNames[] = {"all", "all but the last", "inputs only", "outputs only", "none"};
  return kNames[static_cast<int>(sharers)];
}

// Runs the cases on every rank; each says whether the epochs it took fit what had to run.
std::string run_cases(World& world, const std::vector<LoweredCase>& cases, std::size_t announce_bytes) {
  ReferenceCache references;
  return world.run([&](Member& member) -> std::string {
    for (const LoweredCase& c : cases) {
      const Case own = c.of_rank(member.rank, member.size);
      const std::uint64_t before = epochs_of(member), mapped_before = direct_epochs_of(member);
      std::string wrong = exercise(member, own, references, nullptr);
      const std::uint64_t took = epochs_of(member) - before,
                          mapped = direct_epochs_of(member) - mapped_before;
      const std::uint64_t blocks = has_rank_blocks(own.row->collective) ? member.size : 1;
      const bool is_announced =
          c.forms.is_mapped && own.count * blocks * size_of(own.flavour->dtype) >= announce_bytes;
      if (wrong.empty() && c.forms.is_staged) {
        const bool is_mapped = is_announced && c.sharers == Sharers::all;
        if (mapped != (is_mapped ? 1 : 0))
          wrong =
              fmt::format("{} mapped epochs of {}, expected {}", mapped, took, is_mapped ? "one" : "none");
        if (is_mapped && took != 1) wrong = fmt::format("{} epochs of a mapped operation", took);
        if (took == 0) wrong = "no epoch: nothing lowered ran";
      }
      if (!wrong.empty())
        return fmt::format("{} (shared buffers: {}, rank in place: {})", wrong, name_of(c.sharers),
                           own.in_place);
    }
    return {};
  });
}

struct Limits {
  const char* name;
  std::size_t announce_bytes, stream_bytes;
  std::vector<std::uint64_t> counts;
  StagingPolicy staging = StagingPolicy::measured;
};

World::Adjust with_limits(const Limits& limits, std::uint32_t p) {
  World::Adjust adjust;
  adjust.hierarchy = domains_of(p);
  adjust.group = [&limits](std::uint32_t, GroupContext::Options& options) {
    options.lowered_limits = {limits.announce_bytes, limits.stream_bytes};
    options.staging = limits.staging;
  };
  return adjust;
}

bool is_possible(const AlgorithmRow& row, const Flavour& flavour, std::uint32_t p) {
  const Hierarchy domains = domains_of(p);
  return flavour.op != Op::user &&
         check_legality(row, p, flavour.is_commutative, false, true, &domains).is_ok();
}

}  // namespace

TEST_CASE("rows on shared buffers: what all ranks share is used where it lies, else staged", "[lowered]") {
  const Limits limits[] = {
      {"all sizes mapped", 1, kNever, {0, 1, 7, 4097}},
      {"all stores stream", 1, 1, {1, 4097}},
      {"the usual limits", LoweredLimits{}.announce_bytes, LoweredLimits{}.stream_bytes, {512, 2048, 40001}},
      {"staging memory, non-temporal stores", kNever, kNever, {1, 40001}, StagingPolicy::streamed}};
  const auto transport = GENERATE(WorldTransport::inproc, WorldTransport::shm);
  const auto p = GENERATE(2U, 3U, 4U, 7U);
  std::uint64_t number = p * 1000003ULL + (transport == WorldTransport::shm ? 1 : 0);
  for (const Limits& limit : limits) {
    INFO(limit.name << ", p " << p);
    World world(transport, p, World::oversubscribed(), {}, with_limits(limit, p));
    std::set<std::string> mapped_rows;
    for (const AlgorithmRow& row : catalog()) {
      std::vector<LoweredCase> cases;
      for (std::uint32_t root = 0; root < (is_rooted(row.collective) ? p : 1U); ++root) {
        const Forms forms = forms_of(row, p, root, domains_of(p));
        if (!forms.is_staged) continue;
        if (forms.is_mapped) mapped_rows.insert(fmt::format("{} {}", to_string(row.collective), row.name));
        for (const Flavour& flavour : kFlavours) {
          const bool is_first = &flavour == &kFlavours[0];
          if (!is_possible(row, flavour, p) || (!is_reducing(row.collective) && !is_first)) continue;
          for (const std::uint64_t count : limit.counts) {
            if (row.collective == Collective::barrier && count != 0) continue;
            for (const Sharers sharers : {Sharers::all, Sharers::all_but_last, Sharers::inputs_only,
                                          Sharers::outputs_only, Sharers::none}) {
              for (const Placement placement :
                   {Placement::apart, Placement::in_place, Placement::odd_ranks_in_place}) {
                // In place a rank has but one buffer, or one within the other.
                if (placement != Placement::apart && sharers != Sharers::all &&
                    sharers != Sharers::all_but_last)
                  continue;
                if (!is_selected(number++)) continue;
                cases.push_back({{&row, &flavour, count, root}, sharers, placement, forms});
              }
            }
          }
        }
      }
      INFO(to_string(row.collective) << " " << row.name << ", " << cases.size() << " cases");
      REQUIRE(run_cases(world, cases, limit.announce_bytes) == "");
    }
    // Not an empty test: these are the ones that must not lose their direct form.
    for (const char* name : {"allreduce two_shot", "broadcast linear", "allgather direct",
                             "reduce_scatter direct", "gather linear", "scatter linear"})
      CHECK(mapped_rows.count(name) == 1);
  }
}

// Flags and steps of a plan are limited, not ranks.
TEST_CASE("rows over 70 ranks in uneven domains: in shared memory, too", "[lowered]") {
  constexpr std::uint32_t kRanks = 70;
  std::vector<std::uint32_t> labels;
  for (std::uint32_t rank = 0; rank < kRanks; ++rank) labels.push_back(rank / 13);
  const Limits limits{"the usual limits", LoweredLimits{}.announce_bytes, LoweredLimits{}.stream_bytes, {}};
  World::Adjust adjust = with_limits(limits, kRanks);
  adjust.hierarchy = Hierarchy(labels);
  World world(WorldTransport::inproc, kRanks, World::oversubscribed(), {}, adjust);
  const std::pair<Collective, const char*> rows[] = {
      {Collective::allreduce, "knomial"},        {Collective::allreduce, "hierarchical"},
      {Collective::broadcast, "linear"},         {Collective::reduce, "knomial"},
      {Collective::reduce_scatter, "circulant"}, {Collective::barrier, "dissemination"}};
  for (const auto& [collective, name] : rows) {
    const AlgorithmRow* const row = find_algorithm(collective, name);
    const std::uint32_t root = is_rooted(collective) ? 41 : 0;
    std::vector<LoweredCase> cases;
    for (const std::uint64_t count : {std::uint64_t{1}, std::uint64_t{500}}) {
      if (collective == Collective::barrier && count != 1) continue;
      cases.push_back({{row, &kFlavours[0], collective == Collective::barrier ? 0 : count, root},
                       Sharers::none,
                       Placement::odd_ranks_in_place,
                       {true, false}});
    }
    INFO(to_string(collective) << " " << name);
    REQUIRE(run_cases(world, cases, limits.announce_bytes) == "");
  }
}

TEST_CASE("rows in several windows: vectors longer than the staging memory", "[lowered]") {
  const auto transport = GENERATE(WorldTransport::inproc, WorldTransport::shm);
  const auto p = GENERATE(2U, 3U, 5U);
  CAPTURE(p);
  std::uint64_t number = p * 2000003ULL + (transport == WorldTransport::shm ? 1 : 0);
  constexpr std::size_t kStaging = 2048;
  World::Adjust adjust;
  adjust.hierarchy = domains_of(p);
  adjust.group = [](std::uint32_t, GroupContext::Options& options) {
    options.lowered_limits = {kNever, kNever};
    options.shape(BlockKind::small).staging_bytes = 1024;
    options.shape(BlockKind::bulk).staging_bytes = kStaging;
  };
  World world(transport, p, World::oversubscribed(), {}, adjust);
  ReferenceCache references;
  for (const AlgorithmRow& row : catalog()) {
    if (row.collective == Collective::barrier) continue;
    std::vector<std::pair<LoweredCase, std::uint64_t>> cases;  // with the least number of epochs
    for (std::uint32_t root = 0; root < (is_rooted(row.collective) ? p : 1U); root += p - 1) {
      const Forms forms = forms_of(row, p, root, domains_of(p));
      if (!forms.is_staged) continue;
      const auto staged = lowered_row(row, p, root, Sharing::scratch, domains_of(p));
      std::uint32_t slots = 0;
      for (const Schedule& s : staged) slots = std::max(slots, s.scratch_slots);
      for (const Flavour& flavour : kFlavours) {
        const bool is_first = &flavour == &kFlavours[0];
        if (!is_possible(row, flavour, p) || (!is_reducing(row.collective) && !is_first)) continue;
        // Counts around multiples of an epoch's capacity, for the vector or a block.
        const std::uint64_t per_slot = slots == 0 ? 512 : kStaging / slots / 64 * 64 / size_of(flavour.dtype);
        const std::uint64_t fits = per_slot * (has_rank_blocks(row.collective) ? 1 : staged[0].blocks);
        if (fits == 0) continue;
        for (const std::uint64_t count : {fits - 1, fits, fits + 1, 2 * fits, 2 * fits + 1, 5 * fits - 3}) {
          for (const Placement placement :
               {Placement::apart, Placement::in_place, Placement::odd_ranks_in_place}) {
            if (!is_selected(number++)) continue;
            const std::uint64_t epochs =
                slots == 0 ? 1 : std::max<std::uint64_t>(1, (count + fits - 1) / fits);
            cases.push_back({{{&row, &flavour, count, root}, Sharers::none, placement, forms}, epochs});
          }
        }
      }
    }
    INFO(to_string(row.collective) << " " << row.name << ", " << cases.size() << " cases");
    REQUIRE(world.run([&](Member& member) -> std::string {
      for (const auto& [c, epochs] : cases) {
        const Case own = c.of_rank(member.rank, member.size);
        const std::uint64_t before = epochs_of(member);
        if (std::string wrong = exercise(member, own, references, nullptr); !wrong.empty()) return wrong;
        const std::uint64_t took = epochs_of(member) - before;
        if (took < epochs)
          return fmt::format("{}: {} epochs, at least {} are needed", describe(own), took, epochs);
      }
      return {};
    }) == "");
  }
}

}  // namespace tutti::test
