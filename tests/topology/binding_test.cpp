// The CPUs, memory, GPU and NIC of each rank: golden plans for real and invented machines, and the invariants
// of every plan.
#include "topology/binding.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tests/support/catch.hpp"
#include "topology/discovery.hpp"
#include "topology/progress_cpus.hpp"

namespace tutti {
namespace {

using Lines = std::vector<std::string>;

bool has_hwloc() {
  static const bool is_there = make_synthetic_topology("pu:1").is_ok();
  return is_there;
}

Topology synthetic(const std::string& description) {
  auto made = make_synthetic_topology(description);
  INFO(description << ": " << made.status().message());
  REQUIRE(made.is_ok());
  return *std::move(made);
}

Topology recorded(const std::string& name) {
  auto loaded = load_topology_xml(std::string(TOPOLOGY_DATA) + "/" + name + ".xml");
  INFO(loaded.status().message());
  REQUIRE(loaded.is_ok());
  return *std::move(loaded);
}

void allow_only(Topology* topology, const std::set<std::uint32_t>& cpus) {
  for (Pu& pu : topology->pus) pu.is_allowed = cpus.count(pu.os_index) > 0;
}

PinRequest request(const std::string& text, PinOrder order = PinOrder::compact) {
  auto parsed = parse_pin(text);
  INFO(parsed.status().message());
  REQUIRE(parsed.is_ok());
  parsed->order = order;
  return *std::move(parsed);
}

std::string device_name(const Topology& topology, const std::optional<std::uint32_t>& device) {
  return device ? " " + topology.devices[*device].names.front() : std::string();
}

// "0-5 numa 0 threads 6 cuda0 mlx5_0" for each rank.
Lines plan(const Topology& topology, std::uint32_t ranks, const std::string& policy,
           PinOrder order = PinOrder::compact) {
  const auto placements = plan_placements(topology, ranks, request(policy, order));
  INFO(placements.status().message());
  REQUIRE(placements.is_ok());
  Lines lines;
  for (const Placement& placement : *placements) {
    std::vector<std::uint32_t> nodes;
    for (const std::uint32_t node : placement.numa_nodes) nodes.push_back(topology.numa_nodes[node].os_index);
    lines.push_back(fmt::format("{} numa {} threads {}{}{}", cpu_list_text(cpus_of(topology, placement)),
                                cpu_list_text(nodes), placement.thread_count,
                                device_name(topology, placement.gpu), device_name(topology, placement.nic)));
  }
  return lines;
}

// The CPUs alone.
Lines cpus(const Topology& topology, std::uint32_t ranks, const std::string& policy,
           PinOrder order = PinOrder::compact) {
  Lines lines = plan(topology, ranks, policy, order);
  for (std::string& line : lines) line.resize(line.find(' '));
  return lines;
}

std::string refusal(const Topology& topology, std::uint32_t ranks, const std::string& policy) {
  const auto placements = plan_placements(topology, ranks, request(policy));
  CHECK_FALSE(placements.is_ok());
  return placements.status().message();
}

void add_device(Topology* topology, Device::Kind kind, const std::string& name, PuRange pus,
                std::vector<std::uint32_t> bridges) {
  Device device;
  device.kind = kind;
  device.names = {name};
  device.pus = pus;
  device.bridges = std::move(bridges);
  device.preference = kind == Device::Kind::nic ? 4 : 0;
  topology->devices.push_back(std::move(device));
}

// Two sockets, a GPU and an InfiniBand NIC below each of eight PCI switches, and a slow NIC for the rest.
Topology eight_gpus() {
  Topology node = synthetic("pack:2 [numa] l3:1 core:28 pu:2(indexes=2*56:1*2)");
  for (std::uint32_t i = 0; i < 8; ++i)
    add_device(&node, Device::Kind::gpu, fmt::format("cuda{}", i), node.sockets[i / 4], {i / 4, 10 + i});
  // In another order than the GPUs, as found on such machines.
  for (const std::uint32_t i : {2U, 3U, 0U, 1U, 7U, 6U, 5U, 4U})
    add_device(&node, Device::Kind::nic, fmt::format("mlx5_{}", i), node.sockets[i / 4], {i / 4, 10 + i});
  add_device(&node, Device::Kind::nic, "eno1", node.sockets[0], {0});
  node.devices.back().preference = 2;
  return node;
}

TEST_CASE("two sockets of twelve cores") {
  if (!has_hwloc()) return;
  const Topology xeon = synthetic("pack:2 [numa] l3:1 core:12 pu:1");
  // Two ranks on each socket with six threads each.
  CHECK(plan(xeon, 4, "auto") == Lines{"0-5 numa 0 threads 6", "6-11 numa 0 threads 6",
                                       "12-17 numa 1 threads 6", "18-23 numa 1 threads 6"});
  CHECK(plan(xeon, 4, "socket") == Lines{"0-11 numa 0 threads 6", "0-11 numa 0 threads 6",
                                         "12-23 numa 1 threads 6", "12-23 numa 1 threads 6"});
  CHECK(plan(xeon, 2, "socket") == Lines{"0-11 numa 0 threads 12", "12-23 numa 1 threads 12"});
  CHECK(plan(xeon, 2, "off") == Lines{"0-23 numa 0-1 threads 12", "0-23 numa 0-1 threads 12"});
  CHECK(plan(xeon, 1, "auto") == Lines{"0-23 numa 0-1 threads 24"});
  CHECK(cpus(xeon, 4, "0,1,12,13") == Lines{"0", "1", "12", "13"});
  CHECK(cpus(xeon, 2, "0-5;6-11") == Lines{"0-5", "6-11"});
  CHECK(cpus(xeon, 3, "core") == Lines{"0", "1", "2"});
  // Nobody across a border; the least share as large as can be.
  CHECK(cpus(xeon, 3, "auto") == Lines{"0-5", "6-11", "12-23"});
  CHECK(cpus(xeon, 5, "auto") == Lines{"0-3", "4-7", "8-11", "12-17", "18-23"});
}

TEST_CASE("scatter puts neighbours far apart") {
  if (!has_hwloc()) return;
  const Topology xeon = synthetic("pack:2 [numa] l3:2 core:6 pu:1");
  const PinOrder scatter = PinOrder::scatter;
  CHECK(cpus(xeon, 6, "core", scatter) == Lines{"0", "12", "6", "18", "1", "13"});
  CHECK(cpus(xeon, 4, "socket", scatter) == Lines{"0-11", "12-23", "0-11", "12-23"});
  CHECK(cpus(xeon, 3, "l3", scatter) == Lines{"0-5", "12-17", "6-11"});
  CHECK(cpus(xeon, 4, "auto", scatter) == Lines{"0-5", "12-17", "6-11", "18-23"});
}

TEST_CASE("one rank for each core before the threads of a core") {
  if (!has_hwloc()) return;
  // The second threads have the numbers 4 to 7, as on most x86 machines.
  const Topology smt = synthetic("pack:1 core:4 pu:2(indexes=2*4:1*2)");
  CHECK(cpus(smt, 2, "core") == Lines{"0,4", "1,5"});
  CHECK(cpus(smt, 4, "core") == Lines{"0,4", "1,5", "2,6", "3,7"});
  CHECK(cpus(smt, 6, "core") == Lines{"0", "4", "1", "5", "2,6", "3,7"});
  CHECK(cpus(smt, 6, "core", PinOrder::scatter) == Lines{"0", "1", "2,6", "3,7", "4", "5"});
  CHECK(cpus(smt, 8, "core") == Lines{"0", "4", "1", "5", "2", "6", "3", "7"});
  CHECK(cpus(smt, 4, "auto") == Lines{"0,4", "1,5", "2,6", "3,7"});
  CHECK(cpus(smt, 8, "auto") == cpus(smt, 8, "core"));
  // More ranks than threads: as even as can be, and nobody without a CPU.
  CHECK(cpus(smt, 9, "core") == Lines{"0", "0", "4", "1", "5", "2", "6", "3", "7"});
  CHECK(plan(smt, 16, "core")[15] == "7 numa 0 threads 1");
}

TEST_CASE("caches of a machine with many") {
  if (!has_hwloc()) return;
  const Topology epyc = synthetic("pack:2 [numa] l3:8 core:8 pu:2(indexes=2*128:1*2)");
  CHECK(cpus(epyc, 3, "l3") == Lines{"0-7,128-135", "8-15,136-143", "16-23,144-151"});
  CHECK(plan(epyc, 16, "auto")[15] == "120-127,248-255 numa 1 threads 8");
  CHECK(cpus(epyc, 16, "auto") == cpus(epyc, 16, "l3"));
  CHECK(cpus(epyc, 4, "auto")[1] == "32-63,160-191");  // whole L3s
  CHECK(cpus(epyc, 6, "auto")[1] == "21-41,149-169");  // whose borders would cost the first rank five cores
  CHECK(plan(epyc, 17, "l3")[1] == "0-7,128-135 numa 0 threads 4");
  CHECK(plan(epyc, 17, "l3")[16] == "120-127,248-255 numa 1 threads 8");
}

TEST_CASE("a restricted set is never left, and counts by its cores") {
  if (!has_hwloc()) return;
  Topology xeon = synthetic("pack:2 [numa] l3:1 core:12 pu:1");
  allow_only(&xeon, {10, 11, 12, 13, 14, 15, 16, 17, 18, 19});
  CHECK(cpus(xeon, 2, "socket") == Lines{"10-11", "12-19"});
  CHECK(cpus(xeon, 5, "auto") == Lines{"10-11", "12-13", "14-15", "16-17", "18-19"});
  CHECK(plan(xeon, 6, "socket")[1] == "10-11 numa 0 threads 1");
  CHECK(plan(xeon, 6, "socket")[2] == "12-19 numa 1 threads 2");
  CHECK(cpus(xeon, 3, "core") == Lines{"10", "11", "12"});
  CHECK(refusal(xeon, 1, "3") == "CPU 3 is not allowed to this process");
  CHECK(refusal(xeon, 1, "99") == "there is no CPU 99");
  CHECK(refusal(xeon, 2, "12") == "the list has 1 entries for 2 ranks of this node");
  // Single threads of cores, as some schedulers hand them out.
  Topology smt = synthetic("pack:1 core:4 pu:2(indexes=2*4:1*2)");
  allow_only(&smt, {1, 5, 2, 7});
  CHECK(cpus(smt, 3, "core") == Lines{"1,5", "2", "7"});
  CHECK(cpus(smt, 4, "core") == Lines{"1", "5", "2", "7"});
  allow_only(&smt, {});
  CHECK(refusal(smt, 1, "core") == "no CPU of this topology is allowed");
}

TEST_CASE("machines without NUMA nodes or caches") {
  Topology plain = make_flat_topology("for a test");
  plain.pus = {{3, true}, {5, true}, {7, true}, {9, true}};
  plain.cores = {{0, 1}, {1, 1}, {2, 1}, {3, 1}};
  plain.sockets = {{0, 2}, {2, 2}};
  plain.numa_nodes.clear();
  plain.caches.clear();
  CHECK(plan(plain, 2, "numa") == Lines{"3,5 numa  threads 2", "7,9 numa  threads 2"});
  CHECK(cpus(plain, 2, "l3") == Lines{"3,5", "7,9"});
  CHECK(cpus(plain, 2, "auto") == Lines{"3,5", "7,9"});
  CHECK(refusal(plain, 2, "gpu") == "no GPU of this machine is known; bind to numa or auto, which need none");
}

TEST_CASE("memory without CPUs gets no rank") {
  if (!has_hwloc()) return;
  const Topology phi = recorded("knights_landing_quarters");  // nodes 4 to 7 are MCDRAM
  CHECK(plan(phi, 4, "numa") == Lines{"0-3,68-71,136-139,204-207 numa 0 threads 4",
                                      "18-21,86-89,154-157,222-225 numa 1 threads 4",
                                      "36-39,104-107,172-175,240-243 numa 2 threads 4",
                                      "52-55,120-123,188-191,256-259 numa 3 threads 4"});
  for (const std::uint32_t ranks : {1U, 4U, 8U, 16U, 64U}) {
    for (const char* policy : {"numa", "l3", "auto", "core"}) {
      const auto placements = plan_placements(phi, ranks, request(policy));
      REQUIRE(placements.is_ok());
      for (const Placement& placement : *placements) {
        for (const std::uint32_t node : placement.numa_nodes) CHECK(phi.numa_nodes[node].os_index < 4);
      }
    }
  }
}

TEST_CASE("a machine with four GPUs") {
  if (!has_hwloc()) return;
  const Topology power = recorded("power9_two_sockets");
  const Lines by_gpu = {"8-47 numa 0 threads 10 cuda0 mlx5_0", "48-87 numa 0 threads 10 cuda1 mlx5_1",
                        "96-135 numa 8 threads 10 cuda2 mlx5_2", "136-175 numa 8 threads 10 cuda3 mlx5_3"};
  CHECK(plan(power, 4, "gpu") == by_gpu);
  CHECK(plan(power, 4, "auto") == by_gpu);
  CHECK(plan(power, 4, "gpu", PinOrder::scatter) == Lines{by_gpu[0], by_gpu[2], by_gpu[1], by_gpu[3]});
  CHECK(plan(power, 2, "gpu") == Lines{by_gpu[0], by_gpu[1]});  // rank i has GPU i, as frameworks choose
  CHECK(plan(power, 2, "socket") ==
        Lines{"8-87 numa 0 threads 20 cuda0 mlx5_0", "96-175 numa 8 threads 20 cuda2 mlx5_2"});
  // More ranks than GPUs: rank i has GPU i modulo 4; the ranks near two GPUs share out the cores there.
  CHECK(plan(power, 8, "gpu") ==
        Lines{"8-27 numa 0 threads 5 cuda0 mlx5_0", "28-47 numa 0 threads 5 cuda1 mlx5_1",
              "96-115 numa 8 threads 5 cuda2 mlx5_2", "116-135 numa 8 threads 5 cuda3 mlx5_3",
              "48-67 numa 0 threads 5 cuda0 mlx5_0", "68-87 numa 0 threads 5 cuda1 mlx5_1",
              "136-155 numa 8 threads 5 cuda2 mlx5_2", "156-175 numa 8 threads 5 cuda3 mlx5_3"});
  CHECK(plan(power, 5, "gpu")[4] == "56-87 numa 0 threads 8 cuda0 mlx5_0");
}

TEST_CASE("a fabric on one socket serves both") {
  if (!has_hwloc()) return;
  const Topology xeon = recorded("xeon_two_sockets");
  CHECK(plan(xeon, 2, "socket") == Lines{"0-17 numa 0 threads 18 hfi1_0", "18-35 numa 1 threads 18 hfi1_0"});
  REQUIRE(xeon.devices_of(Device::Kind::gpu).empty());  // the display of the service processor is none
  CHECK(xeon.devices_of(Device::Kind::nic).size() == 5);
}

TEST_CASE("eight GPUs with a NIC each") {
  if (!has_hwloc()) return;
  const Topology node = eight_gpus();
  CHECK(plan(node, 8, "gpu") ==
        Lines{"0-6,56-62 numa 0 threads 7 cuda0 mlx5_0", "7-13,63-69 numa 0 threads 7 cuda1 mlx5_1",
              "14-20,70-76 numa 0 threads 7 cuda2 mlx5_2", "21-27,77-83 numa 0 threads 7 cuda3 mlx5_3",
              "28-34,84-90 numa 1 threads 7 cuda4 mlx5_4", "35-41,91-97 numa 1 threads 7 cuda5 mlx5_5",
              "42-48,98-104 numa 1 threads 7 cuda6 mlx5_6", "49-55,105-111 numa 1 threads 7 cuda7 mlx5_7"});
  // Without a share by GPU, devices are near and spread.
  std::set<std::string> devices;
  for (const std::string& line : plan(node, 8, "core", PinOrder::scatter))
    devices.insert(line.substr(line.find("cuda")));
  CHECK(devices.size() == 8);
  CHECK(std::none_of(devices.begin(), devices.end(),
                     [](const std::string& names) { return names.find("eno1") != std::string::npos; }));
}

TEST_CASE("GPUs next to a part, and GPUs of which only the socket is known") {
  if (!has_hwloc()) return;
  Topology node = synthetic("pack:1 numa:2 core:4 pu:1");
  add_device(&node, Device::Kind::gpu, "cuda0", {0, 8}, {0});
  add_device(&node, Device::Kind::gpu, "cuda1", {0, 4}, {1});
  CHECK(cpus(node, 2, "gpu") == Lines{"4-7", "0-3"});
  allow_only(&node,
             {6, 7});  // nothing next to cuda1 is allowed: what there is, rather than what is not allowed
  CHECK(cpus(node, 2, "gpu").size() == 2);
}

TEST_CASE("threads within the quota of the cgroup") {
  if (!has_hwloc()) return;
  Topology xeon = synthetic("pack:2 [numa] l3:1 core:12 pu:1");
  xeon.cpu_quota_milli = 8500;
  CHECK(plan(xeon, 4, "auto")[0] == "0-5 numa 0 threads 2");
  xeon.cpu_quota_milli = 500;
  CHECK(plan(xeon, 4, "auto")[0] == "0-5 numa 0 threads 1");
}

TEST_CASE("where the progress threads of each rank run") {
  const Topology topology = synthetic("pack:2 l3:1 core:12 pu:1");
  using Cpus = std::vector<std::vector<std::uint32_t>>;
  const auto plan = [&](const std::string& list, std::uint32_t ranks, std::uint32_t threads) {
    const auto parsed = parse_progress_cpus(list);
    REQUIRE(parsed.is_ok());
    std::vector<Cpus> planned;
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      auto one = plan_progress_cpus(topology, *parsed, ranks, rank, threads);
      INFO(one.status().message());
      REQUIRE(one.is_ok());
      planned.push_back(*std::move(one));
    }
    return planned;
  };
  // Two sockets of twelve cores, two ranks on each with six threads each, servers on 0,1,12,13.
  CHECK(plan("0,1,12,13", 4, 1) == std::vector<Cpus>{{{0}}, {{1}}, {{12}}, {{13}}});
  CHECK(plan("0,1,12,13", 4, 2) == std::vector<Cpus>{{{0}, {0}}, {{1}, {1}}, {{12}, {12}}, {{13}, {13}}});
  const auto ranks = plan_placements(topology, 4, request("auto"));
  REQUIRE(ranks.is_ok());
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    CHECK((*ranks)[rank].thread_count == 6);
    CHECK(cpus_of(topology, (*ranks)[rank]).front() == rank * 6);
  }
  // One rank on each socket with two servers.
  CHECK(plan("0,1,12,13", 2, 2) == std::vector<Cpus>{{{0}, {1}}, {{12}, {13}}});
  CHECK(plan("0,1,12,13", 2, 1) == std::vector<Cpus>{{{0}}, {{12}}});
  CHECK(plan("0-1;12-13", 2, 2) == std::vector<Cpus>{{{0, 1}, {0, 1}}, {{12, 13}, {12, 13}}});
  CHECK(plan("0,12", 4, 1) == std::vector<Cpus>{{{0}}, {{12}}, {{0}}, {{12}}});
  CHECK(plan("0,1,2", 2, 2) == std::vector<Cpus>{{{0}, {0}}, {{1}, {2}}});
  CHECK(plan("auto", 1, 2) == std::vector<Cpus>{{{}, {}}});
  CHECK(plan("5", 1, 0) == std::vector<Cpus>{{}});

