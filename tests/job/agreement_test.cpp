// The leading side of an agreement with a member that goes silent or dies between the proposal and its confirmation,
// and with one that has not heard that it is a member. The members are in one process.
#include <poll.h>
#include <unistd.h>

#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "runtime/job/agreement.hpp"
#include "runtime/job/parent_connection.hpp"
#include "tests/support/catch.hpp"

using namespace tutti;
using namespace std::chrono_literals;
using Catch::Matchers::Contains;

namespace {

struct Pair {
  std::shared_ptr<MemberListener> leader = *MemberListener::open(), member = *MemberListener::open();
  Membership membership{0, 2, {{0, leader->place()}, {1, member->place()}}};

  static ControlOptions control_of(int rank) {
    ControlOptions control;
    control.job = "pair";
    control.secret = "secret";
    control.build_id = "build";
    control.host = "here";
    control.rank = rank;
    control.size = 2;
    return control;
  }
  AgreementOptions options_of(int rank, std::chrono::milliseconds timeout) const {
    AgreementOptions options;
    options.control = control_of(rank);
    options.listener = rank == 0 ? leader.get() : member.get();
    options.membership = membership;
    options.deadline = Clock::now() + timeout;
    return options;
  }
  std::future<Result<Agreed>> lead(std::chrono::milliseconds timeout) const {
    return std::async(std::launch::async, agree_on_successor, options_of(0, timeout));
  }
};

// A process that asks to be let into a group of `members`.
struct Newcomer {
  std::shared_ptr<MemberListener> listener = *MemberListener::open();

  std::future<Result<Agreed>> join(const std::vector<Member>& members) const {
    AgreementOptions options;
    options.control = Pair::control_of(kJoining);
    options.listener = listener.get();
    options.membership = {0, 0, members};
    options.deadline = Clock::now() + 60s;
    return std::async(std::launch::async, ask_to_join, options);
  }
};

// Joins the agreement and gets a proposal, which it never confirms.
class SilentMember {
 public:
  explicit SilentMember(const Pair& pair) : pair_(pair) { parent_.add_name(pair.leader->place().name, 0); }

  // True once the leader has proposed.
  bool serve() {
    std::vector<pollfd> fds;
    std::vector<Frame> frames;
    parent_.append_fds(fds);
    ::poll(fds.data(), fds.size(), 5);
    static_cast<void>(parent_.serve(fds, frames));
    for (const Frame& frame : frames) {
      if (frame.type == FrameType::membership) {
        parent_.socket().send(Frame{FrameType::membership, 1, 0,
                                    encode(MembershipPayload{encode(RanksPayload{}), 0, pair_.membership})});
      }
      is_proposed_ = is_proposed_ || frame.type == FrameType::proposal;
    }
    return is_proposed_;
  }

 private:
  const Pair& pair_;
  const ControlOptions control_ = Pair::control_of(1);
  const MemberClaim claim_{1, 2, ::getpid(), "here", "build", false};
  ParentConnection parent_{control_, claim_};
  bool is_proposed_ = false;
};

}  // namespace

TEST_CASE("a member that called, and is frozen before it confirms, is named at the deadline") {
  const Pair pair;
  SilentMember member(pair);
  std::future<Result<Agreed>> leading = pair.lead(2s);
  while (leading.wait_for(0s) != std::future_status::ready) member.serve();
  const Status status = leading.get().status();
  CHECK(status.code() == StatusCode::timeout);
  CHECK(status.peer() == 1);
  CHECK_THAT(status.message(), Contains("called by rank 1 of 2, but not confirmed in time"));
}

TEST_CASE("a member that dies before it confirms is left out, and the agreement ends") {
  Pair pair;
  auto member = std::make_unique<SilentMember>(pair);
  std::future<Result<Agreed>> leading = pair.lead(60s);
  while (!member->serve()) REQUIRE(leading.wait_for(0s) != std::future_status::ready);
  pair.member.reset();  // as the kernel does for a process that dies
  member.reset();
  const Result<Agreed> agreed = leading.get();
  REQUIRE(agreed.is_ok());
  CHECK(agreed->successor.membership.members.size() == 1);
}

TEST_CASE("a process that has not heard that it is a member joins once more") {
  const Pair pair;
  const Newcomer newcomer;
  AgreementOptions leading = pair.options_of(0, 60s), following = pair.options_of(1, 60s);
  leading.new_size = following.new_size = 3;
  following.membership = {1, 3, pair.membership.members};
  following.membership.members.push_back({2, newcomer.listener->place()});
  // The leader learns of the newcomer's place from itself, or from the other member.
  if (GENERATE(false, true)) leading.membership = following.membership;
  std::future<Result<Agreed>> joined = newcomer.join(pair.membership.members);
  std::future<Result<Agreed>> led = std::async(std::launch::async, agree_on_successor, leading);
  std::this_thread::sleep_for(std::chrono::milliseconds(GENERATE(0, 100)));  // either comes first
  std::future<Result<Agreed>> followed = std::async(std::launch::async, agree_on_successor, following);
  for (std::future<Result<Agreed>>* side : {&joined, &led, &followed}) {
    const Result<Agreed> agreed = side->get();
    REQUIRE(agreed.is_ok());
    const std::vector<Member>& members = agreed->successor.membership.members;
    REQUIRE(members.size() == 3);
    CHECK(members[2].id == 3);  // not 2, which nobody has taken
    CHECK(members[2].place == newcomer.listener->place());
  }
}
