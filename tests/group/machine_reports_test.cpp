// Reports of other machines about their ranks, and the message that brings one.
#include "runtime/group/machine_reports.hpp"

#include "tests/support/catch.hpp"

using namespace tutti;

TEST_CASE("what a rank is told replaces what it knew of those ranks, and is marked as a report") {
  MachineReports reports;
  reports.take(
      {{{2, {{7, 3, false, "barrier"}, {9, 1, false, "barrier"}}}, {3, {{7, 4, false, "barrier"}}}}});
  reports.take({{{2, {{7, 5, false, "allgather"}}}}});
  REQUIRE(reports.of(2).calls.size() == 1);
  CHECK(reports.of(2).calls[0].sequence == 5);
  CHECK(reports.of(2).calls[0].is_report);
  CHECK(reports.of(4).calls.empty());
  const auto found = reports.in_group(7);
  REQUIRE(found.size() == 2);
  CHECK(found[0].first == 2);
  CHECK(found[1].second.sequence == 4);
  CHECK(reports.in_group(9).empty());
}

TEST_CASE("a neighbour gets what it has not got last") {
  MachineReports reports;
  CHECK(reports.is_news(1, "a"));
  CHECK_FALSE(reports.is_news(1, "a"));
  CHECK(reports.is_news(2, "a"));
  CHECK(reports.is_news(1, "b"));
}

TEST_CASE("the report of a machine takes exactly the bytes that were encoded") {
  const MachineReport report{{{2, {{7, 3, false, "barrier"}, {9, 1, false, ""}}}, {3, {}}}};
  const std::string bytes = encode_diagnosis(report);
  const auto decoded = decode_diagnosis(bytes);
  REQUIRE(decoded);
  const auto* const found = std::get_if<MachineReport>(&*decoded);
  REQUIRE(found != nullptr);
  REQUIRE(found->ranks.size() == 2);
  CHECK(found->ranks[0].calls.size() == 2);
  CHECK(found->ranks[0].calls[0].call == "barrier");
  CHECK(found->ranks[1].world_rank == 3);
  for (std::size_t size = 0; size < bytes.size(); ++size)
    CHECK_FALSE(decode_diagnosis(std::string_view(bytes).substr(0, size)));
}
