// Where topologies come from: synthetic descriptions, XML of real machines, damaged XML, this machine under a
// restricted affinity, and the flat one. The summaries are the expected text.
#include "topology/discovery.hpp"

#include <sched.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/catch.hpp"
#include "tests/support/test_fraction.hpp"
#include "topology/trial.hpp"

namespace tutti {
namespace {

const std::string kData = TOPOLOGY_DATA;

bool has_hwloc() {
  static const bool is_there = make_synthetic_topology("pu:1").is_ok();
  return is_there;
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::string summary_of(const Result<Topology>& found) {
  return found ? to_summary(*found) : found.status().message();
}

// `what` went wrong as a user's mistake, and the message has all the words.
void check_refused(const Result<Topology>& found, const std::vector<std::string>& words) {
  INFO(found.status().message());
  CHECK_FALSE(found.is_ok());
  CHECK(found.status().code() == StatusCode::invalid_argument);
  for (const std::string& word : words) {
    INFO("must say: " << word);
    CHECK(found.status().message().find(word) != std::string::npos);
  }
}

TEST_CASE("synthetic topologies") {
  if (!has_hwloc()) return;
  const auto found = make_synthetic_topology("pack:2 l3:1 l2:4 l1:1 core:1 pu:2");
  REQUIRE(found.is_ok());
  CHECK(found->source == "synthetic:pack:2 l3:1 l2:4 l1:1 core:1 pu:2");
  CHECK_FALSE(found->is_this_machine);
  CHECK(found->allowed_pus().size() == 16);
  CHECK(found->sockets == std::vector<PuRange>{{0, 8}, {8, 8}});
  CHECK(found->cores.size() == 8);
  CHECK(found->groups_by_cache(3) == found->sockets);
  CHECK(found->groups_by_cache(2).size() == 8);
  CHECK(found->smallest_shared_cache(0, 1)->level == 1);
  CHECK(found->smallest_shared_cache(1, 2)->level == 3);
  CHECK(found->smallest_shared_cache(7, 8) == nullptr);
  CHECK(found->last_level_share_bytes(0) * 4 == found->last_level_cache_of(0)->bytes);
  CHECK(found->numa_nodes.size() == 1);

  const auto structure = [](const char* description) {
    const auto topology = make_synthetic_topology(description);
    INFO(description << ": " << topology.status().message());
    REQUIRE(topology.is_ok());
    return std::vector<std::size_t>{topology->sockets.size(), topology->numa_nodes.size(),
                                    topology->groups_by_cache(3).size(), topology->cores.size(),
                                    topology->pus.size()};
  };
  CHECK(structure("pu:1") == std::vector<std::size_t>{1, 1, 1, 1, 1});
  CHECK(structure("core:3 pu:2") == std::vector<std::size_t>{1, 1, 6, 3, 6});  // no socket: one; no L3: alone
  CHECK(structure("pack:1 core:7 pu:1") == std::vector<std::size_t>{1, 1, 7, 7, 7});
  CHECK(structure("pack:2 l3:4 core:8 pu:1") == std::vector<std::size_t>{2, 1, 8, 64, 64});
  CHECK(structure("pack:2 [numa] l3:3 core:5 pu:2") == std::vector<std::size_t>{2, 2, 6, 30, 60});
  CHECK(structure("pack:2 [numa] l3(size=1000000):1 core:3 pu:1") == std::vector<std::size_t>{2, 2, 2, 6, 6});
  CHECK(structure("numa:2 pack:2 core:2 pu:1(indexes=0,2,4,6,1,3,5,7)") ==
        std::vector<std::size_t>{4, 2, 8, 8, 8});
  CHECK(summary_of(make_synthetic_topology("pack:1 core:2 pu:2(indexes=core:pack)")).find("pus=0-3") !=
        std::string::npos);
}

TEST_CASE("a wrong description is refused with what is wrong") {
  if (!has_hwloc()) return;
  check_refused(make_synthetic_topology(""), {"synthetic:", "pack:2"});
  check_refused(make_synthetic_topology("pack:2 core:x pu:1"), {"'core:x' is not TYPE:NUMBER"});
  check_refused(make_synthetic_topology("pack:2 pu:0"), {"'pu:0'"});
  check_refused(make_synthetic_topology("pack:2 foo:3 pu:1"), {"synthetic:pack:2 foo:3 pu:1", "pu last"});
  check_refused(make_synthetic_topology("pack:2 core:4"), {"pu last"});
  check_refused(make_synthetic_topology("pack:2 pu:1 core:2"), {"pu last"});
  check_refused(make_synthetic_topology("pack:99999 core:99999 pu:9999"), {"'pack:99999' makes more than"});
  check_refused(make_synthetic_topology("pu:9999"), {"'pu:9999' puts so many parts side by side"});
  check_refused(make_synthetic_topology("pack:200 core:200 pu:200"), {"'core:200' makes more than"});
  check_refused(make_synthetic_topology("pack:2 l3(size=1:2 pu:1"), {"')'"});
  check_refused(make_synthetic_topology("pack:2 [numa pu:1"), {"']'"});
  check_refused(make_synthetic_topology("pack:18446744073709551617 pu:1"), {"TYPE:NUMBER"});
}

TEST_CASE("XML of real machines") {
  if (!has_hwloc()) return;
  CHECK(summary_of(load_topology_xml(kData + "/xeon_two_sockets.xml")) ==
        "topology1 cores=1x36 pus=0-35 sockets=18x2 numa=0:67119017984:0:18,1:67639386112:18:18 "
        "caches=1:32768:64:0:1x36,2:262144:64:0:1x36,3:47185920:64:0:18x2");
  CHECK(summary_of(load_topology_xml(kData + "/power9_two_sockets.xml")) ==
        "topology1 cores=4x40 pus=8-84/4,96-172/4,9-85/4,97-173/4,10-86/4,98-174/4,11-87/4,99-175/4 "
        "sockets=80x2 numa=0:137100066816:0:80,8:137166913536:80:80 "
        "caches=1:32768:128:0:4x40,2:524288:0:0:8x20,3:10485760:0:0:8x20");
  CHECK(summary_of(load_topology_xml(kData + "/knights_landing_quarters.xml")) ==
        "topology1 cores=4x16 pus=0-3,18-21,36-39,52-55,68-71,86-89,104-107,120-123,136-139,154-157,172-175,"
        "188-191,204-207,222-225,240-243,256-259 sockets=64x1 "
        "numa=0:25668947968:0:16,4:4294967296:0:16,1:25769803776:16:16,5:4294967296:16:16,"
        "2:25769803776:32:16,6:4294967296:32:16,3:25769803776:48:16,7:4294967296:48:16 "
        "caches=1:32768:64:0:4x16,2:1048576:64:0:8x8");
}

TEST_CASE("XML of real machines, asked") {
  if (!has_hwloc()) return;
  const auto power = load_topology_xml(kData + "/power9_two_sockets.xml");
  REQUIRE(power.is_ok());
  CHECK(power->source == "xml:" + kData + "/power9_two_sockets.xml");
  CHECK_FALSE(power->is_this_machine);
  CHECK(power->find_pu(8) == 0u);
  CHECK_FALSE(power->find_pu(90).has_value());
  CHECK(power->last_level_share_bytes(0) * 2 == power->last_level_cache_of(0)->bytes);
  CHECK(power->smallest_shared_cache(0, 3)->level == 1);
  CHECK(power->smallest_shared_cache(0, 4)->level == 2);
  CHECK(power->smallest_shared_cache(0, 4)->pus == PuRange{0, 8});

  const auto phi = load_topology_xml(kData + "/knights_landing_quarters.xml");
  REQUIRE(phi.is_ok());
  CHECK(phi->groups_by_numa() == std::vector<PuRange>{{0, 16}, {16, 16}, {32, 16}, {48, 16}});
  CHECK(phi->numa_nodes.size() == 8);
  CHECK(phi->last_level() == 2);
  CHECK(phi->pus[1].os_index == 68);
}

TEST_CASE("files that hold no topology") {
  check_refused(load_topology_xml(kData + "/none.xml"), {"none.xml", "No such file"});
  if (!has_hwloc()) return;
  check_refused(load_topology_xml(kData), {kData, "directory"});
  check_refused(load_topology_xml(kData + "/README.md"), {"README.md", "hwloc"});
  check_refused(read_topology_xml("", "nothing"), {"nothing", "hwloc"});
  check_refused(read_topology_xml("<topology version=\"2.0\"></topology>", "empty"), {"empty"});
  // A file that ends too early, and one edited so that hwloc itself would crash.
  const std::string whole = read_file(kData + "/xeon_two_sockets.xml");
  check_refused(read_topology_xml(whole.substr(0, whole.size() / 2), "half"), {"half"});
  std::string edited = whole;
  edited.erase(edited.find(" complete_cpuset=", edited.find("L3Cache")), 40);
  check_refused(read_topology_xml(edited, "edited"), {"edited", "complete_cpuset"});
  edited = whole;
  edited.replace(edited.find(" complete_nodeset=", edited.find("NUMANode")), 2, " u");
  check_refused(read_topology_xml(edited, "edited"),
                {"edited", "a nodeset but no complete_nodeset", "NUMANode"});
}

TEST_CASE(
    "a trial in a child tells a crash and a long time from success, whatever the program does with SIGCHLD") {
  constexpr std::chrono::milliseconds kLong{30000}, kShort{20};
  for (const auto handler : {SIG_DFL, SIG_IGN}) {
    const auto before = std::signal(SIGCHLD, handler);
    Status outcome = invalid_argument("not set");
    CHECK(detail::try_in_child([] { return Status(); }, kLong, &outcome));
    CHECK(outcome);
    const auto refuse = [] { return invalid_argument(std::string(9000, 'x')); };
    CHECK(detail::try_in_child(refuse, kLong, &outcome));
    CHECK(outcome.message() == std::string(2000, 'x'));
    check_refused(detail::try_in_child([]() -> Status { std::abort(); }, kLong, &outcome),
                  {"crashes the reader"});
    check_refused(detail::try_in_child(
                      [] {
                        std::raise(SIGSEGV);
                        return Status();
                      },
                      kLong, &outcome),
                  {"crashes the reader"});
    check_refused(detail::try_in_child(
                      []() -> Status {
                        for (;;) ::pause();
                      },
                      kShort, &outcome),
                  {"takes longer"});
    std::signal(SIGCHLD, before);
  }
}

// Any damage to a file gives an error or a topology that keeps its invariants, never a crash.
TEST_CASE("damaged XML") {
  if (!has_hwloc()) return;
  ::setenv("HWLOC_HIDE_ERRORS", "2", 1);  // it would print pages about each of them
  std::uint64_t index = 0, refused = 0;
  for (const char* name : {"xeon_two_sockets", "power9_two_sockets", "knights_landing_quarters"}) {
    const std::string whole = read_file(kData + "/" + name + ".xml");
    REQUIRE(whole.size() > 1000);
    for (std::uint32_t seed = 0; seed < 100; ++seed) {
      if (!test::is_selected(index++)) continue;
      std::mt19937 random(seed);
      std::string damaged = whole;
      if (seed % 3 == 0) damaged.resize(random() % whole.size());
      for (std::uint32_t i = 0; seed % 3 == 1 && i < 1 + seed / 10; ++i)
        damaged[random() % whole.size()] = static_cast<char>(random());
      for (std::uint32_t i = 0; seed % 3 == 2 && i < 1 + seed / 10; ++i) {
        const std::size_t at = damaged.find_first_of("0123456789", random() % (whole.size() / 2));
        damaged[at] = static_cast<char>('0' + random() % 10);
      }
      INFO(name << ", seed " << seed);
      const auto found = read_topology_xml(damaged, "damaged");
      refused += found.is_ok() ? 0U : 1U;
      if (!found) {
        CHECK_FALSE(found.status().message().empty());
        continue;
      }
      CHECK(found->check().is_ok());
      CHECK(to_summary(*parse_summary(to_summary(*found))) == to_summary(*found));
    }
  }
  CHECK(refused > 0);
}

TEST_CASE("this machine") {
  const Topology here = discover_this_machine();
  INFO(here.detail);
  CHECK(here.check().is_ok());
  CHECK(here.is_this_machine);
  CHECK(here.source == "this machine");
  cpu_set_t mask;
  CPU_ZERO(&mask);
  REQUIRE(::sched_getaffinity(0, sizeof mask, &mask) == 0);
  const std::vector<std::uint32_t> allowed = here.allowed_pus();
  CHECK(allowed.size() == static_cast<std::size_t>(CPU_COUNT(&mask)));
  for (const std::uint32_t pu : allowed) CHECK(CPU_ISSET(here.pus[pu].os_index, &mask));

  const auto back = parse_summary(to_summary(here));
  REQUIRE(back.is_ok());
  CHECK(back->caches == here.caches);
  CHECK(back->cores == here.cores);
}

TEST_CASE("a narrower affinity allows fewer PUs of the same machine") {
  const Topology before = discover_this_machine();
  const std::uint32_t last = before.pus[before.allowed_pus().back()].os_index;
  Topology narrow, flat;
  // Affinity belongs to a thread, so this one loses nothing.
  std::thread([&] {
    cpu_set_t mask;
    CPU_ZERO(&mask);
    CPU_SET(last, &mask);
    if (::sched_setaffinity(0, sizeof mask, &mask) != 0) return;
    narrow = discover_this_machine();
    flat = make_flat_topology("for a test");
  }).join();
  REQUIRE(narrow.pu_count() == before.pu_count());
  CHECK(to_summary(narrow) == to_summary(before));
  REQUIRE(narrow.allowed_pus().size() == 1);
  CHECK(narrow.pus[narrow.allowed_pus()[0]].os_index == last);
  REQUIRE(flat.allowed_pus().size() == 1);
  CHECK(flat.pus[flat.allowed_pus()[0]].os_index == last);
}

TEST_CASE("variables of hwloc that describe another machine are checked as ours are") {
  if (!has_hwloc()) return;
  check_refused(discover_topology({{"HWLOC_SYNTHETIC", "pu:9999"}}), {"HWLOC_SYNTHETIC: ", "'pu:9999'"});
  const auto found = discover_topology({{"HWLOC_SYNTHETIC", "pack:2 pu:2"}});
  REQUIRE(found.is_ok());
  CHECK(found->pu_count() == 4);
  CHECK_FALSE(found->is_this_machine);
}

TEST_CASE("the flat topology says why it is flat") {
  const Topology flat = make_flat_topology("flat: no library");
  CHECK(flat.check().is_ok());
  CHECK(flat.is_this_machine);
  CHECK(flat.detail == "flat: no library");
  CHECK(flat.sockets.size() == 1);
  CHECK(flat.cores.size() == flat.pus.size());
  CHECK(flat.numa_nodes.size() == 1);
  CHECK(flat.numa_nodes[0].bytes > 0);
  CHECK(flat.allowed_pus() == discover_this_machine().allowed_pus());
}

TEST_CASE("TUTTI_TOPOLOGY chooses the source") {
  const auto asked = [](const std::string& value) {
    return discover_topology(Environment{{"TUTTI_TOPOLOGY", value}});
  };
  CHECK(asked("")->source == "this machine");
  CHECK(discover_topology({})->source == "this machine");
  check_refused(asked("pack:2"), {"TUTTI_TOPOLOGY='pack:2'", "xml:FILE"});
  check_refused(asked("xml:"), {"TUTTI_TOPOLOGY='xml:'"});
  check_refused(asked("xml:/no/such/file"), {"TUTTI_TOPOLOGY=", "/no/such/file", "No such file"});
  if (!has_hwloc()) {
    CHECK(asked("synthetic:pu:1").status().code() == StatusCode::unsupported);
    CHECK(discover_this_machine().detail.find("no hwloc") != std::string::npos);
    return;
  }
  CHECK(asked("synthetic:pack:2 core:2 pu:1")->cores.size() == 4);
  CHECK(asked("xml:" + kData + "/xeon_two_sockets.xml")->cores.size() == 36);
  check_refused(asked("synthetic:core:x"), {"TUTTI_TOPOLOGY='synthetic:core:x'", "'core:x'"});
}

}  // namespace
}  // namespace tutti
