// Compiled plans: waits are pruned but sufficient, fused receives, and the cache that keeps plans.
#include "tests/support/catch.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "runtime/algorithms/catalog.hpp"
#include "runtime/schedule/passes/fuse.hpp"
#include "runtime/schedule/passes/segment.hpp"
#include "runtime/scheduler/plan.hpp"
#include "runtime/scheduler/plan_cache.hpp"
#include "runtime/scheduler/shared_plans.hpp"

namespace tutti {
namespace {

bool is_local(const PlanStep& step) {
  return step.kind == PlanStep::Kind::copy || step.kind == PlanStep::Kind::reduce;
}

// The order that a plan imposes: a graph over the issue (2j) and the completion (2j + 1) of every step. It knows
// nothing of the schedule. A step is issued after its channel's earlier ones and after its waits are complete.
// A local step is complete before a later one of its channel is issued.
class PlanOrder {
 public:
  explicit PlanOrder(const Plan& plan) : edges_(2 * plan.steps.size()) {
    for (const PlanChannel& channel : plan.channels) {
      for (std::uint32_t j = channel.first_step; j < channel.end_step; ++j) {
        const PlanStep& step = plan.steps[j];
        edges_[2 * j].push_back(2 * j + 1);
        if (j + 1 < channel.end_step) edges_[is_local(step) ? 2 * j + 1 : 2 * j].push_back(2 * (j + 1));
        for (std::uint32_t w = 0; w < step.wait_count; ++w)
          edges_[2 * plan.waits[step.first_wait + w] + 1].push_back(2 * j);
      }
    }
  }

  // Is step `before` complete whenever step `after` is issued?
  bool is_complete_before(std::uint32_t before, std::uint32_t after) const {
    std::vector<bool> is_seen(edges_.size());
    std::vector<std::uint32_t> open = {2 * before + 1};
    while (!open.empty()) {
      const std::uint32_t node = open.back();
      open.pop_back();
      if (node == 2 * after) return true;
      for (const std::uint32_t next : edges_[node]) {
        if (!is_seen[next]) open.push_back(next);
        is_seen[next] = true;
      }
    }
    return false;
  }

