// `tutti run --bind` with real processes: affinity, OMP_NUM_THREADS, what is reported and what is refused.
#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/group/job.hpp"
#include "tests/support/catch.hpp"
#include "tools/cli/run/binding.hpp"
#include "topology/affinity.hpp"
#include "topology/discovery.hpp"
#include "topology/topology.hpp"

using namespace tutti;
using namespace tutti::test;
using Catch::Matchers::Contains;

namespace {

constexpr const char* kShow =
    "echo $TUTTI_RANK: $(grep Cpus_allowed_list /proc/self/status | cut -f 2) ${OMP_NUM_THREADS-none} "
    "${TUTTI_PIN-none}";

Outcome launch(std::vector<std::string> options, const std::string& script = kShow) {
  options.insert(options.begin(), {TUTTI_RUN, "--no-prefix"});
  options.insert(options.end(), {"sh", "-c", script});
  return run(std::move(options), "");
}

std::set<std::string> lines_of(const std::string& text) {
  std::set<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.insert(line);
  return lines;
}

std::string list(const std::vector<std::uint32_t>& cpus) { return cpu_list_text(cpus); }

}  // namespace

TEST_CASE("ranks are left as they are unless somebody asks") {
  ::unsetenv("OMP_NUM_THREADS");
  const std::string all = list(affinity_of_this_thread());
  for (const std::vector<std::string>& options : {std::vector<std::string>{}, {"--bind", "none"}}) {
    std::vector<std::string> words = {"-n", "2"};
    words.insert(words.end(), options.begin(), options.end());
    const Outcome outcome = launch(words);
    CHECK(outcome.err.empty());
    const std::string rest = all + (options.empty() ? " none none" : " none off");
    CHECK(lines_of(outcome.out) == std::set<std::string>{"0: " + rest, "1: " + rest});
  }
}

TEST_CASE("a list binds rank by rank") {
  ::unsetenv("OMP_NUM_THREADS");
  const std::vector<std::uint32_t> cpus = affinity_of_this_thread();
  const std::string first = std::to_string(cpus.front()), last = std::to_string(cpus.back());
  const Outcome sets = launch({"-n2", "--bind=" + last + ";" + first, "--report-bindings"});
  CHECK(sets.status == 0);
  CHECK(lines_of(sets.out) == std::set<std::string>{"0: " + last + " 1 off", "1: " + first + " 1 off"});
  CHECK_THAT(sets.err, Contains("rank 0: CPUs " + last) && Contains("rank 1: CPUs " + first) &&
                           Contains("1 thread [") && Contains("B"));
  // The variable holds as well, and an argument wins over it.
  ::setenv("TUTTI_PIN", last.c_str(), 1);
  CHECK(launch({"-n", "1"}).out == "0: " + last + " 1 off\n");
  CHECK(launch({"-n", "1", "--bind", first}).out == "0: " + first + " 1 off\n");
  CHECK(launch({"-n", "1", "--bind", "none"}).out == "0: " + list(cpus) + " none off\n");
  ::unsetenv("TUTTI_PIN");
}

TEST_CASE("one core for each rank, threads as they were set") {
  const std::vector<std::uint32_t> cpus = affinity_of_this_thread();
  ::setenv("OMP_NUM_THREADS", "7", 1);
  const Outcome outcome = launch({"-n", "3", "--bind", "core"});
  ::unsetenv("OMP_NUM_THREADS");
  CHECK(outcome.status == 0);
  CHECK(lines_of(outcome.out).size() == 3);
  for (const std::string& line : lines_of(outcome.out)) {
    CHECK_THAT(line, Contains(" 7 off"));
    CHECK(std::any_of(cpus.begin(), cpus.end(), [&](std::uint32_t cpu) {
      return line.find(": " + std::to_string(cpu)) != std::string::npos;
    }));
  }
}

TEST_CASE("nobody leaves the set that the job itself was given") {
  const std::vector<std::uint32_t> before = affinity_of_this_thread();
  const std::vector<std::uint32_t> one = {before.back()};
  REQUIRE(bind_this_thread(one).is_ok());
  const Outcome outcome = launch({"-n", "2", "--bind", "socket", "--report-bindings"});
  const Outcome refused = launch({"-n", "1", "--bind", std::to_string(before.front())});
  REQUIRE(bind_this_thread(before).is_ok());
  CHECK(lines_of(outcome.out) ==
        std::set<std::string>{"0: " + list(one) + " 1 off", "1: " + list(one) + " 1 off"});
  if (before.size() == 1) return;
  CHECK_THAT(outcome.err, Contains("~"));
  CHECK(refused.status == 1);
  CHECK(refused.out.empty());
  CHECK_THAT(refused.err, Contains("CPU " + std::to_string(before.front()) + " is not allowed"));
}