  const auto refusal = [&](const std::string& list) {
    const auto parsed = parse_progress_cpus(list);
    if (!parsed) return parsed.status().message();
    return plan_progress_cpus(topology, *parsed, 1, 0, 2).status().message();
  };
  CHECK(refusal("24").find("there is no CPU 24") != std::string::npos);
  CHECK(refusal("socket").find("'socket' is neither auto nor a list") != std::string::npos);
  CHECK(refusal("0,,1").find("neither auto nor a list") != std::string::npos);
  Topology restricted = topology;
  allow_only(&restricted, {0});
  CHECK(plan_progress_cpus(restricted, *parse_progress_cpus("1"), 1, 0, 1)
            .status()
            .message()
            .find("CPU 1 is not among") == 0);
}

// Two performance cores of two threads, and four efficiency cores of one that share an L2.
Topology hybrid() {
  auto machine = parse_summary(
      "topology1 cores=2x2,1x4 pus=0,2,4-7,1,3 sockets=8x1 numa=0:17179869184:0:8 "
      "caches=2:1310720:64:0:2x2,2:2097152:64:4:4x1,3:12582912:64:0:8x1");
  INFO(machine.status().message());
  REQUIRE(machine.is_ok());
  return *std::move(machine);
}

TEST_CASE("hybrid CPUs: each rank has a CPU of its own as long as there are enough") {
  const Topology machine = hybrid();
  CHECK(cpus(machine, 8, "auto") == Lines{"0", "1", "2", "3", "4", "5", "6", "7"});
  CHECK(cpus(machine, 8, "auto") == cpus(machine, 8, "core"));
  CHECK(cpus(machine, 6, "auto") == Lines{"0-1", "2-3", "4", "5", "6", "7"});
  CHECK(cpus(machine, 2, "auto") == Lines{"0-4", "5-7"});
  // A cpuset with half of some cores has the same shape.
  Topology half = synthetic("l2:4 core:2 pu:2");
  allow_only(&half, {0, 1, 2, 3, 4, 6, 8, 10, 12, 14});
  CHECK(cpus(half, 10, "auto") == Lines{"0", "1", "2", "3", "4", "6", "8", "10", "12", "14"});
}

