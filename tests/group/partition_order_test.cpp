// Partitions of a plan: marks, order and misuse, without a group.
#include "runtime/group/partition_order.hpp"

#include "tests/support/catch.hpp"

using namespace tutti;

namespace {

std::vector<std::uint32_t> give_out(PartitionOrder& partitions) {
  std::vector<std::uint32_t> given;
  while (const auto partition = partitions.next()) {
    given.push_back(*partition);
    partitions.give_out_next();
  }
  return given;
}

using Partitions = std::vector<std::uint32_t>;

}  // namespace

TEST_CASE("a partition waits for its predecessors in the order") {
  PartitionOrder partitions(4);
  CHECK_FALSE(partitions.next());
  CHECK(partitions.mark_ready(2, 2));
  CHECK(give_out(partitions).empty());
  CHECK(partitions.missing_for(3) == std::vector<int>{0, 1});
  CHECK(partitions.missing_for(0) == std::vector<int>{0});
  CHECK(partitions.mark_ready(0, 1));
  CHECK(give_out(partitions) == Partitions{0});
  CHECK(partitions.is_given_out(0));
  CHECK_FALSE(partitions.is_given_out(2));
  CHECK(partitions.mark_ready(1, 1));
  CHECK(give_out(partitions) == Partitions{1, 2, 3});
  CHECK(partitions.are_all_given_out());
  CHECK(Partitions(partitions.ready_partitions().begin(), partitions.ready_partitions().end()) ==
        Partitions{2, 3, 0, 1});
}

TEST_CASE("a run may have another order than the last one") {
  PartitionOrder partitions(3);
  REQUIRE(partitions.mark_ready(0, 3));
  CHECK(give_out(partitions) == Partitions{0, 1, 2});
  const Partitions order{2, 0, 1};
  partitions.restart(order);
  CHECK_FALSE(partitions.are_all_given_out());
  CHECK(partitions.ready_partitions().empty());
  REQUIRE(partitions.mark_ready(2, 1));
  CHECK(give_out(partitions) == Partitions{2});
  REQUIRE(partitions.mark_ready(0, 2));
  CHECK(give_out(partitions) == Partitions{0, 1});
  partitions.restart();
  REQUIRE(partitions.mark_ready(0, 3));
  CHECK(give_out(partitions) == order);
}

TEST_CASE("partitions that do not exist or are ready already are refused as a whole") {
  PartitionOrder partitions(4);
  CHECK(partitions.mark_ready(4, 0));
  CHECK(partitions.mark_ready(3, 2).message() == "ready: first=3 and count=2: expected partitions of 0 to 3");
  CHECK_FALSE(partitions.mark_ready(~std::size_t{0}, 2));
  REQUIRE(partitions.mark_ready(1, 1));
  CHECK(partitions.mark_ready(0, 2).message() ==
        "ready: partition 1 is ready already; a partition becomes ready once in a run");
  CHECK_FALSE(partitions.next());  // partition 0 was not marked
  CHECK(PartitionOrder(0).check_range("wait", 0, 1).message() == "wait: this plan has no partitions");
}
