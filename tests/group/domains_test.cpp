// Domains of ranks: what TUTTI_HIERARCHY says, what a topology says, and what groups make of it.
#include "runtime/group/domains.hpp"

#include <numeric>

#include "tests/support/catch.hpp"

using namespace tutti;

namespace {

constexpr std::int32_t kSeveral = RankDomains::kSeveral;

// Two sockets of two last-level caches of two cores of two PUs; the system numbers the first PUs of all cores
// first: PU 0 of core c is CPU c, PU 1 is CPU 8 + c.
Topology two_sockets() {
  Topology t;
  for (std::uint32_t core = 0; core < 8; ++core) {
    t.pus.push_back({core, true});
    t.pus.push_back({8 + core, true});
    t.cores.push_back({core * 2, 2});
    t.caches.push_back({2, 1U << 20U, 64, {core * 2, 2}});
  }
  for (std::uint32_t cache = 0; cache < 4; ++cache) t.caches.push_back({3, 32U << 20U, 64, {cache * 4, 4}});
  t.sockets = {{0, 8}, {8, 8}};
  t.is_this_machine = true;
  return t;
}

RankDomains on(const Topology& t, const std::vector<std::uint32_t>& cpus) {
  return find_domains(t, cpus, 0, 1);
}

WorldDomains world_of(const std::vector<RankDomains>& ranks) {
  WorldDomains world;
  world.ranks = ranks;
  world.nodes.assign(ranks.size(), 0);
  return world;
}

std::string whole(const WorldDomains& world) {
  std::vector<int> all(world.ranks.size());
  std::iota(all.begin(), all.end(), 0);
  const Hierarchy h = world.hierarchy_of(all);
  return h.is_flat() ? "flat" : to_text(h);
}

}  // namespace

TEST_CASE("TUTTI_HIERARCHY is auto, off, or sizes") {
  CHECK(parse_hierarchy("auto")->kind == HierarchySetting::Kind::automatic);
  CHECK(parse_hierarchy("off")->kind == HierarchySetting::Kind::off);
  CHECK(parse_hierarchy("2,2,3")->sizes == std::vector<std::uint32_t>{2, 2, 3});
  CHECK(parse_hierarchy("4")->sizes == std::vector<std::uint32_t>{4});
  for (const char* bad : {"", "on", "2,", ",2", "2,0", "2;2", "2, 2", "-1", "2x"}) {
    INFO(bad);
    const auto parsed = parse_hierarchy(bad);
    REQUIRE_FALSE(parsed.is_ok());
    CHECK(parsed.status().message().find("such as 2,2,3") != std::string::npos);
  }
}

TEST_CASE("a rank belongs to the cache and the socket that hold all its CPUs") {
  const Topology t = two_sockets();
  const auto check = [](const RankDomains& d, std::int32_t cache, std::int32_t socket) {
    CHECK(d.cache == cache);
    CHECK(d.socket == socket);
  };
  check(on(t, {0}), 0, 0);
  check(on(t, {1, 8}), 0, 0);
  check(on(t, {2, 11}), 2, 0);
  check(on(t, {0, 1, 2}), kSeveral, 0);
  check(on(t, {0, 4}), kSeveral, kSeveral);
  check(on(t, {6, 7, 14, 15}), 6, 4);
  check(on(t, {}), kSeveral, kSeveral);
  check(on(t, {99}), kSeveral, kSeveral);
  Topology bare = t;
  bare.caches.clear();
  check(on(bare, {5}), kSeveral, 4);
}

TEST_CASE("on a machine that is made up ranks sit on its cores in turn, whatever they may use") {
  Topology t = two_sockets();
  t.is_this_machine = false;
  std::vector<std::int32_t> sockets, caches;
  for (std::uint32_t rank = 0; rank < 5; ++rank) {
    const RankDomains d = find_domains(t, {}, rank, 5);  // cores 0, 1, 3, 4, 6
    sockets.push_back(d.socket);
    caches.push_back(d.cache);
  }
  CHECK(sockets == std::vector<std::int32_t>{0, 0, 0, 4, 4});
  CHECK(caches == std::vector<std::int32_t>{0, 0, 2, 4, 6});
}

TEST_CASE("caches where they divide, else sockets, else flat") {
  CHECK(whole(world_of({{0, 0}, {0, 0}, {2, 0}, {2, 0}})) == "2 domains: 0-1, 2-3");
  CHECK(whole(world_of({{0, 0}, {2, 0}, {4, 4}, {6, 4}})) == "2 domains: 0-1, 2-3");  // a cache each
  CHECK(whole(world_of({{0, 0}, {0, 0}, {2, 0}, {4, 4}})) == "flat");                 // one has company
  CHECK(whole(world_of({{0, 0}, {4, 4}, {2, 0}, {6, 4}})) == "2 domains: 0+2, 1+3");  // interleaved
  CHECK(whole(world_of({{kSeveral, 0}, {0, 0}, {4, 4}, {4, 4}})) == "2 domains: 0-1, 2-3");  // one socket
  CHECK(whole(world_of({{0, 0}, {0, 0}, {kSeveral, kSeveral}, {4, 4}, {4, 4}})) == "flat");
  CHECK(whole(world_of({{0, 0}, {0, 0}, {0, 0}})) == "flat");
  CHECK(whole(world_of({{0, 0}, {0, 0}, {0, 0}, {4, 4}, {4, 4}, {5, 5}})) == "3 domains: 0-2, 3-4, 5");
}

