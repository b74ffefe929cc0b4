// The topology as a value: questions, groups, summaries. No discovery: the machines are written down here.
#include "topology/topology.hpp"

#include <string>
#include <vector>

#include "tests/support/catch.hpp"

namespace tutti {
namespace {

// Two sockets; the first has two cores of two threads below one L3, the second a core of one thread.
Topology lopsided() {
  Topology t;
  t.pus = {{0, true}, {8, true}, {1, false}, {9, true}, {4, true}};
  t.cores = {{0, 2}, {2, 2}, {4, 1}};
  t.sockets = {{0, 4}, {4, 1}};
  t.numa_nodes = {{0, 1000, {0, 4}}, {1, 500, {4, 1}}, {2, 70, {0, 4}}, {3, 90, {0, 0}}};
  t.caches = {{1, 32, 64, {0, 2}},  {1, 32, 64, {2, 2}},  {1, 48, 64, {4, 1}},
              {2, 256, 64, {0, 2}}, {2, 256, 64, {2, 2}}, {3, 4000, 64, {0, 4}}};
  return t;
}

TEST_CASE("questions about PUs and caches") {
  const Topology t = lopsided();
  REQUIRE(t.check().is_ok());
  CHECK(t.find_pu(9) == 3u);
  CHECK_FALSE(t.find_pu(2).has_value());
  CHECK(t.allowed_pus() == std::vector<std::uint32_t>{0, 1, 3, 4});

  REQUIRE(t.smallest_shared_cache(0, 1) != nullptr);
  CHECK(t.smallest_shared_cache(0, 1)->level == 1);
  CHECK(t.smallest_shared_cache(1, 2)->level == 3);
  CHECK(t.smallest_shared_cache(0, 4) == nullptr);
  CHECK(t.smallest_shared_cache(4, 4)->bytes == 48);
  CHECK(t.smallest_shared_cache(0, 99) == nullptr);

  CHECK(t.l2_bytes(3) == 256);
  CHECK(t.l2_bytes(4) == 0);
  CHECK(t.last_level() == 3);
  CHECK(t.last_level_cache_of(4)->level == 1);
  CHECK(t.last_level_share_bytes(0) == 2000);  // two cores, not four PUs
  CHECK(t.last_level_share_bytes(4) == 48);
  CHECK(Topology().last_level() == 0);
  CHECK(Topology().last_level_share_bytes(0) == 0);
}

TEST_CASE("groups are a partition") {
  const Topology t = lopsided();
  using Groups = std::vector<PuRange>;
  CHECK(t.groups_by_socket() == Groups{{0, 4}, {4, 1}});
  CHECK(t.groups_by_cache(1) == Groups{{0, 2}, {2, 2}, {4, 1}});
  CHECK(t.groups_by_cache(3) == Groups{{0, 4}, {4, 1}});  // without an L3 a PU is alone
  CHECK(t.groups_by_cache(4) == Groups{{0, 1}, {1, 1}, {2, 1}, {3, 1}, {4, 1}});
  CHECK(t.groups_by_numa() == Groups{{0, 4}, {4, 1}});  // ordinary and fast memory: one group

  // A node inside of another one cuts it.
  Topology nested = t;
  nested.numa_nodes = {{0, 1, {0, 5}}, {1, 1, {1, 2}}};
  CHECK(nested.groups_by_numa() == Groups{{0, 1}, {1, 2}, {3, 2}});
}

TEST_CASE("a summary says all that matters and comes back") {
  const Topology t = lopsided();
  const std::string summary = to_summary(t);
  CHECK(summary ==
        "topology1 cores=2x2,1x1 pus=0-1,4,8-9 sockets=4x1,1x1 numa=0:1000:0:4,1:500:4:1,2:70:0:4,3:90:0:0 "
        "caches=1:32:64:0:2x2,1:48:64:4:1x1,2:256:64:0:2x2,3:4000:64:0:4x1");
  auto back = parse_summary(summary);
  REQUIRE(back.is_ok());
  Topology expected = t;
  expected.source = "summary";
  expected.pus[2].is_allowed = true;  // what a process may use is not in it
  CHECK(*back == expected);

  Topology bare;
  bare.pus = {{3, true}};
  bare.cores = bare.sockets = {{0, 1}};
  CHECK(to_summary(bare) == "topology1 cores=1x1 pus=3 sockets=1x1 numa= caches=");
  back = parse_summary(to_summary(bare));
  REQUIRE(back.is_ok());
  CHECK(back->pus == bare.pus);
}

TEST_CASE("CPU numbers of a summary are runs with steps") {
  const auto pus_of = [](const std::vector<std::uint32_t>& numbers) {
    Topology t;
    for (const std::uint32_t number : numbers) t.pus.push_back({number, true});
    for (std::uint32_t i = 0; i < t.pu_count(); ++i) t.cores.push_back({i, 1});
    t.sockets = {{0, t.pu_count()}};
    const std::string summary = to_summary(t);
    CHECK(parse_summary(summary)->pus == t.pus);
    const std::size_t at = summary.find("pus=") + 4;
    return summary.substr(at, summary.find(' ', at) - at);
  };
  CHECK(pus_of({0, 2, 4, 6, 1, 3, 5, 7}) == "0-6/2,1-7/2");
  CHECK(pus_of({0, 2, 1, 3}) == "0,2,1,3");
  CHECK(pus_of({8, 9, 10, 3, 5, 4}) == "8-10,3,5,4");
  CHECK(pus_of({4294967295, 0, 4294967294}) == "4294967295,0,4294967294");
  CHECK(pus_of({5, 4, 3, 2}) == "5,4,3,2");
}

TEST_CASE("a malformed summary names the field") {
  const auto refuses = [](const std::string& summary, const std::string& said) {
    const auto parsed = parse_summary(summary);
    INFO(summary << ": " << parsed.status().message());
    CHECK_FALSE(parsed.is_ok());
    CHECK(parsed.status().code() == StatusCode::invalid_argument);
    CHECK(parsed.status().message().find(said) != std::string::npos);
  };
  refuses("", "topology1");
  refuses("topology2 cores=1x1 pus=0 sockets=1x1 numa= caches=", "topology1");
  refuses("topology1 cores=0x1 pus=0 sockets=1x1 numa= caches=", "cores");
  refuses("topology1 cores=1x0 pus=0 sockets=1x1 numa= caches=", "cores");
  refuses("topology1 cores=1x99999999 pus=0 sockets=1x1 numa= caches=", "cores");
  refuses("topology1 cores=1x2 pus=0 sockets=1x2 numa= caches=", "pus");
  refuses("topology1 cores=1x2 pus=1-0 sockets=1x2 numa= caches=", "pus");
  refuses("topology1 cores=1x2 pus=0,0 sockets=1x2 numa= caches=", "two PUs have the number 0");
  refuses("topology1 cores=1x2 pus=0-1/0 sockets=1x2 numa= caches=", "pus");
  refuses("topology1 cores=1x2 pus=0-4294967295/2 sockets=1x2 numa= caches=", "pus");
  refuses("topology1 cores=1x2 pus=0-4294967295 sockets=1x2 numa= caches=", "pus");
  refuses("topology1 cores=1x2 pus=0-1 sockets=1x1 numa= caches=", "sockets cover 1 of 2");
  refuses("topology1 cores=1x2 pus=0-1 sockets=3x1 numa= caches=", "sockets");
  refuses("topology1 cores=1x1 pus=0 sockets=1x1 numa=0:1:0:2 caches=", "NUMA node 0");
  refuses("topology1 cores=1x1 pus=0 sockets=1x1 numa=0:1:0 caches=", "numa");
  refuses("topology1 cores=1x1 pus=0 sockets=1x1 numa= caches=6:1:64:0:1x1", "level 6");
  refuses("topology1 cores=1x2 pus=0-1 sockets=2x1 numa= caches=1:1:64:0:2x1,1:1:64:1:1x1", "overlap");
  refuses("topology1 cores=1x2 pus=0-1 sockets=2x1 numa= caches=2:1:64:0:2x1,1:1:64:0:2x1", "out of order");
  refuses("topology1 cores=1x1 pus=0 sockets=1x1 numa= caches=1:1:64:0:1x1 ", "caches");
  refuses("topology1 cores=1x1 pus=0 sockets=1x1 numa= caches=1:1:64:4294967295:1x1", "caches");
}

TEST_CASE("lists of CPU numbers are short") {
  CHECK(cpu_list_text({}).empty());
  CHECK(cpu_list_text({5}) == "5");
  CHECK(cpu_list_text({9, 2, 3, 1, 8}) == "1-3,8-9");
}

}  // namespace
}  // namespace tutti