 private:
  std::vector<std::vector<std::uint32_t>> edges_;
};

// The plan's step of every schedule step: by channel, in program order, a fused reduction at its receive.
std::vector<std::uint32_t> plan_steps_of(const Schedule& s, bool uses_marks) {
  std::vector<std::uint32_t> number(s.steps.size(), ~0U);
  std::vector<bool> is_absorbed(s.steps.size());
  for (const Step& step : s.steps) {
    if (uses_marks && step.verb == Verb::recv && step.fused_with != kNotFused)
      is_absorbed[step.fused_with] = true;
  }
  std::uint32_t next = 0;
  for (std::uint32_t channel = 0; channel < s.channels; ++channel) {
    for (std::uint32_t i = 0; i < s.steps.size(); ++i) {
      if (s.steps[i].channel != channel || is_absorbed[i]) continue;
      number[i] = next++;
      if (s.steps[i].verb == Verb::recv && s.steps[i].fused_with != kNotFused)
        number[s.steps[i].fused_with] = number[i];
    }
  }
  return number;
}

// "" if the plan of this schedule orders everything the schedule orders, with no wait that its channel
// implies.
std::string check_plan(const Schedule& schedule) {
  const auto plan = compile(schedule);
  if (!plan) return plan.status().to_string();
  const std::vector<std::uint32_t> number = plan_steps_of(schedule, true);
  const PlanOrder order(*plan);
  for (std::uint32_t i = 0; i < schedule.steps.size(); ++i) {
    const Step& step = schedule.steps[i];
    const PlanStep& planned = plan->steps[number[i]];
    if (step.verb == Verb::send && (planned.kind != PlanStep::Kind::send || planned.peer != step.peer))
      return fmt::format("step {} is no send to {}", i, step.peer);
    for (const std::uint32_t d : schedule.dependencies_of(step)) {
      if (number[d] != number[i] && !order.is_complete_before(number[d], number[i]))
        return fmt::format("step {} is not held back until step {} is complete", i, d);
    }
  }
  for (const PlanChannel& channel : plan->channels) {
    for (std::uint32_t j = channel.first_step; j < channel.end_step; ++j) {
      const PlanStep& step = plan->steps[j];
      for (std::uint32_t w = 0; w < step.wait_count; ++w) {
        const std::uint32_t on = plan->waits[step.first_wait + w];
        if (on == j) return fmt::format("plan step {} waits for itself", j);
        if (on >= channel.first_step && on < channel.end_step && on > j)
          return fmt::format("plan step {} waits for a later one of its channel", j);
        if (on >= channel.first_step && on < j && is_local(plan->steps[on]))
          return fmt::format("plan step {} waits needlessly for {}", j, on);
      }
    }
  }
  return {};
}

Schedule emit(const AlgorithmRow& row, std::uint32_t rank, std::uint32_t p, bool in_place) {
  CollectiveSpec spec;
  spec.collective = row.collective;
  spec.in_place = in_place;
  auto schedule = row.emit(spec, {rank, p}, default_params(row));
  INFO(row.name << ": " << schedule.status().to_string());
  REQUIRE(schedule.is_ok());
  return *std::move(schedule);
}

// A plan of that many copies, so of a size that grows with it.
Plan plan_of_size(std::size_t steps) {
  Plan plan;
  plan.steps.resize(steps);
  return plan;
}

}  // namespace

TEST_CASE("plans wait for what the schedule orders, and for no more than they must", "[plan]") {
  std::string wrong;
  for (const AlgorithmRow& row : catalog()) {
    for (const std::uint32_t p : {1U, 2U, 3U, 4U, 6U, 8U, 9U}) {
      for (const bool in_place : {false, true}) {
        if (!check_legality(row, p, true, in_place, true)) continue;
        for (std::uint32_t rank = 0; rank < p; ++rank) {
          const Schedule schedule = emit(row, rank, p, in_place);
          std::vector<Schedule> variants = {schedule, fuse(schedule)};
          for (const std::uint32_t channels : {1U, 2U}) {
            if (auto cut = segment(schedule, 4, channels)) {
              variants.push_back(*cut);
              variants.push_back(fuse(*std::move(cut)));
            }
          }
          for (std::size_t v = 0; v < variants.size(); ++v) {
            if (std::string report = check_plan(variants[v]); !report.empty())
              wrong += fmt::format("{} {} p={} rank {} variant {}: {}\n", to_string(row.collective), row.name,
                                   p, rank, v, report);
          }
        }
      }
    }
  }
  CHECK(wrong == "");
}

TEST_CASE("a ring reduces its messages where they lie", "[plan]") {
  const AlgorithmRow* row = find_algorithm(Collective::allreduce, "ring");
  REQUIRE(row != nullptr);
  for (const bool in_place : {false, true}) {
    const auto plan = compile(fuse(emit(*row, 1, 4, in_place)));
    REQUIRE(plan.is_ok());
    const auto count = [&](PlanStep::Kind kind) {
      return std::count_if(plan->steps.begin(), plan->steps.end(),
                           [&](const PlanStep& step) { return step.kind == kind; });
    };
    CHECK(count(PlanStep::Kind::send) == 6);
    CHECK(count(PlanStep::Kind::recv_reduce) == 3);
    CHECK(count(PlanStep::Kind::recv) == 3);
    CHECK(count(PlanStep::Kind::reduce) == 0);
    for (const PlanStep& step : plan->steps) {
      if (step.kind == PlanStep::Kind::recv_reduce) CHECK(step.source_count == 2);
    }
  }
}

TEST_CASE("the plan cache tells keys apart in every field", "[plan]") {
  const int rows[2] = {};
  const PlanKey keys[] = {{&rows[0], 0, 0, 0},          {&rows[1], 0, 0, 0}, {&rows[0], 1, 0, 0},
                          {&rows[0], 0, 1, 0},          {&rows[0], 0, 0, 1}, {nullptr, 0, 0, 0},
                          {&rows[0], 0, 0, 0, &rows[1]}};
  PlanCache<Plan> cache(1U << 20U);
  for (std::size_t i = 0; i < std::size(keys); ++i) {
    CHECK(cache.find(keys[i]) == nullptr);
    cache.insert(keys[i], std::make_shared<const Plan>(plan_of_size(i + 1)));
  }
  CHECK(cache.size() == std::size(keys));
  for (int round = 0; round < 2; ++round) {
    for (std::size_t i = 0; i < std::size(keys); ++i) {
      const auto plan = cache.find(keys[i]);
      REQUIRE(plan != nullptr);
      CHECK(plan->steps.size() == i + 1);
      CHECK(cache.find(keys[i]) == plan);
    }
  }
}

TEST_CASE("groups of one shape share plans as long as one of them has them", "[plan]") {
  PlansByShape shapes;
  const GroupShape shape{1, 4, {}, true, false, 127, 4096};
  GroupShape others[] = {shape, shape, shape, shape, shape, shape, shape};
  others[0].rank = 2;
  others[1].size = 5;
  others[2].hierarchy = Hierarchy::of_sizes(std::vector<std::uint32_t>{2, 2});
  others[3].can_fuse = false;
  others[4].compresses_within_nodes = true;
  others[5].lines = 16;
  others[6].staging_bytes = 8192;
  const auto plans = shapes.of(shape);
  CHECK(shapes.of(shape) == plans);
  std::vector<std::shared_ptr<SharedPlans>> kept;
  for (const GroupShape& other : others) {
    kept.push_back(shapes.of(other));
    CHECK(kept.back() != plans);
  }
  int made = 0;
  const auto make = [&made]() -> Result<Plan> {
    ++made;
    return plan_of_size(3);
  };
  const PlanKey key{nullptr, 1, 0, 0};
  auto first = *plans->get<Plan>(key, make);
  CHECK(*plans->get<Plan>(key, make) == first);
  CHECK(made == 1);
  CHECK(*plans->get<Plan>({nullptr, 2, 0, 0}, make) != first);
  first.reset();
  static_cast<void>(plans->get<Plan>(key, make));  // nobody had it any more
  CHECK(made == 3);
  const auto refused = plans->get<Plan>({nullptr, 4, 0, 0}, [] { return Result<Plan>(unsupported("no")); });
  CHECK(refused.status().code() == StatusCode::unsupported);
  for (std::uint64_t n = 10; n < 1000; ++n) static_cast<void>(plans->get<Plan>({nullptr, n, 0, 0}, make));
  CHECK(plans->size() < 64);
}

TEST_CASE("the plan cache drops what was used least recently, beyond its limit", "[plan]") {
  const std::size_t each = plan_of_size(100).bytes();
  PlanCache<Plan> cache(3 * each);
  const auto key = [](std::uint64_t n) { return PlanKey{nullptr, n, 0, 0}; };
  const auto first = cache.insert(key(1), std::make_shared<const Plan>(plan_of_size(100)));
  cache.insert(key(2), std::make_shared<const Plan>(plan_of_size(100)));
  cache.insert(key(3), std::make_shared<const Plan>(plan_of_size(100)));
  CHECK(cache.size() == 3);
  CHECK(cache.find(key(1)) == first);  // now 2 is the oldest
  cache.insert(key(4), std::make_shared<const Plan>(plan_of_size(100)));
  CHECK(cache.size() == 3);
  CHECK(cache.find(key(2)) == nullptr);
  CHECK(cache.find(key(3)) != nullptr);
  CHECK(cache.find(key(4)) != nullptr);
  CHECK(cache.find(key(1)) == first);

  // One that is larger than the limit stays until the next comes; who uses a plan keeps it.
  cache.insert(key(5), std::make_shared<const Plan>(plan_of_size(1000)));
  CHECK(cache.size() == 1);
  CHECK(cache.find(key(5)) != nullptr);
  CHECK(first->steps.size() == 100);
  cache.insert(key(6), std::make_shared<const Plan>(plan_of_size(1)));
  CHECK(cache.find(key(5)) == nullptr);
  CHECK(cache.find(key(6)) != nullptr);
  CHECK(cache.size() == 1);
}

}  // namespace tutti