TEST_CASE("where ranks are alone in their caches, sockets are known as domains, too") {
  const WorldDomains world = world_of({{0, 0}, {0, 0}, {2, 0}, {4, 4}, {4, 4}, {6, 4}});
  const Hierarchy h = world.hierarchy_of(std::vector<int>{0, 1, 2, 3, 4, 5});
  CHECK(to_text(h) == "4 domains: 0-1, 2, 3-4, 5; of these 2 domains: 0-1, 2-3");
  REQUIRE(h.joined() != nullptr);
  CHECK(to_text(*h.joined()) == "2 domains: 0-2, 3-5");
  CHECK(world.hierarchy_of(std::vector<int>{0, 1, 3, 4}).joined() == nullptr);
}

TEST_CASE("sockets above caches, and clusters in large caches") {
  CHECK(whole(world_of({{0, 0}, {0, 0}, {2, 0}, {2, 0}, {4, 4}, {4, 4}, {6, 4}, {6, 4}})) ==
        "4 domains: 0-1, 2-3, 4-5, 6-7; of these 2 domains: 0-1, 2-3");
  std::vector<RankDomains> many(17, {0, 0});
  many.insert(many.end(), 2, {4, 4});
  std::vector<int> all(many.size());
  std::iota(all.begin(), all.end(), 0);
  const WorldDomains world = world_of(many);
  const Hierarchy h = world.hierarchy_of(all);
  REQUIRE(h.clusters() != nullptr);
  CHECK(to_text(*h.clusters()) == "4 domains: 0-7, 8-15, 16, 17-18; of these 2 domains: 0-2, 3");
  all.pop_back();
  all.erase(all.begin());
  CHECK(world.hierarchy_of(all).is_flat());  // one rank alone in the second cache
  const Places places = world.places_of(std::vector<int>{0, 1, 17});
  CHECK(places.level(0, 1) == Level::cache);
  CHECK(places.level(0, 2) == Level::node);
}

TEST_CASE("equal numbers on different nodes are different caches") {
  WorldDomains world = world_of({{0, 0}, {0, 0}, {0, 0}, {0, 0}});
  CHECK(whole(world) == "flat");
  world.nodes = {0, 0, 1, 1};
  CHECK(whole(world) == "2 domains: 0-1, 2-3");
}

TEST_CASE("groups of some ranks derive theirs") {
  const std::vector<int> odd = {1, 3, 5, 7}, turned = {7, 0, 6, 1}, low = {0, 1, 2, 3};
  WorldDomains world = world_of({{0, 0}, {0, 0}, {2, 0}, {2, 0}, {4, 4}, {4, 4}, {6, 4}, {6, 4}});
  CHECK(to_text(world.hierarchy_of(odd)) == "2 domains: 0-1, 2-3");     // sockets: a cache for each
  CHECK(to_text(world.hierarchy_of(turned)) == "2 domains: 0+2, 1+3");  // caches, in the group's ranks
  CHECK(to_text(world.hierarchy_of(low)) == "2 domains: 0-1, 2-3");     // caches of one socket
  world.setting = *parse_hierarchy("1,7");
  CHECK(to_text(world.hierarchy_of(low)) == "2 domains: 0, 1-3");
  CHECK(world.hierarchy_of(odd).is_flat());
  world.setting = *parse_hierarchy("off");
  CHECK(world.hierarchy_of(low).is_flat());
}

TEST_CASE("a group shares CPUs where the ranks of a machine outnumber them") {
  WorldDomains world = world_of({{}, {}, {}, {}});
  CHECK_FALSE(world.shares_cpus(std::vector<int>{0, 1, 2, 3}));
  world.is_crowded = {false, false, true, true};
  CHECK_FALSE(world.shares_cpus(std::vector<int>{0, 1}));
  CHECK(world.shares_cpus(std::vector<int>{1, 3}));
}

TEST_CASE("a group spans sockets where all sockets are known and differ") {
  RankDomains first, second;
  first.socket = 0;
  second.socket = 8;
  const WorldDomains world = world_of({first, first, second, {}});
  CHECK_FALSE(world.spans_sockets(std::vector<int>{0, 1}));
  CHECK(world.spans_sockets(std::vector<int>{0, 1, 2}));
  CHECK_FALSE(world.spans_sockets(std::vector<int>{0, 2, 3}));
}

TEST_CASE("sizes have to add up to the world") {
  WorldDomains world = world_of({{}, {}, {}, {}});
  CHECK(world.check().is_ok());
  world.setting = *parse_hierarchy("1,3");
  CHECK(world.check().is_ok());
  CHECK(whole(world) == "2 domains: 0, 1-3");
  world.setting = *parse_hierarchy("2,3");
  CHECK(world.check().message() ==
        "TUTTI_HIERARCHY='2,3': the sizes add up to 5; expected the number of ranks, 4");
}