TEST_CASE("how policies are written") {
  CHECK(parse_pin("off")->policy == PinPolicy::off);
  CHECK(parse_pin("auto")->policy == PinPolicy::automatic);
  CHECK(parse_pin("0-2,7")->list == std::vector<std::vector<std::uint32_t>>{{0}, {1}, {2}, {7}});
  CHECK(parse_pin("0-2,7;")->list == std::vector<std::vector<std::uint32_t>>{{0, 1, 2, 7}});
  CHECK(parse_pin("0-2;7")->list == std::vector<std::vector<std::uint32_t>>{{0, 1, 2}, {7}});
  for (const char* wrong : {"", "cores", "0,", ",", "1-", "-1", "3-1", "0;;1", ";", "1 2", "0-99999999",
                            "0,0", "0-4,2", "99999999999999999999", "0x3", "1:2"}) {
    INFO("'" << wrong << "'");
    const auto parsed = parse_pin(wrong);
    CHECK_FALSE(parsed.is_ok());
    CHECK(parsed.status().code() == StatusCode::invalid_argument);
  }
}

// For every machine, set and policy: every rank has CPUs, allowed ones only. Where ranks are not more than
// cores, none shares a core unless it shares a whole unit.
TEST_CASE("the invariants of every plan") {
  if (!has_hwloc()) return;
  std::mt19937 random(7);
  Topology machines[] = {synthetic("pack:2 [numa] l3:4 core:4 pu:2"),
                         synthetic("core:7 pu:1"),
                         synthetic("pack:3 numa:2 l2:2 core:3 pu:2"),
                         recorded("power9_two_sockets"),
                         recorded("knights_landing_quarters"),
                         eight_gpus(),
                         hybrid()};
  for (Topology& machine : machines) {
    for (int round = 0; round < 40; ++round) {
      for (Pu& pu : machine.pus) pu.is_allowed = round == 0 || random() % 3 != 0;
      machine.pus[random() % machine.pus.size()].is_allowed = true;
      std::size_t cores = 0;
      const std::size_t threads = machine.allowed_pus().size();
      for (const PuRange& core : machine.cores) {
        bool is_usable = false;
        for (std::uint32_t pu = core.first; pu < core.end(); ++pu) is_usable |= machine.pus[pu].is_allowed;
        cores += is_usable ? 1U : 0U;
      }
      const auto ranks = static_cast<std::uint32_t>(1 + random() % (2 * cores));
      for (const char* policy : {"auto", "core", "l3", "numa", "socket", "gpu"}) {
        if (machine.devices_of(Device::Kind::gpu).empty() && std::string(policy) == "gpu") continue;
        const PinOrder order = random() % 2 == 0 ? PinOrder::compact : PinOrder::scatter;
        const auto placements = plan_placements(machine, ranks, request(policy, order));
        INFO(machine.source << ", " << policy << ", " << ranks << " ranks, round " << round);
        REQUIRE(placements.is_ok());
        REQUIRE(placements->size() == ranks);
        std::multiset<std::uint32_t> used;
        for (const Placement& placement : *placements) {
          REQUIRE_FALSE(placement.pus.empty());
          CHECK(std::is_sorted(placement.pus.begin(), placement.pus.end()));
          for (const std::uint32_t pu : placement.pus) CHECK(machine.pus[pu].is_allowed);
          CHECK(placement.thread_count >= 1);
          used.insert(placement.pus.begin(), placement.pus.end());
        }
        const bool is_apart = std::string(policy) == "core" || std::string(policy) == "auto";
        for (const std::uint32_t pu : std::set<std::uint32_t>(used.begin(), used.end())) {
          if (is_apart && ranks <= threads && machine.devices.empty()) CHECK(used.count(pu) == 1);
        }
      }
    }
  }
}

}  // namespace
}  // namespace tutti
