// The scheduler over ranks that are threads: many operations in flight, several threads, user-defined ops,
// sleeping. Knows no algorithm but by name.
#include "tests/support/catch.hpp"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <numeric>
#include <random>

#include "tests/scheduler/scheduler_support.hpp"

namespace tutti::test {
namespace {

// -- many operations ------------------------------------------------------------------------------------

enum class Order { forward, backward, shuffled, dropped };

std::string run_many(Member& member, Order order) {
  constexpr std::size_t kOperations = 16 * GroupContext::kSlots;
  std::vector<std::vector<std::int32_t>> inputs(kOperations), outputs(kOperations);
  std::vector<WorkRef> works;
  for (std::size_t i = 0; i < kOperations; ++i) {
    inputs[i].assign(1 + i * 37 % 500, static_cast<std::int32_t>((member.rank + 1) * (i + 1)));
    outputs[i].assign(inputs[i].size(), -1);
    auto work =
        member.backend->start(allreduce_of(inputs[i], outputs[i]), {i % 3 == 0 ? "two_shot" : "ring"});
    if (!work) return work.status().to_string();
    works.push_back(*std::move(work));
  }
  std::vector<std::size_t> numbers(kOperations);
  std::iota(numbers.begin(), numbers.end(), std::size_t{0});
  if (order == Order::backward) std::reverse(numbers.begin(), numbers.end());
  if (order == Order::shuffled) std::shuffle(numbers.begin(), numbers.end(), std::mt19937(member.rank));
  if (order == Order::dropped) {
    works.clear();
    // Operations of one slot complete in order: these end after all the others.
    for (std::uint32_t i = 0; i < GroupContext::kSlots; ++i) {
      auto work = member.backend->start(barrier_call(), {});
      if (!work) return work.status().to_string();
      works.push_back(*std::move(work));
    }
    for (WorkRef& work : works) {
      if (Status s = work->wait(Clock::now() + kPatience); !s) return s.to_string();
    }
  } else {
    for (const std::size_t i : numbers) {
      if (Status s = works[i]->wait(Clock::now() + kPatience); !s) return s.to_string();
    }
  }
  for (std::size_t i = 0; i < kOperations; ++i) {
    const auto sum = static_cast<std::int32_t>(member.size * (member.size + 1) / 2 * (i + 1));
    for (const std::int32_t value : outputs[i]) {
      if (value != sum) return fmt::format("operation {}: {}, expected {}", i, value, sum);
    }
  }
  return {};
}

}  // namespace

TEST_CASE("operations in flight complete in any order of waiting", "[scheduler]") {
  const auto order = GENERATE(Order::forward, Order::backward, Order::shuffled, Order::dropped);
  const auto p = GENERATE(1U, 2U, 4U);
  CAPTURE(static_cast<int>(order), p);
  World world(WorldTransport::inproc, p);
  for (int round = 0; round < 3; ++round) {
    REQUIRE(world.run([&](Member& member) { return run_many(member, order); }) == "");
  }
}

TEST_CASE("a WorkRef outlives its group", "[scheduler]") {
  World world(WorldTransport::inproc, 2);
  WorkRef finished, pending, queued;
  std::vector<std::int32_t> input(8, 1), output(8);
  REQUIRE(world.run([&](Member& member) -> std::string {
    std::vector<std::int32_t> in(8, 1), out(8);
    auto work = member.backend->start(allreduce_of(in, out), {});
    if (!work) return work.status().to_string();
    if (member.rank == 0) finished = *work;
    const Status s = (*work)->wait(Clock::now() + kPatience);
    return s ? std::string() : s.to_string();
  }) == "");
  Member& alone = world.member(0);
  auto work = alone.backend->start(allreduce_of(input, output), {"ring"});
  REQUIRE(work.is_ok());
  pending = *std::move(work);
  for (std::uint32_t i = 0; i < GroupContext::kSlots; ++i) {
    work = alone.backend->start(barrier_call(), {});
    REQUIRE(work.is_ok());
    queued = *std::move(work);
  }
  CHECK(!pending->test());
  alone.backend.reset();
  alone.group.reset();
  CHECK(finished->test());
  CHECK(finished->wait(Clock::now()).is_ok());
  for (WorkRef* one : {&pending, &queued}) {
    CHECK((*one)->test());
    CHECK((*one)->status().code() == StatusCode::aborted);
    CHECK((*one)->wait(Clock::now()).code() == StatusCode::aborted);
  }
}

TEST_CASE("a group is destroyed with very many operations queued", "[scheduler]") {
  World world(WorldTransport::inproc, 2);
  Member& alone = world.member(0);
  std::vector<WorkRef> works;
  for (int i = 0; i < 50000; ++i) {
    auto work = alone.backend->start(barrier_call(), {});
    REQUIRE(work.is_ok());
    works.push_back(*std::move(work));
  }
  alone.backend.reset();
  alone.group.reset();
  CHECK(std::all_of(works.begin(), works.end(), [](const WorkRef& work) {
    return work->test() && work->status().code() == StatusCode::aborted;
  }));
}

TEST_CASE("a deadline passes and the operation goes on", "[scheduler]") {
  Engine::Options options = World::oversubscribed();
  options.stall_report = milliseconds(5);
  std::atomic<int> reports{0};
  std::vector<Stall> stalls;
  options.on_stall = [&](const Stall& stall) {
    if (reports.fetch_add(1) == 0) stalls.push_back(stall);
  };
  World world(WorldTransport::inproc, 2, options);
  std::vector<std::int32_t> input(50, 3), output(50), theirs(50);
  auto work = world.member(0).backend->start(allreduce_of(input, output), {"ring"});
  REQUIRE(work.is_ok());
  const Status late = (*work)->wait(Clock::now() + milliseconds(100));
  CHECK(late.code() == StatusCode::timeout);
  CHECK(late.message().find("allreduce of 50 i32, sum") != std::string::npos);
  REQUIRE(stalls.size() == 1);
  CHECK(stalls[0].context == world.member(0).group->context());
  CHECK(stalls[0].awaited_rank == 1);
  CHECK(stalls[0].sequence == 1);
  CHECK(stalls[0].call == "allreduce of 50 i32, sum");

  auto other = world.member(1).backend->start(allreduce_of(input, theirs), {"ring"});
  REQUIRE(other.is_ok());
  // One thread plays both ranks: each needs the other to move on.
  for (bool is_over = false; !is_over;) {
    const bool is_first_over = (*work)->test();
    is_over = (*other)->test() && is_first_over;
  }
  CHECK((*work)->wait(Clock::now()).is_ok());
  CHECK(output == std::vector<std::int32_t>(50, 6));
  CHECK(theirs == output);
}

TEST_CASE("a report comes when a warning is due, between those at doubling intervals", "[scheduler]") {
  // A thread that gets no CPU reports late: then once more with more time.
  std::vector<milliseconds> ages;
  bool is_between = false;
  for (const auto first : {milliseconds(40), milliseconds(400)}) {
    Engine::Options options = World::oversubscribed();
    options.stall_report = first;
    options.stall_warning = first * 5 / 4;
    ages.clear();
    options.on_stall = [&](const Stall& stall) { ages.push_back(stall.lasted); };
    World world(WorldTransport::inproc, 2, options);
    std::vector<std::int32_t> input(50, 3), output(50);
    auto work = world.member(0).backend->start(allreduce_of(input, output), {"ring"});
    REQUIRE(work.is_ok());
    while (ages.size() < 2) static_cast<void>((*work)->wait(Clock::now() + first));
    is_between = ages[1] < 2 * first;
    if (is_between) break;
  }
  CHECK(is_between);
}

TEST_CASE("two threads in one group are reported", "[scheduler]") {
  World world(WorldTransport::inproc, 1);
  GroupContext& group = *world.member(0).group;
  const AlgorithmRow* row = find_algorithm(Collective::allreduce, "ring");
  auto schedule = row->emit({}, {0, 1}, default_params(*row));
  REQUIRE(schedule.is_ok());
  auto compiled = compile(*std::move(schedule));
  REQUIRE(compiled.is_ok());
  Prepared prepared;
  prepared.messages = std::make_shared<const Plan>(*std::move(compiled));
  prepared.kernel = select_kernel(Op::premul_sum, Dtype::f32);
  // Scaling the input keeps a submission busy for long enough to meet the other.
  std::vector<float> input(1U << 20U, 1.0F), output(1U << 20U), small(4), small_output(4);
  std::atomic<bool> is_over{false};
  std::atomic<int> refused{0}, other_errors{0};
  const auto submit = [&](std::vector<float>& in, std::vector<float>& out) {
    Call call;
    call.op = ReduceOp::premul_sum(2.0);
    call.input = in.data();
    call.output = out.data();
    call.count = in.size();
    const auto work = group.submit(prepared, call);
    if (work) {
      if (!(*work)->wait(Clock::now() + kPatience)) ++other_errors;
    } else if (work.status().code() == StatusCode::invalid_argument) {
      ++refused;
    } else {
      ++other_errors;
    }
  };
  std::thread other([&] {
    while (!is_over.load()) submit(small, small_output);
  });
  for (int i = 0; i < 2000 && refused.load() == 0; ++i) submit(input, output);
  is_over.store(true);
  other.join();
  CHECK(refused.load() > 0);
  CHECK(other_errors.load() == 0);
}

TEST_CASE("a rank blocked in one group moves its other groups on", "[scheduler]") {
  World world(WorldTransport::inproc, 2);
  std::vector<Group> groups = make_groups(world, 8);
  constexpr std::size_t kCount = 300000;  // many messages of several pieces: nothing completes by itself
  REQUIRE(world.run([&](Member& member) -> std::string {
    std::vector<std::int32_t> input(kCount, 1), a(kCount), b(kCount);
    const Group& group = groups[member.rank];
    if (member.rank == 0) {
      auto work_b = group.backend->start(allreduce_of(input, b), {"ring"});
      auto work_a = member.backend->start(allreduce_of(input, a), {"ring"});
      if (!work_a || !work_b) return "not started";
      if (Status s = (*work_a)->wait(Clock::now() + kPatience); !s) return "a: " + s.to_string();
      if (Status s = (*work_b)->wait(Clock::now() + kPatience); !s) return "b: " + s.to_string();
    } else {
      // Its peer sits in the other group until this one is through.
      if (Status s = group.run(allreduce_of(input, b), "ring"); !s) return "b: " + s.to_string();
      if (Status s = member.run(allreduce_of(input, a), "ring"); !s) return "a: " + s.to_string();
    }
    const std::vector<std::int32_t> expected(kCount, 2);
    return a == expected && b == expected ? "" : "wrong sums";
  }) == "");
}

TEST_CASE("two threads of a rank use two groups in opposite order", "[scheduler]") {
  World world(WorldTransport::inproc, 3);
  std::vector<Group> groups = make_groups(world, 8);
  const auto use = [&](Member& member, bool is_second, std::uint32_t rounds) -> std::string {
    std::vector<std::int32_t> input(5000, 1), output(5000);
    for (std::uint32_t i = 0; i < rounds; ++i) {
      const Call call = allreduce_of(input, output);
      const Status s = is_second ? groups[member.rank].run(call, "ring") : member.run(call, "two_shot");
      if (!s) return s.to_string();
      if (output != std::vector<std::int32_t>(5000, 3)) return "wrong sums";
    }
    return {};
  };
  REQUIRE(world.run([&](Member& member) {
    std::string other_report;
    std::thread other([&] { other_report = use(member, member.rank % 2 == 0, 200); });
    std::string report = use(member, member.rank % 2 != 0, 200);
    other.join();
    return report + other_report;
  }) == "");
}

namespace {

// A user-defined op that runs `hook` once before it adds.
struct Hooked {
  std::function<void()> hook;
  std::atomic<int> calls{0};
};

void add_after_hook(void* context, void* dst, const void* a, const void* b, std::size_t count) noexcept {
  auto& hooked = *static_cast<Hooked*>(context);
  if (hooked.calls.fetch_add(1) == 0) hooked.hook();
  const auto* x = static_cast<const std::int32_t*>(a);
  const auto* y = static_cast<const std::int32_t*>(b);
  for (std::size_t i = 0; i < count; ++i) static_cast<std::int32_t*>(dst)[i] = x[i] + y[i];
}

}  // namespace

TEST_CASE("a user-defined op may start operations and test them", "[scheduler]") {
  World world(WorldTransport::inproc, 2);
  std::vector<Group> groups = make_groups(world, 8);
  CHECK(world.run([&](Member& member) -> std::string {
    std::string in_hook = "the hook was not run";
    Hooked hooked;
    hooked.hook = [&] {
      // Completes only if both ranks get here and the progress engine is free meanwhile.
      auto work = groups[member.rank].backend->start(barrier_call(), {});
      if (!work) {
        in_hook = work.status().to_string();
        return;
      }
      const auto deadline = Clock::now() + kPatience;
      while (!(*work)->test() && Clock::now() < deadline) std::this_thread::yield();
      in_hook = (*work)->test() ? "" : "the progress engine was not free";
    };
    std::vector<std::int32_t> input(100, 1), output(100);
    Call call = allreduce_of(input, output);
    call.op = ReduceOp::user_defined({add_after_hook, &hooked, true, 0});
    if (Status s = member.run(call, "recursive_doubling"); !s) return s.to_string();
    if (output != std::vector<std::int32_t>(100, 2)) return "wrong sums";
    return in_hook;
  }) == "");
}

TEST_CASE("a slow user-defined op holds up nobody else, and failure waits for it", "[scheduler]") {
  World world(WorldTransport::inproc, 2);
  std::vector<Group> groups = make_groups(world, 8);
  const bool fails = GENERATE(false, true);
  CAPTURE(fails);
  std::atomic<bool> has_begun{false}, may_end{false}, has_ended{false};
  const std::string report = world.run([&](Member& member) -> std::string {
    const Group& group = groups[member.rank];
    Hooked hooked;
    bool had_patience = true;
    hooked.hook = [&] {
      if (member.rank != 0) return;
      has_begun.store(true);
      const auto deadline = Clock::now() + kPatience;
      while (!may_end.load() && Clock::now() < deadline) std::this_thread::sleep_for(milliseconds(1));
      had_patience = may_end.load();
      has_ended.store(true);
    };
    std::vector<std::int32_t> input(100, 1), output(100);
    Call call = allreduce_of(input, output);
    call.op = ReduceOp::user_defined({add_after_hook, &hooked, true, 0});
    std::string other_report;
    std::thread other;
    if (member.rank == 0) {
      other = std::thread([&] {
        while (!has_begun.load()) std::this_thread::yield();
        for (int i = 0; i < 20; ++i) {
          if (Status s = group.run(barrier_call()); !s) other_report = s.to_string();
        }
        if (fails) member.group->fail(Status(StatusCode::aborted, "given up"));
        if (has_ended.load()) other_report += "the hook ended early";
        may_end.store(true);
      });
    }
    const auto work = member.backend->start(call, {"recursive_doubling"});
    Status s = work ? Status() : work.status();
    if (member.rank == 1) {
      for (int i = 0; i < 20 && s; ++i) s = group.run(barrier_call());
    }
    std::string result;
    if (s) s = (*work)->wait(Clock::now() + kPatience);
    if (member.rank == 0) {
      if (!has_ended.load()) result += "complete while the op was running; ";
      other.join();
      if (fails != (s.code() == StatusCode::aborted)) result += "unexpected: " + s.to_string();
    } else if (!s && !fails) {
      result += s.to_string();
    }
    return result + other_report + (had_patience ? "" : "the other thread was held up");
  });
  CHECK(report == "");
}

TEST_CASE("a sleeper is woken", "[scheduler]") {
  Engine::Options options;
  options.waiting.spin_polls = 0;
  options.waiting.yield_polls = 0;
  options.waiting.longest_sleep = std::chrono::hours(1);  // nothing but the bell ends a sleep in time
  const auto kind = GENERATE(WorldTransport::inproc, WorldTransport::shm);
  const auto p = GENERATE(2U, 3U);
  CAPTURE(static_cast<int>(kind), p);
  World world(kind, p, options);
  CHECK(world.run([&](Member& member) -> std::string {
    std::mt19937 random(member.rank);
    std::vector<std::int32_t> input(20000, 1), output(20000);
    for (int round = 0; round < 1000; ++round) {
      const auto pause = random() % 4;
      if (pause == 1) std::this_thread::yield();
      if (pause == 2) std::this_thread::sleep_for(std::chrono::microseconds(random() % 200));
      Status s =
          round % 8 == 7 ? member.run(allreduce_of(input, output), "ring") : member.run(barrier_call());
      if (!s) return fmt::format("round {}: {}", round, s.to_string());
    }
    return {};
  }) == "");
}

TEST_CASE("a partner out of range is refused", "[scheduler]") {
  World world(WorldTransport::inproc, 2);
  std::vector<std::int32_t> input(4), output(4);
  for (const Collective c : {Collective::broadcast, Collective::gather, Collective::send_recv}) {
    Call call = allreduce_of(input, output);
    call.collective = c;
    call.root = 2;
    CHECK(world.member(0).backend->start(call, {}).status().code() == StatusCode::invalid_argument);
  }
}

}  // namespace tutti::test
