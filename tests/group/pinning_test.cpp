// When TUTTI_PIN binds and when it does not: the decision, and worlds of threads that are bound.
#include "runtime/group/pinning.hpp"

#include <thread>

#include "tests/support/catch.hpp"
#include "topology/affinity.hpp"
#include "topology/discovery.hpp"

using namespace tutti;
using Catch::Matchers::Contains;

namespace {

// Four cores in two sockets.
Topology small_machine() {
  Topology t;
  for (std::uint32_t i = 0; i < 4; ++i) {
    t.pus.push_back({i, true});
    t.cores.push_back({i, 1});
  }
  t.sockets = {{0, 2}, {2, 2}};
  t.is_this_machine = true;
  return t;
}

std::vector<std::uint32_t> decide(const std::string& policy, const std::vector<StartAffinity>& ranks,
                                  std::size_t index) {
  const auto decision = decide_pinning(small_machine(), *parse_pin(policy), ranks, index);
  INFO(decision.status().message());
  REQUIRE(decision.is_ok());
  CHECK(decision->cpus.empty() == !decision->why_not.empty());
  return decision->cpus;
}

}  // namespace

TEST_CASE("ranks that share everything are bound by the policy") {
  const std::vector<StartAffinity> ranks(2, {{0, 1, 2, 3}, false});
  CHECK(decide("off", ranks, 1).empty());
  CHECK(decide("auto", ranks, 0) == std::vector<std::uint32_t>{0, 1});
  CHECK(decide("auto", ranks, 1) == std::vector<std::uint32_t>{2, 3});
  CHECK(decide("core", ranks, 1) == std::vector<std::uint32_t>{1});
  CHECK(decide("3,1", ranks, 0) == std::vector<std::uint32_t>{3});
  CHECK_THAT(decide_pinning(small_machine(), *parse_pin("3"), ranks, 0).status().message(),
             Contains("1 entries for 2 ranks"));
}

TEST_CASE("where the launcher has bound, nobody is bound again, on any rank") {
  const std::vector<StartAffinity> apart = {{{0, 1}, true}, {{2, 3}, true}};
  const std::vector<StartAffinity> together(2, {{2, 3}, true});
  for (std::size_t index = 0; index < 2; ++index) {
    CHECK(decide("core", apart, index).empty());
    CHECK(decide("core", together, index).empty());
  }
  CHECK_THAT(decide_pinning(small_machine(), *parse_pin("core"), apart, 0)->why_not,
             Contains("each to its own CPUs"));
  CHECK_THAT(decide_pinning(small_machine(), *parse_pin("core"), together, 0)->why_not, Contains("2-3"));
}

TEST_CASE("a thread is bound once, and an earlier binding of ours is kept") {
  const std::vector<std::uint32_t> before = affinity_of_this_thread();
  std::vector<std::uint32_t> after, again;
  bool was_bound = true;
  std::thread([&] {
    const Topology topology = discover_this_machine();
    was_bound = topology.is_bound;
    const PinRequest last = *parse_pin(std::to_string(before.back()));
    const std::vector<StartAffinity> alone = {{before, topology.is_bound}};
    static_cast<void>(pin_this_thread(topology, last, alone, 0));
    after = affinity_of_this_thread();
    const Topology narrow = discover_this_machine();
    const std::vector<StartAffinity> later = {{after, narrow.is_bound}};
    static_cast<void>(pin_this_thread(narrow, *parse_pin("core"), later, 0));
    again = affinity_of_this_thread();
  }).join();
  CHECK(affinity_of_this_thread() == before);
  if (was_bound) {
    CHECK(after == before);  // as somebody else wanted it
    return;
  }
  CHECK(after == std::vector<std::uint32_t>{before.back()});
  CHECK(again == after);
}