TEST_CASE("the report of ranks with a GPU") {
  auto made = make_synthetic_topology("pack:2 [numa] core:2 pu:1");
  if (!made) return;  // a build without hwloc
  RunBinding binding;
  binding.is_active = true;
  binding.topology = *std::move(made);
  const auto add = [&](Device::Kind kind, std::vector<std::string> names, std::size_t socket) {
    Device device;
    device.kind = kind;
    device.names = std::move(names);
    device.address = "0000:82:00.0";
    device.pus = binding.topology.sockets[socket];
    device.preference = 1;
    binding.topology.devices.push_back(device);
  };
  add(Device::Kind::gpu, {"cuda0", "nvml0"}, 0);
  add(Device::Kind::gpu, {}, 1);
  add(Device::Kind::nic, {"mlx5_0"}, 1);
  PinRequest request;
  request.policy = PinPolicy::gpu;
  auto placements = plan_placements(binding.topology, 3, request);
  REQUIRE(placements.is_ok());
  binding.placements = *std::move(placements);
  CHECK(describe_binding(binding, 1, 5) ==
        "rank 5: CPUs 2-3, socket 1, NUMA node 1, GPU 1 (0000:82:00.0), NIC mlx5_0, 2 threads [./.][B/B]");
  CHECK_THAT(describe_binding(binding, 2, 6), Contains("CPUs 1,") && Contains("GPU 0 (cuda0)"));
}

TEST_CASE("an impossible binding is refused before anything starts") {
  const auto refused = [](const std::vector<std::string>& options, const std::string& words) {
    const Outcome outcome = launch(options, "echo started");
    INFO(outcome.err);
    CHECK(outcome.status != 0);
    CHECK(outcome.out.empty());
    CHECK_THAT(outcome.err, Contains(words));
  };
  refused({"-n", "2", "--bind", "cores"}, "--bind: 'cores' is neither a policy");
  refused({"-n", "2", "--bind", "0"}, "1 entries for 2 ranks");
  refused({"-n", "1", "--bind", "65535"}, "there is no CPU 65535");
  refused({"-n", "2", "--bind-order", "random"}, "--bind-order: expected compact or scatter");
  ::setenv("TUTTI_PIN", "cores", 1);
  refused({"-n", "2"}, "TUTTI_PIN: 'cores' is neither a policy");
  ::unsetenv("TUTTI_PIN");
  ::setenv("TUTTI_TOPOLOGY", "synthetic:core:4 pu:1", 1);
  refused({"-n", "2", "--bind", "core"}, "TUTTI_TOPOLOGY");  // without hwloc as well
  ::unsetenv("TUTTI_TOPOLOGY");
}

// `tutti run` does not see the variable, as other launchers would not.
TEST_CASE("init() binds where TUTTI_PIN asks, once, and not where the launcher has") {
  const std::vector<std::uint32_t> cpus = affinity_of_this_thread();
  const std::string all = list(cpus), first = std::to_string(cpus.front()),
                    last = std::to_string(cpus.back());
  const std::string program = std::string("exec ") + GROUP_PROGRAM + " affinity";
  const Outcome plain = launch({"-n", "2"}, program);
  CHECK_THAT(plain.out, Contains("0: " + all + " " + all + " " + all + "\n"));
  const Outcome pinned = launch({"-n", "2"}, "export TUTTI_PIN=" + last + "," + first + "; " + program);
  INFO(pinned.err);
  CHECK(pinned.status == 0);
  const bool may_bind =
      pinned.err.find("is not followed") == std::string::npos;  // else we are bound ourselves
  if (may_bind) {
    CHECK_THAT(pinned.out, Contains("0: " + all + " " + last + " " + last + "\n") &&
                               Contains("1: " + all + " " + first + " " + first + "\n"));
  }
  if (cpus.size() > 1) {
    const Outcome bound =
        launch({"-n", "2", "--bind", last + "," + first}, "export TUTTI_PIN=core; " + program);
    CHECK(bound.status == 0);
    CHECK_THAT(bound.out, Contains("0: " + last + " " + last + " " + last + "\n"));
    CHECK(count(bound.err, "TUTTI_PIN is not followed: the ranks of this machine are bound already") >= 1);
  }
  const Outcome wrong = launch({"-n", "2"}, "export TUTTI_PIN=cores; " + program);
  CHECK(wrong.status == 4);
  CHECK_THAT(wrong.out, Contains("TUTTI_PIN: 'cores' is neither"));
  const Outcome differ = launch({"-n", "2"}, "test $RANK = 0 && export TUTTI_PIN=socket; " + program);
  CHECK(differ.status == 4);
  CHECK_THAT(differ.out, Contains("TUTTI_PIN must be equal on all ranks"));
  if (!may_bind) return;
  const Outcome too_short = launch({"-n", "2"}, "export TUTTI_PIN=" + first + "; " + program);
  CHECK(too_short.status == 4);
  CHECK_THAT(too_short.out, Contains("the list has 1 entries for 2 ranks"));
}
