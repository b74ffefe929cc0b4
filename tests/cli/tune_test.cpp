// `tutti tune` without a machine: races over made-up times, rules from points, and a whole campaign on a
// course whose times are a formula. Knows no ranks.
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "runtime/selection/rules.hpp"
#include "tests/support/catch.hpp"
#include "tools/cli/tune/campaign.hpp"
#include "tools/cli/tune/race.hpp"
#include "tools/cli/tune/ranges.hpp"

using namespace tutti;
using namespace tutti::tool;

namespace {

// Small, the same in every run, about as often above as below 0.
double wobble(std::size_t i, double most) {
  const auto mixed = static_cast<std::uint32_t>(i * 2654435761U) >> 16U;
  return most * (static_cast<double>(mixed % 2001) / 1000.0 - 1);
}

Entry entry(std::string algorithm, double ratio, double noise = 0.01) {
  return {std::move(algorithm), {10 * ratio, ratio, noise, true}};
}

Point point(std::uint64_t bytes, std::vector<Entry> others) {
  return {bytes, "two_shot", 10, std::move(others)};
}

using Words = std::vector<std::string>;

}  // namespace

TEST_CASE("a race tells a faster contender from an equal one, whatever moves them both") {
  Race race(3);
  std::size_t draw = 0;
  while (!race.is_decided()) {
    REQUIRE(race.round_count() < 100);
    const double mood = race.round_count() % 3 == 0 ? 3.0 : 1.0;  // the machine's, in this round
    for (std::size_t i = 0; i < 3; ++i) {
      if (race.is_running(i)) race.add(i, mood * (i == 2 ? 8.0 : 10.0) * (1 + wobble(draw++, 0.02)));
    }
    race.end_round();
  }
  REQUIRE(race.leader() == 2);
  const Standing faster = race.standing(2), equal = race.standing(1);
  CHECK(faster.is_faster());
  CHECK(std::abs(faster.ratio - 0.8) < 0.03);
  CHECK(faster.noise < 0.1);
  CHECK_FALSE(equal.is_faster());
  CHECK_FALSE(race.is_running(1));  // sent home: it cannot win
}

TEST_CASE("two rounds never prove anything") {
  Race race(2);
  for (int round = 0; round < 2; ++round) {
    race.add(0, 10);
    race.add(1, 1);
    race.end_round();
  }
  CHECK(race.leader() == 1);
  CHECK_FALSE(race.standing(1).is_sure);
  CHECK_FALSE(race.standing(1).is_faster());
  CHECK_FALSE(race.is_decided());
}

TEST_CASE("noise keeps a difference from counting") {
  Race race(2);
  for (std::size_t round = 0; round < 9; ++round) {
    race.add(0, 10 * (1 + wobble(2 * round, 0.4)));
    race.add(1, 9 * (1 + wobble(2 * round + 1, 0.4)));
    race.end_round();
  }
  CHECK(race.standing(1).ratio < 1.4);
  CHECK(race.standing(1).noise > 0.1);
  CHECK_FALSE(race.standing(1).is_faster());
}

TEST_CASE("the default choice stays where it is as good") {
  const std::vector<Point> points = {point(4, {entry("ring", 0.97)}), point(16, {entry("ring", 0.90, 0.2)}),
                                     point(64, {entry("ring", 0.80)}), point(256, {entry("ring", 1.2)})};
  CHECK(choose(points) == Words{"", "", "ring", ""});
}

TEST_CASE("of equals the one that stays longest is chosen") {
  const std::vector<Point> points = {point(4, {entry("ring", 0.700), entry("circulant", 0.705)}),
                                     point(16, {entry("ring", 0.9), entry("circulant", 0.7)}),
                                     point(64, {entry("circulant", 0.71), entry("rabenseifner", 0.70)}),
                                     point(256, {entry("circulant", 0.9), entry("rabenseifner", 0.5)})};
  CHECK(choose(points) == Words{"circulant", "circulant", "circulant", "rabenseifner"});
}

TEST_CASE("a crossover is looked for halfway, the widest gap first") {
  const std::vector<Point> points = {point(16, {}), point(64, {}), point(1024, {}), point(2048, {})};
  const Words chosen = {"", "ring", "", "circulant"};
  const auto widest = find_refinement(points, chosen);
  REQUIRE(widest);
  CHECK(widest->bytes == 256);
  CHECK(widest->algorithms == Words{"ring"});
  CHECK_FALSE(find_refinement(points, Words{"", "", "", ""}));
  // Whole blocks of three ranks: not quite a factor of four apart.
  const auto between =
      find_refinement(std::vector<Point>{point(4104, {}), point(16392, {})}, Words{"", "ring"});
  REQUIRE(between);
  CHECK(between->bytes == 8208);
  // Neighbours a factor of two apart are near enough.
  CHECK_FALSE(find_refinement(std::span(points).subspan(2), Words{"", "circulant"}));
}

