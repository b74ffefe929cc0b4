// The automatic choice: complete, and by domains where there are some. Knows no transport and runs no
// collective.
#include "tests/selection/selection_support.hpp"

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace tutti {
using namespace test;

TEST_CASE("the defaults end in something legal, whatever is asked", "[selection]") {
  const Selector selector = selector_of({});
  std::vector<std::uint64_t> sizes = {0, 1, std::numeric_limits<std::uint64_t>::max()};
  for (std::uint32_t bit = 1; bit < 40; ++bit) {
    for (std::uint64_t around : {-1, 0, 1}) sizes.push_back((std::uint64_t{1} << bit) + around);
  }
  std::uint32_t asked = 0;
  std::string wrong;
  for (int c = 0; c < kCollectiveCount; ++c) {
    const auto collective = static_cast<Collective>(c);
    if (collective == Collective::send_recv) continue;
    for (std::uint32_t p = 1; p <= 100; ++p) {
      for (const std::uint64_t bytes : sizes) {
        for (int flags = 0; flags < 16; ++flags) {
          Question q = ask(collective, bytes, p);
          q.reach = (flags & 4) != 0 ? Reach::network : Reach::node;
          q.shares_cpus = (flags & 8) != 0;
          q.is_commutative = (flags & 1) != 0;
          q.has_equal_counts = (flags & 2) != 0;
          q.has_known_bytes = q.has_equal_counts || collective != Collective::alltoall;
          const auto chosen = selector.choose(q);
          ++asked;
          const bool is_right = chosen && chosen->row->collective == collective && !chosen->is_forced &&
                                check_legality(*chosen->row, p, q.is_commutative, false, q.has_equal_counts);
          if (!is_right) {
            wrong += std::string(to_string(collective)) + " p=" + std::to_string(p) +
                     " bytes=" + std::to_string(bytes) + " flags=" + std::to_string(flags) + "\n";
          }
        }
      }
    }
  }
  CHECK(asked > 100000);
  CHECK(wrong == "");
}

TEST_CASE("hierarchical rows are the default of many ranks in domains, and of nobody else", "[selection]") {
  const Selector selector = selector_of({});
  const auto is_chosen = [&](Collective collective, const Hierarchy& h, std::uint64_t bytes, bool commutes) {
    Question q = ask(collective, bytes, h.size());
    q.is_commutative = commutes;
    q.hierarchy = &h;
    const auto chosen = selector.choose(q);
    REQUIRE(chosen.is_ok());
    return chosen->row->name == "hierarchical";
  };
  const auto sizes = [](const std::vector<std::uint32_t>& list) { return Hierarchy::of_sizes(list); };
  std::vector<std::uint32_t> turns;
  for (std::uint32_t rank = 0; rank < 20; ++rank) turns.push_back(rank % 2);
  const Hierarchy dealt(turns);
  for (const Collective collective :
       {Collective::allreduce, Collective::broadcast, Collective::reduce, Collective::allgather,
        Collective::reduce_scatter, Collective::barrier}) {
    for (const std::uint64_t bytes : {std::uint64_t{8}, std::uint64_t{1} << 16U, std::uint64_t{1} << 30U}) {
      INFO(to_string(collective) << ", " << bytes << " bytes");
      // Short ones that need no rank order go by a tree over all ranks.
      const bool is_tree =
          bytes == 8 && (collective == Collective::reduce || collective == Collective::allgather);
      const bool is_always_tree = is_tree && collective == Collective::allgather;
      CHECK(is_chosen(collective, sizes({9, 11}), bytes, true) == !is_tree);
      CHECK(is_chosen(collective, sizes({9, 11}), bytes, false) == !is_always_tree);
      CHECK(is_chosen(collective, dealt, bytes, true) == !is_tree);
      CHECK(is_chosen(collective, dealt, bytes, false) == (!is_reducing(collective) && !is_always_tree));
      CHECK_FALSE(is_chosen(collective, sizes({4, 4}), bytes, true));
      CHECK_FALSE(is_chosen(collective, sizes({20}), bytes, true));
      CHECK_FALSE(is_chosen(collective, sizes(std::vector<std::uint32_t>(20, 1)), bytes, true));
    }
  }
  CHECK(is_chosen(Collective::scatter, sizes({9, 11}), 1U << 16U, true));
  CHECK_FALSE(is_chosen(Collective::scatter, sizes({9, 11}), 1U << 20U, true));
  CHECK_FALSE(is_chosen(Collective::scatter, sizes({4, 4}), 8, true));
  // Of alltoall only small blocks, where messages count: twice as much is sent inside of domains.
  CHECK(is_chosen(Collective::alltoall, sizes({9, 11}), 32768, true));
  CHECK_FALSE(is_chosen(Collective::alltoall, sizes({9, 11}), 32769, true));
  CHECK_FALSE(is_chosen(Collective::alltoall, sizes({4, 4}), 8, true));
  CHECK_FALSE(is_chosen(Collective::alltoall, sizes({32, 32}), 64, true));
  Question q = ask(Collective::allreduce, 8, 20);
  q.is_commutative = false;
  q.hierarchy = &dealt;
  const auto forced = selector.choose(q, "hierarchical");
  CHECK(forced.status().message().find("not commutative") != std::string::npos);
  // Segments of about so many bytes are counted on the blocks of this hierarchy: 2 leaders of 2.
  const Hierarchy four = sizes({2, 2});
  q = ask(Collective::allreduce, 64U << 10U, 4);
  q.hierarchy = &four;
  const auto cut = selector.choose(q, "hierarchical(across=1,segment=4k)");
  REQUIRE(cut.is_ok());
  CHECK(cut->params.segments == 4);
}

TEST_CASE("small groups over several sockets choose by socket, others as before", "[selection]") {
  const Selector selector = selector_of({});
  const auto chosen = [&](Collective collective, std::vector<std::uint32_t> sizes, std::uint64_t bytes,
                          bool spans_sockets, bool shares_cpus = false) {
    const Hierarchy h = Hierarchy::of_sizes(sizes);
    Question q = ask(collective, bytes, h.size());
    q.hierarchy = &h;
    q.spans_sockets = spans_sockets;
    q.shares_cpus = shares_cpus;
    const auto selection = selector.choose(q);
    REQUIRE(selection.is_ok());
    return selection->row->name;
  };
  for (const auto& [collective, most] :
       {std::pair{Collective::allreduce, 32768U}, std::pair{Collective::reduce, 65536U},
        std::pair{Collective::reduce_scatter, 4096U}, std::pair{Collective::gather, 8192U},
        std::pair{Collective::scatter, 512U}, std::pair{Collective::alltoall, 4096U}}) {
    INFO(to_string(collective));
    CHECK(chosen(collective, {2, 2}, most, true) == "hierarchical");
    CHECK(chosen(collective, {3, 5}, most, true) == "hierarchical");
    CHECK(chosen(collective, {4, 4}, most + 1, true) != "hierarchical");
    CHECK(chosen(collective, {4, 4}, most, false) != "hierarchical");
    CHECK(chosen(collective, {4, 4}, most, true, true) != "hierarchical");
    CHECK(chosen(collective, {1, 1, 1, 1}, most, true) != "hierarchical");
    CHECK(chosen(collective, {1, 2}, most, true) == chosen(collective, {1, 2}, most, false));
    // More ranks go by the rules that all groups of a node have.
    CHECK(chosen(collective, {9, 11}, most, true) == chosen(collective, {9, 11}, most, false));
  }
  CHECK(chosen(Collective::allreduce, {4, 4}, 48, true) == "one_shot");
}

TEST_CASE("short vectors take one leader where domains are large", "[selection]") {
  const Selector selector = selector_of({});
  const auto leaders_of = [&](std::vector<std::uint32_t> sizes, std::uint64_t bytes, bool has_clusters) {
    Hierarchy h = Hierarchy::of_sizes(sizes);
    if (has_clusters) h = h.with_clusters(8);
    Question q = ask(Collective::allreduce, bytes, h.size());
    q.hierarchy = &h;
    q.spans_sockets = true;
    const auto selection = selector.choose(q);
    REQUIRE(selection.is_ok());
    REQUIRE(selection->row->name == "hierarchical");
    return selection->params.leaders;
  };
  CHECK(leaders_of({24, 24}, 128, true) == 1);
  CHECK(leaders_of({24, 24}, 129, true) == 0);
  CHECK(leaders_of({24, 24}, 128, false) == 0);
  CHECK(leaders_of({72, 72}, 512, true) == 1);
  CHECK(leaders_of({72, 72}, 16384, true) == 0);
}

TEST_CASE("where ranks are alone in a domain, long vectors go by larger ones", "[selection]") {
  const Selector selector = selector_of({});
  for (const std::uint64_t bytes : {1024U, 1025U, 65536U, 1048576U}) {
    Question q = ask(Collective::allreduce, bytes, 18);
    std::vector<std::uint32_t> caches(16, 1);
    caches[0] = caches[8] = 2;
    const std::uint32_t sockets[] = {8, 8};
    const Hierarchy hierarchy =
        Hierarchy::of_sizes(caches).with_upper(Hierarchy::of_sizes(sockets)).with_joined();
    REQUIRE(hierarchy.joined() != nullptr);
    q.hierarchy = &hierarchy;
    const auto selection = selector.choose(q);
    REQUIRE(selection.is_ok());
    CHECK(selection->params.mates == (bytes > 1024 ? 1 : 0));
  }
}

TEST_CASE("across nodes hierarchical rows are the default wherever a node holds several ranks",
          "[selection]") {
  const Selector selector = selector_of({});
  const auto chosen = [&](Collective collective, const Hierarchy& h, std::uint64_t bytes) {
    Question q = ask(collective, bytes, h.size());
    q.hierarchy = &h;
    q.reach = Reach::network;
    const auto selection = selector.choose(q);
    REQUIRE(selection.is_ok());
    return selection->row->name;
  };
  const auto sizes = [](const std::vector<std::uint32_t>& list) { return Hierarchy::of_sizes(list); };
  for (const Collective collective :
       {Collective::allreduce, Collective::broadcast, Collective::reduce, Collective::allgather,
        Collective::reduce_scatter, Collective::barrier}) {
    for (const std::uint64_t bytes : {std::uint64_t{8}, std::uint64_t{1} << 16U, std::uint64_t{1} << 30U}) {
      INFO(to_string(collective) << ", " << bytes << " bytes");
      CHECK(chosen(collective, sizes({2, 2}), bytes) == "hierarchical");
      CHECK(chosen(collective, sizes({1, 2}), bytes) == "hierarchical");
      CHECK(chosen(collective, sizes(std::vector<std::uint32_t>(64, 8)), bytes) == "hierarchical");
      CHECK(chosen(collective, sizes({1, 1, 1}), bytes) != "hierarchical");
    }
  }
  // Circulant rows send far for what others send near.
  for (const std::uint32_t nodes : {2U, 3U, 8U, 100U}) {
    for (std::uint64_t bytes = 1; bytes <= std::uint64_t{1} << 32U; bytes *= 2)
      CHECK(chosen(Collective::allreduce, sizes(std::vector<std::uint32_t>(nodes, 1)), bytes) != "circulant");
  }
}

TEST_CASE("across nodes whose ranks share CPUs one rank speaks for its node as long as messages are short",
          "[selection]") {
  const Selector selector = selector_of({});
  const Hierarchy nodes = Hierarchy::of_sizes(std::vector<std::uint32_t>{2, 2});
  const auto leaders = [&](Collective collective, std::uint64_t bytes, bool shares_cpus) {
    Question q = ask(collective, bytes, 4);
    q.hierarchy = &nodes;
    q.reach = Reach::network;
    q.shares_cpus = shares_cpus;
    const auto selection = selector.choose(q);
    REQUIRE(selection.is_ok());
    CHECK(selection->row->name == "hierarchical");
    return selection->params.leaders;
  };
  for (const Collective collective :
       {Collective::allreduce, Collective::allgather, Collective::reduce_scatter, Collective::alltoall}) {
    INFO(to_string(collective));
    CHECK(leaders(collective, 16 << 10, true) == 1);
    CHECK(leaders(collective, 16 << 10, false) == 0);
  }
  // Long vectors leave a node once, whoever shares what.
  CHECK(leaders(Collective::reduce_scatter, 16 << 20, true) == 0);
}

}  // namespace tutti
