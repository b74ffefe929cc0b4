// Reports of members about their calls: what is found in them, whatever is kept of them.
#include "runtime/group/member_reports.hpp"

#include "tests/support/catch.hpp"

using namespace tutti;
using Catch::Matchers::Contains;

namespace {

// Calls 1 to `last`; from call `other` on it has made others.
CallHistory history(std::uint32_t last, std::uint32_t other = ~0U) {
  CallHistory calls;
  for (std::uint32_t number = 1; number <= last; ++number)
    calls.push_back({number, number < other ? number : number + 1000, 3, number < other ? 4U : 8U});
  return calls;
}

}  // namespace

TEST_CASE("members that have made the same calls differ in nothing") {
  MemberReports reports;
  CallDifference found;
  CHECK_FALSE(reports.find_difference(1, history(3), &found));
  for (const int rank : {0, 2, 3}) reports.take(rank, history(static_cast<std::uint32_t>(rank)), history(3));
  CHECK_FALSE(reports.find_difference(1, history(3), &found));
  reports.take(2, history(5), history(3));  // ahead
  CHECK_FALSE(reports.find_difference(1, history(4), &found));
}

TEST_CASE("a member that has made another call is named, beside all that are known") {
  MemberReports reports;
  CallDifference found;
  for (const int rank : {2, 3}) reports.take(rank, history(3), history(3));
  reports.take(4, history(2), history(3));  // has not come so far
  reports.take(0, history(3, 3), history(3));
  REQUIRE(reports.find_difference(1, history(3), &found));
  CHECK(found.sequence == 3);
  CHECK(found.peer == 0);
  CHECK_THAT(found.text, Contains("rank 0 called") && Contains("ranks 1, 2, 3 called"));
  CHECK_FALSE(reports.find_difference(1, history(3), &found));  // its group fails already
}

TEST_CASE("members that are ahead are compared once this rank has followed, and with each other") {
  MemberReports reports;
  CallDifference found;
  reports.take(0, history(5, 5), history(3));
  CHECK_FALSE(reports.find_difference(1, history(3), &found));
  MemberReports followed = reports, compared = reports;
  CHECK(followed.find_difference(1, history(5), &found));
  compared.take(2, history(5), history(3));
  REQUIRE(compared.find_difference(1, history(3), &found));
  CHECK(found.sequence == 5);
}