TEST_CASE("rules end where their algorithm was last the choice, and can be read") {
  const std::vector<Point> points = {point(4, {}), point(16, {}), point(64, {}), point(256, {}),
                                     point(1024, {})};
  const auto rules = [&](const Words& chosen) {
    Words made = make_rules(Collective::allreduce, points, chosen, 4);
    for (const std::string& rule : made) CHECK(parse_rules(Collective::allreduce, rule).is_ok());
    return made;
  };
  CHECK(rules({"", "", "", "", ""}).empty());
  CHECK(rules({"ring", "", "", "", ""}) == Words{"ring:-4@4"});
  CHECK(rules({"", "ring", "ring", "", ""}) == Words{"ring:16-64@4"});
  CHECK(rules({"", "", "", "ring", "ring"}) == Words{"ring:256-@4"});
  CHECK(rules({"", "", "", "", "ring"}) == Words{"ring:1k@4"});
  CHECK(rules({"ring", "ring", "rabenseifner(segment=64k)", "", ""}) ==
        Words{"ring:-63@4", "rabenseifner(segment=64k):64@4"});
  const std::vector<Point> barrier = {point(0, {})};
  CHECK(make_rules(Collective::barrier, barrier, Words{"dissemination"}, 4) == Words{"dissemination:0-@4"});
}

namespace {

// A machine on which one algorithm is fast for short vectors and another for long ones.
class MadeUp final : public Course {
 public:
  std::optional<double> time(Collective collective, std::uint64_t bytes, const std::string& rules,
                             double seconds) override {
    clock += seconds;
    const auto list = parse_rules(collective, rules.empty() ? "two_shot" : rules);
    REQUIRE(list.is_ok());
    const RuleItem* item = match(*list, bytes, 4);
    const std::string name = item == nullptr ? "two_shot" : std::string(item->row->name);
    if (name == "census") return std::nullopt;  // does not run here
    ++calls[name];
    const double size = static_cast<double>(bytes);
    double us = 20 + size / 100;
    if (name == "recursive_doubling") us = 5 + size / 50;
    if (name == "ring") us = 60 + size / 200;
    return us * (1 + wobble(draw_++, 0.01));
  }
  double now() override { return clock; }

  std::map<std::string, int> calls;
  double clock = 0;

 private:
  std::size_t draw_ = 0;
};

CampaignPlan plan_for(double budget) {
  CampaignPlan plan;
  plan.sizes = {{Collective::allreduce, {4, 64, 1024, 16384, 262144}}};
  plan.budget_seconds = budget;
  plan.group.size = 4;
  plan.setting.places = places_of(4, 4);
  plan.setting.model = typical_model();
  return plan;
}

const auto kSilent = [](double, const std::string&) {};

}  // namespace

TEST_CASE("a campaign finds the winners and their crossovers within its budget") {
  const CampaignPlan plan = plan_for(60);
  MadeUp machine;
  const CampaignResult result = run_campaign(plan, machine, kSilent);
  REQUIRE(result.outcomes.size() == 1);
  const Outcome& outcome = result.outcomes[0];
  CHECK(machine.clock < 66);
  REQUIRE(outcome.rules.size() == 2);
  const auto rules = parse_rules(Collective::allreduce, outcome.rules[0] + ";" + outcome.rules[1]);
  REQUIRE(rules.is_ok());
  // The true crossovers are at 1500 B and at 8000 B; between powers of two, the default choice may stay.
  for (const std::uint64_t bytes : {4U, 512U}) {
    REQUIRE(match(*rules, bytes, 4) != nullptr);
    CHECK(match(*rules, bytes, 4)->row->name == "recursive_doubling");
  }
  CHECK(match(*rules, 3000, 4) == nullptr);
  for (const std::uint64_t bytes : {16384U, 1U << 26U}) {
    REQUIRE(match(*rules, bytes, 4) != nullptr);
    CHECK(match(*rules, bytes, 4)->row->name == "ring");
  }
  CHECK(match(*rules, 4, 5) == nullptr);  // measured with 4 ranks
  CHECK(result.model.has_value());
  CHECK(outcome.points.size() > plan.sizes[0].second.size());  // some were added between

  const std::vector<Verified> verified = verify_rules(plan, result, machine, 5);
  CHECK(verified.size() >= 4);
  for (const Verified& v : verified) {
    CHECK(v.tuned.ratio < 0.96);
    CHECK_FALSE(v.is_slower());
  }
}

TEST_CASE("a tiny budget makes no rule that it has not proved") {
  MadeUp machine;
  const CampaignResult result = run_campaign(plan_for(0.01), machine, kSilent);
  REQUIRE(result.outcomes.size() == 1);
  for (const Point& p : result.outcomes[0].points) CHECK(p.default_us > 0);
  for (std::size_t i = 0; i < result.outcomes[0].points.size(); ++i) {
    const std::string& chosen = result.outcomes[0].chosen[i];
    if (!chosen.empty()) CHECK(result.outcomes[0].points[i].find(chosen)->standing.is_sure);
  }
}
