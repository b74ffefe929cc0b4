// Lowered operations under way: control blocks that are refused, left and reaped, many operations in flight, ranks
// that leave or fail while others touch their buffers. Knows no algorithm but by name.
#include <algorithm>
#include <atomic>
#include <barrier>
#include <cstring>
#include <random>

#include "tests/scheduler/lowered_support.hpp"
#include "tests/scheduler/mixed_operation.hpp"
#include "tests/scheduler/scheduler_support.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/test_fraction.hpp"

namespace tutti::test {
namespace {

// Batches of mixed operations in flight, waited for in an order of this rank's own.
std::string run_mixed(Member& member, std::uint32_t batches) {
  std::mt19937 shared(4711), own(member.rank);
  std::uint32_t number = 0;
  for (std::uint32_t batch = 0; batch < batches; ++batch) {
    std::vector<Mixed> operations;
    const std::size_t in_flight = 1 + shared() % 24;
    operations.reserve(in_flight);
    for (std::size_t i = 0; i < in_flight; ++i) {
      operations.emplace_back(member, number++, shared);
      if (Status s = operations.back().start(); !s) return s.to_string();
      if (own() % 16 == 0) std::this_thread::yield();
    }
    std::vector<Mixed*> order;
    for (Mixed& operation : operations) order.push_back(&operation);
    if (batch % 3 != 0) std::shuffle(order.begin(), order.end(), own);
    std::string wrong;
    for (Mixed* operation : order) {
      // The others' buffers must outlive a failure, too: go on.
      if (std::string report = operation->finish(); wrong.empty()) wrong = report;
    }
    if (!wrong.empty()) return wrong;
  }
  return {};
}

// A big allreduce of words that are all shared; `limits` of the usual kind map it.
constexpr std::size_t kBigCount = 200000;
Call big_allreduce(const WordBuffer& input, const WordBuffer& output) {
  Call call;
  call.dtype = Dtype::u32;
  call.input = input.words().data();
  call.output = output.words().data();
  call.count = input.words().size();
  return call;
}

// The payload that the rank has published in the last epoch of a slot, by its first word; 0 if there is none.
std::uint32_t published_word(const ControlBlocks& control_blocks, std::uint32_t rank, std::uint32_t slot) {
  const std::uint64_t epoch = control_blocks.epoch(slot);
  const FlagLine* const lines = control_blocks.lines_at(rank, control_blocks.area(slot, epoch));
  for (std::uint32_t line = 1; line < control_blocks.shape().lines; ++line) {
    if (lines[line].sequence.load() != epoch) continue;
    std::uint32_t word = 0;
    std::memcpy(&word, lines[line].payload.data(), sizeof word);
    return word;
  }
  return 0;
}

ControlBlocks::State state_of(const Member& member, BlockKind kind) {
  return member.group->shown_control_blocks(kind).state();
}

}  // namespace

TEST_CASE("two ranks write an area in turns, more write their own", "[lowered]") {
  const auto kind = GENERATE(WorldTransport::inproc, WorldTransport::shm);
  const auto p = GENERATE(2U, 3U);
  CAPTURE(static_cast<int>(kind), p);
  World world(kind, p);
  constexpr std::uint32_t kCalls = 5 * GroupContext::kSlots;
  REQUIRE(world.run([&](Member& member) -> std::string {
    const ControlBlocks& control_blocks = member.group->shown_control_blocks(BlockKind::tiny);
    for (std::uint32_t call = 0; call < kCalls; ++call) {
      std::vector<std::int32_t> input(8, static_cast<std::int32_t>(100 + member.rank)), output(8);
      if (Status s = member.run(allreduce_of(input, output)); !s) return s.to_string();
    }
    // All ranks find a rank's data in one place, whichever control block that is.
    std::uint32_t looked = 0;
    for (std::uint32_t slot = 0; slot < control_blocks.shape().slots; ++slot) {
      for (std::uint32_t r = 0; r < p; ++r) {
        const std::uint32_t word = published_word(control_blocks, r, slot);
        if (word != 0 && word != 100 + r) return fmt::format("slot {}: {} from rank {}", slot, word, r);
        looked += word != 0 ? 1 : 0;
      }
    }
    if (looked == 0) return "no payload anywhere";
    for (std::uint64_t epoch = 1; epoch <= 4; ++epoch) {
      const ControlBlocks::Area now = control_blocks.area(1, epoch), next = control_blocks.area(1, epoch + 2);
      for (std::uint32_t r = 0; r < p; ++r) {
        const std::uint32_t reader = p == 2 ? 1 - r : r;
        if (control_blocks.lines_at(r, next) != control_blocks.lines_at(reader, now)) return "another place";
      }
    }
    return {};
  }) == "");
}

TEST_CASE("mixed operations in flight keep their areas apart", "[lowered]") {
  const auto kind = GENERATE(WorldTransport::inproc, WorldTransport::shm);
  const auto p = GENERATE(2U, 3U, 4U);
  CAPTURE(static_cast<int>(kind), p);
  World world(kind, p);
  REQUIRE(world.run([&](Member& member) { return run_mixed(member, is_selected(1) ? 250 : 25); }) == "");
  for (std::uint32_t r = 0; r < p; ++r) {
    for (const BlockKind size : kBlockKinds)
      CHECK(state_of(world.member(r), size) == ControlBlocks::State::linked);
  }
}

TEST_CASE("where one rank has no memory for a control block all ranks fall back to messages", "[lowered]") {
  const auto kind = GENERATE(WorldTransport::inproc, WorldTransport::shm);
  const auto kinds_with_room = GENERATE(0U, 1U, 2U);
  const auto poor = GENERATE(0U, 2U);
  CAPTURE(static_cast<int>(kind), kinds_with_room, poor);
  const GroupContext::Options usual;
  World::Adjust adjust;
  adjust.memory = [&](std::uint32_t rank, MemoryOptions& options) {
    if (rank == poor) {
      // Buffers of the calls lie there, too.
      options.heap_bytes = kinds_with_room == 0 ? 4096 : 65536;
      for (std::uint32_t i = 0; i < kinds_with_room; ++i)
        options.heap_bytes += usual.control_blocks[i].total_bytes();
    }
  };
  World world(kind, 3, World::oversubscribed(), {}, adjust);
  REQUIRE(world.run([&](Member& member) { return run_mixed(member, 20); }) == "");
  for (std::uint32_t r = 0; r < 3; ++r) {
    for (std::uint32_t i = 0; i < kBlockKinds.size(); ++i)
      CHECK(state_of(world.member(r), kBlockKinds[i]) ==
            (i < kinds_with_room ? ControlBlocks::State::linked : ControlBlocks::State::refused));
  }
}

TEST_CASE("control blocks are given back when all peers have left, also those that were refused",
          "[lowered]") {
  const auto kind = GENERATE(WorldTransport::inproc, WorldTransport::shm);
  const bool has_poor_rank = GENERATE(false, true);
  CAPTURE(static_cast<int>(kind), has_poor_rank);
  constexpr std::uint32_t kRanks = 3;
  const GroupContext::Options usual;
  World::Adjust adjust;
  // The usual heap has room for the control blocks of two groups at once.
  const std::size_t heap_bytes = 2 * usual.shape(BlockKind::tiny).total_bytes() + 8192;
  adjust.memory = [&](std::uint32_t rank, MemoryOptions& options) {
    options.heap_bytes = has_poor_rank && rank == 1 ? 4096 : heap_bytes;
  };
  World world(kind, kRanks, World::oversubscribed(), {}, adjust);
  std::barrier<> all_gone(kRanks);
  std::vector<std::vector<Group>> groups;
  for (std::uint64_t n = 0; n < 12; ++n) groups.push_back(make_groups(world, 100 + n));
  const auto wanted = has_poor_rank ? ControlBlocks::State::refused : ControlBlocks::State::linked;
  CHECK(world.run([&](Member& member) -> std::string {
    std::string wrong;
    for (std::size_t n = 0; n < groups.size(); ++n) {
      Group& group = groups[n][member.rank];
      std::vector<std::int32_t> vector(8, static_cast<std::int32_t>(n));
      Call call = allreduce_of(vector, vector);
      call.collective = Collective::broadcast;  // its root may leave first
      call.in_place = true;
      call.root = static_cast<std::uint32_t>(n % kRanks);
      if (Status s = group.run(call); !s && wrong.empty()) wrong = s.to_string();
      if (group.context->shown_control_blocks(BlockKind::tiny).state() != wanted && wrong.empty())
        wrong = fmt::format("group {} has other control blocks than wanted", n);
      group.backend.reset();
      group.context.reset();
      all_gone.arrive_and_wait();
    }
    // Control blocks that a peer of the last group may have seen are given back when the next is made; refused ones
    // at once.
    if (has_poor_rank && member.rank != 1) {
      SharedHeap* heap = member.engine->transport(0).caps().heap;
      const auto all = heap->allocate(heap_bytes);
      if (!all) return wrong + all.status().to_string();
      heap->release(*all);
    }
    return wrong;
  }) == "");
}

TEST_CASE("who is through with a mapped operation may leave while others still finish it", "[lowered]") {
  World world(WorldTransport::inproc, 4);
  std::vector<WordBuffer> buffers;
  std::vector<WorkRef> works;
  const auto start_all = [&](std::initializer_list<std::uint32_t> order) {
    for (const std::uint32_t r : order) {
      Call call;
      call.collective = Collective::broadcast;
      call.dtype = Dtype::u32;
      call.in_place = true;
      call.input = call.output = buffers[r].words().data();
      call.count = kBigCount;
      auto work = world.member(r).backend->start(call, {"chain"});
      REQUIRE(work.is_ok());
      works[r] = *std::move(work);
    }
  };
  for (std::uint32_t r = 0; r < 4; ++r) buffers.emplace_back(world.member(r), true, kBigCount);
  works.resize(4);
  // One thread plays all ranks. The first operation links the control blocks.
  const auto drive = [&](std::initializer_list<std::uint32_t> ranks, std::uint32_t until) {
    const auto deadline = Clock::now() + kPatience;
    while (!works[until]->test() && Clock::now() < deadline)
      for (const std::uint32_t r : ranks) works[r]->test();
    return works[until]->test();
  };
  start_all({0, 1, 2, 3});
  for (std::uint32_t r = 0; r < 4; ++r) REQUIRE(drive({0, 1, 2, 3}, r));
  const std::uint64_t before = epochs_of(world.member(3));
  // The last of the chain announces its buffers and then stays behind; the first is through and leaves.
  std::fill(buffers[0].words().begin(), buffers[0].words().end(), 77U);
  start_all({3, 2, 1, 0});
  REQUIRE(drive({0, 1, 2}, 0));
  CHECK(!works[3]->is_complete());
  world.member(0).backend.reset();
  world.member(0).group.reset();
  for (const std::uint32_t r : {1U, 2U, 3U}) {
    REQUIRE(drive({1, 2, 3}, r));
    CHECK(works[r]->status().to_string() == Status().to_string());
    CHECK(std::count(buffers[r].words().begin(), buffers[r].words().end(), 77U) == kBigCount);
  }
  CHECK(epochs_of(world.member(3)) == before + 1);
  CHECK(direct_epochs_of(world.member(3)) > 0);
}

TEST_CASE("a rank that leaves while others wait for it in a lowered operation is named", "[lowered]") {
  const auto kind = GENERATE(WorldTransport::inproc, WorldTransport::shm);
  const std::size_t count = GENERATE(std::size_t{4}, std::size_t{3000}, kBigCount);
  const bool is_mapped = GENERATE(false, true);
  CAPTURE(static_cast<int>(kind), count, is_mapped);
  World world(kind, 2);
  const std::string report = world.run([&](Member& member) -> std::string {
    const WordBuffer input(member, is_mapped, count), output(member, is_mapped, count);
    const Call call = big_allreduce(input, output);
    if (Status s = member.run(call); !s) return s.to_string();
    if (member.rank == 1) {
      member.backend.reset();
      member.group.reset();
      return {};
    }
    const Status s = member.run(call);
    if (s.code() != StatusCode::peer_failed || s.peer() != 1) return "not named: " + s.to_string();
    return {};
  });
  CHECK(report == "");
}

TEST_CASE("a group that fails during mapped operations lets nobody touch its buffers", "[lowered]") {
  const auto kind = GENERATE(WorldTransport::inproc, WorldTransport::shm);
  const auto p = GENERATE(2U, 3U);
  const std::uint32_t rounds = is_selected(1) ? 20 : 4;
  for (std::uint32_t round = 0; round < rounds; ++round) {
    CAPTURE(static_cast<int>(kind), p, round);
    World world(kind, p);
    std::atomic<bool> is_running{false};
    std::atomic<std::uint32_t> survivors{p - 1};
    const std::uint32_t victim = round % p;
    const Status cause(StatusCode::aborted, "enough of this");
    std::thread other([&] {
      while (!is_running.load()) std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::microseconds(round * 150));
      world.member(victim).group->fail(cause);
    });
    const std::string report = world.run([&](Member& member) -> std::string {
      const WordBuffer input(member, true, kBigCount), output(member, true, kBigCount);
      std::fill(input.words().begin(), input.words().end(), 1U);
      const Call call = big_allreduce(input, output);
      Status s;
      bool is_refused = false;  // the group had failed before the call: then nothing was under way
      do {
        const auto work = member.backend->start(call, {});
        is_refused = !work;
        s = work ? (*work)->wait(Clock::now() + kPatience) : work.status();
        is_running.store(true);
      } while (s);
      std::string wrong;
      if (member.rank == victim) {
        if (s.message() != cause.message()) wrong = "another cause: " + s.to_string();
        // The buffers are the caller's again, while its peers find out.
        std::fill(input.words().begin(), input.words().end(), 0xabababU);
        std::fill(output.words().begin(), output.words().end(), 0xcdcdcdU);
        // A group with nothing under way has nothing to close; the group layer tells the others.
        for (std::uint32_t r = 0; r < p && is_refused; ++r) world.member(r).group->fail(cause);
        const auto patience = Clock::now() + kPatience;
        while (survivors.load() != 0 && Clock::now() < patience) std::this_thread::yield();
        const auto stay = [](const WordBuffer& buffer, std::uint32_t word) {
          return std::count(buffer.words().begin(), buffer.words().end(), word) == kBigCount;
        };
        if (survivors.load() != 0) wrong += "; the others do not notice";
        if (!stay(input, 0xabababU) || !stay(output, 0xcdcdcdU)) wrong += "; a buffer was touched";
      } else {
        if (s.code() != StatusCode::peer_failed && s.message() != cause.message())
          wrong = "unexpected: " + s.to_string();
        // Others wait for this one in their turn.
        member.group->fail(s);
        survivors.fetch_sub(1);
      }
      return wrong;
    });
    other.join();
    REQUIRE(report == "");
  }
}

}  // namespace tutti::test
