// The scheduler when something is wrong: ranks that make different calls, groups that fail.
// Knows no algorithm but by name.
#include "tests/support/catch.hpp"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <numeric>
#include <random>

#include "runtime/scheduler/submitted_calls.hpp"
#include "tests/scheduler/scheduler_support.hpp"

namespace tutti::test {
namespace {

// Stands in for the group layer's control channel: the first rank with a cause of its own tells it to all; a
// rank that only saw its peer close waits for that cause; and stalled ranks compare their calls, for messages
// that nobody ever posts a receive for.
class FirstCause {
 public:
  Engine::Options options() {
    Engine::Options options = World::oversubscribed();
    options.stall_report = milliseconds(20);
    options.on_stall = [this](const Stall&) {
      const std::lock_guard lock(mutex_);
      compare();
    };
    return options;
  }
  void set_world(World& world) { world_ = &world; }

  Status settle(const Status& own) {
    std::unique_lock lock(mutex_);
    if (own.code() == StatusCode::mismatch) compare();
    if (own.code() != StatusCode::peer_failed) tell_all(own);
    first_causeed_.wait_for(lock, kPatience, [&] { return !cause_; });
    return cause_ ? own : cause_;
  }

 private:
  void tell_all(const Status& cause) {
    if (!cause_) return;
    cause_ = cause;
    for (std::uint32_t r = 0; r < world_->size(); ++r) world_->member(r).group->fail(cause);
    first_causeed_.notify_all();
  }

  // Others may be through with their version of the call: what counts is what they submitted.
  void compare() {
    std::map<int, CallHistory> histories;
    for (std::uint32_t r = 0; r < world_->size(); ++r)
      histories[static_cast<int>(r)] = world_->member(r).group->recent_calls();
    CallDifference difference;
    if (!find_difference(histories, &difference)) return;
    tell_all(Status(StatusCode::mismatch, "ranks of one group made different calls: " + difference.text,
                    difference.peer));
  }

  World* world_ = nullptr;
  std::mutex mutex_;
  std::condition_variable first_causeed_;
  Status cause_;
};

// -- mismatches -----------------------------------------------------------------------------------------

struct Mismatch {
  const char* name;
  Call usual, other;
};

std::vector<Mismatch> mismatches() {
  Call allreduce;
  allreduce.count = 16;
  Call broadcast = allreduce;
  broadcast.collective = Collective::broadcast;
  std::vector<Mismatch> list;
  const auto add = [&](const char* name, const Call& base, auto change) {
    Call other = base;
    change(other);
    list.push_back({name, base, other});
  };
  add("collective", allreduce, [](Call& c) { c.collective = Collective::broadcast; });
  add("collective with other buffers", allreduce, [](Call& c) { c.collective = Collective::barrier; });
  add("dtype of equal width", allreduce, [](Call& c) { c.dtype = Dtype::i32; });
  add("dtype of another width", allreduce, [](Call& c) { c.dtype = Dtype::f64; });
  add("op", allreduce, [](Call& c) { c.op = Op::max; });
  add("count", allreduce, [](Call& c) { c.count = 17; });
  add("large count", allreduce, [](Call& c) { c.count = 100000; });
  add("root", broadcast, [](Call& c) { c.root = 1; });
  add("count of a broadcast", broadcast, [](Call& c) { c.count = 15; });
  return list;
}

}  // namespace

TEST_CASE("mismatched calls are reported on every rank, naming both", "[scheduler]") {
  const auto p = GENERATE(2U, 3U, 4U);
  for (const Mismatch& mismatch : mismatches()) {
    for (std::uint32_t odd = 0; odd < p; ++odd) {
      INFO(mismatch.name << ", p = " << p << ", rank " << odd << " is the odd one");
      FirstCause first_cause;
      World world(WorldTransport::inproc, p, first_cause.options());
      first_cause.set_world(world);
      std::vector<Status> found(p);
      const std::string report = world.run([&](Member& member) -> std::string {
        std::vector<double> input(100000), output(100000);
        // Calls before, so that a number of the sequence is at stake and all slots are in use.
        Status s;
        for (int i = 0; i < 5 && s; ++i) s = member.run(barrier_call());
        Call call = member.rank == odd ? mismatch.other : mismatch.usual;
        call.input = input.data();
        call.output = output.data();
        if (s) s = member.run(call);
        // A rank that only sends may be through before anybody notices; its later calls tell.
        for (std::uint32_t i = 0; i < 2 * GroupContext::kSlots && s; ++i) s = member.run(barrier_call());
        found[member.rank] = s ? s : first_cause.settle(s);
        return {};
      });
      REQUIRE(report == "");
      for (const Status& s : found) {
        INFO(s.to_string());
        CHECK(s.code() == StatusCode::mismatch);
        const std::string usual(to_string(mismatch.usual.collective));
        CHECK(s.message().find(usual) != std::string::npos);
        CHECK(s.message().find("ranks of one group made different calls: rank") == 0);
        const std::string other(to_string(mismatch.other.collective));
        CHECK(s.message().find(other) != std::string::npos);
        CHECK(s.peer() >= 0);
      }
    }
  }
}

TEST_CASE("failing a group ends what is pending and refuses what comes", "[scheduler]") {
  World world(WorldTransport::inproc, 2);
  Member& member = world.member(0);
  std::vector<std::int32_t> input(100000, 1), output(100000);
  std::vector<WorkRef> works;
  for (std::uint32_t i = 0; i < 3 * GroupContext::kSlots; ++i) {
    auto work = member.backend->start(allreduce_of(input, output), {"ring"});
    REQUIRE(work.is_ok());
    works.push_back(*std::move(work));
  }
  const Status cause(StatusCode::peer_failed, "rank 1 lost its power supply", 1);
  std::thread other([&] {
    // The wait below has mostly begun; too early only tests less.
    std::this_thread::sleep_for(milliseconds(20));
    member.group->fail(cause);
    member.group->fail(Status(StatusCode::internal, "a later cause"));
  });
  const Status first = works[0]->wait(Clock::now() + kPatience);
  other.join();
  CHECK(first.code() == StatusCode::peer_failed);
  for (const WorkRef& work : works) {
    const Status s = work->wait(Clock::now() + kPatience);
    CHECK(s.code() == cause.code());
    CHECK(s.message() == cause.message());
    CHECK(s.peer() == 1);
  }
  const auto later = member.backend->start(allreduce_of(input, output), {});
  CHECK(later.status().code() == StatusCode::peer_failed);
  CHECK(member.group->failure().message() == cause.message());
  // The engine is none the worse for it: another group goes on.
  std::vector<Group> groups = make_groups(world, 8);
  CHECK(world.run([&](Member& m) {
    const Status s = groups[m.rank].run(barrier_call());
    return s ? std::string() : s.to_string();
  }) == "");
}

}  // namespace tutti::test
