// The plan of the control tree, and what rank 0 knows of its world: who has come, is gone, or was lost.
#include <algorithm>
#include <set>

#include "runtime/job/control_plan.hpp"
#include "runtime/job/control_root.hpp"
#include "runtime/job/frame_socket.hpp"
#include "tests/job/control_job.hpp"

using namespace tutti;
using namespace tutti::test;

namespace {

std::vector<int> numbers(int first, int end) {
  std::vector<int> all;
  for (int i = first; i < end; ++i) all.push_back(i);
  return all;
}

struct Sent final : ControlRouter {
  std::vector<Frame> frames;
  void send_to(int /*rank*/, const Frame& frame) override { frames.push_back(frame); }
  void send_to_all(const Frame& frame) override { frames.push_back(frame); }
};

}  // namespace

TEST_CASE("a plan gives every leader a host that is nearer to rank 0, and none more than the degree") {
  for (const int degree : {1, 2, 3, 32}) {
    for (const int count : {0, 1, 2, 3, 7, 33, 34, 100}) {
      const std::vector<int> leaders = numbers(1, count + 1);
      ControlPlan plan(leaders, degree);
      CHECK(plan.is_complete() == (count <= degree));
      std::set<int> placed;
      for (const int host : plan.hosts()) {
        const std::vector<int> below = plan.below(host);
        CHECK((!below.empty() && below.size() <= static_cast<std::size_t>(degree)));
        for (const int leader : below) CHECK((leader > host && placed.insert(leader).second));
      }
      CHECK(static_cast<int>(placed.size()) == std::max(0, count - degree));
    }
  }
}

TEST_CASE("a plan waits for listeners, then for moving leaders, and keeps those that cannot move") {
  ControlPlan plan(numbers(1, 8), 2);  // 1 - { 3, 4 }, 2 - { 5, 6 }, 3 - { 7 }
  CHECK(plan.awaited() == std::vector<int>{1, 2, 3});
  plan.on_listening(1, true);
  plan.on_listening(2, false);
  plan.on_listening(3, true);
  plan.on_listening(9, false);
  CHECK(plan.awaited() == std::vector<int>{3, 4, 7});
  CHECK(plan.below(2).empty());
  plan.on_attached(3, false);
  CHECK(plan.awaited() == std::vector<int>{3, 4, 7});  // its last word on the other connection is missing
  plan.on_moving(3);
  plan.on_moving(4);
  CHECK(plan.awaited() == std::vector<int>{4, 7});
  plan.on_attached(4, false);
  plan.on_attached(5, false);
  CHECK_FALSE(plan.is_complete());
  plan.on_attached(7, true);
  CHECK(plan.is_complete());
}

TEST_CASE("an orphaned rank is dead only if it finds no other parent") {
  Sent sent;
  ControlRoot root(4, sent);
  for (int rank = 0; rank < 4; ++rank) root.admit(MemberClaim{rank, 4, 1, "", "", false});
  const Clock::time_point now = Clock::now();
  for (int rank = 1; rank < 4; ++rank)
    root.on_orphaned({rank, rank != 3, true, "lost its way", {}}, now + 1s);
  CHECK(root.next_overdue() == now + 1s);
  CHECK(root.check(MemberClaim{1, 4, 1, "", "", true}));
  CHECK_FALSE(root.check(MemberClaim{1, 4, 1, "", "", false}));
  root.on_attached(1);
  root.drop_overdue(now);
  CHECK(sent.frames.empty());
  root.drop_overdue(now + 2s);
  REQUIRE(sent.frames.size() == 1);  // rank 3 has left in peace
  FailurePayload failure;
  REQUIRE(decode(sent.frames[0].payload, failure));
  CHECK(failure.dead_rank == 2);
  CHECK(failure.message == "lost its way");
  CHECK_FALSE(root.check(MemberClaim{2, 4, 1, "", "", true}));
  CHECK(root.next_overdue() == Clock::time_point::max());
  // The report of a former parent or child is better, whichever comes first.
  root.on_reported({1, true, false, "closed", {}});
  CHECK(sent.frames.size() == 1);
  root.on_orphaned({1, true, true, "lost its way", {}}, now + 1s);
  REQUIRE(sent.frames.size() == 2);
  REQUIRE(decode(sent.frames[1].payload, failure));
  CHECK(failure.message == "closed");
  root.on_reported({1, true, false, "closed", {}});
  CHECK(sent.frames.size() == 2);
}

TEST_CASE("mates of a leader that has died join again, before or after rank 0 has seen its end") {
  Sent sent;
  ControlRoot root(5, sent);
  const auto claim_of = [](int rank, bool is_again) {
    return MemberClaim{rank, 5, 1, "", "", false, is_again};
  };
  for (int rank = 0; rank < 4; ++rank) root.admit(claim_of(rank, false));
  CHECK_FALSE(root.check(claim_of(2, false)));
  const GonePayload closed{1, true, false, "its host has closed the connection", {}},
      killed{1, true, false, "killed", {}};
  const bool is_report_first = GENERATE(true, false);
  if (!is_report_first) {
    root.on_gone(closed);
    root.on_gone({2, true, true, "lost its way", {}});
    root.on_gone({3, true, true, "lost its way", {}});
  }
  for (const int rank : {2, 3}) {
    REQUIRE(root.check(claim_of(rank, true)));
    root.admit(claim_of(rank, true));
    root.on_reported(killed);
  }
  if (is_report_first) root.on_gone(closed);
  CHECK(root.absent_ranks() == std::vector<int>{1, 4});
  CHECK(root.find_loss(Clock::now()).message() == "killed");
  // Each is counted once: a new rank 1 and rank 4 make the job complete.
  root.admit(claim_of(1, false));
  CHECK_FALSE(root.is_complete());
  root.admit(claim_of(4, false));
  CHECK(root.is_complete());
  CHECK(root.find_loss(Clock::now()));
  // The report was of the former rank 1.
  root.on_gone(closed);
  FailurePayload failure;
  REQUIRE(sent.frames.size() == 1);
  REQUIRE(decode(sent.frames[0].payload, failure));
  CHECK(failure.message == "its host has closed the connection");
}
