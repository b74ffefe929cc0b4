// Cached calls: mixed with all others, interrupted by late ranks, in groups that fail.
// Knows no algorithm but by name.
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <thread>
#include <tuple>

#include <sched.h>

#include "tests/scheduler/mixed_operation.hpp"
#include "tests/scheduler/scheduler_support.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/test_fraction.hpp"

namespace tutti::test {
namespace {

// The signature of a mixed operation.
using Signature = std::tuple<Collective, std::uint32_t, std::uint64_t>;
Signature signature_of(const Call& call) { return {call.collective, call.root, call.count}; }

// Batches in which every signature is a cached call from its second operation on, wherever it can be one;
// some ranks are late now and then, so that it becomes an ordinary operation half-way.
std::string run_cached(Member& member, std::uint32_t batches, std::uint32_t* run_at_once) {
  std::mt19937 shared(815), own(member.rank);
  std::map<Signature, CachedCall*> known;
  std::uint32_t number = 0;
  for (std::uint32_t batch = 0; batch < batches; ++batch) {
    std::vector<Mixed> operations;
    const std::size_t in_flight = batch % 4 == 0 ? 1 + shared() % 6 : 1;
    operations.reserve(in_flight);
    for (std::size_t i = 0; i < in_flight; ++i) {
      Mixed& operation = operations.emplace_back(member, number++, shared);
      if (own() % 32 == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
      const auto found = known.find(signature_of(operation.call()));
      Status s = operation.start(found == known.end() ? nullptr : found->second);
      if (!s) return s.to_string();
      *run_at_once += operation.is_done_at_once() ? 1 : 0;
    }
    for (Mixed& operation : operations)
      if (std::string report = operation.finish(); !report.empty()) return report;
    const Call last = operations.back().call();
    if (CachedCall* call = member.backend->cached_call(last)) known[signature_of(last)] = call;
  }
  return {};
}

struct Made {
  Status status;
  bool is_taken = false;    // by the cached call
  bool is_at_once = false;  // and carried out there and then
};
// Makes the call, by `persistent` where there is one.
Made make(Member& member, CachedCall* cached, const Call& call) {
  WorkRef work;
  if (cached == nullptr || !cached->run(call, Completion::blocking, &work)) return {member.run(call)};
  if (!work) return {Status(), true, true};
  return {work->wait(Clock::now() + kPatience), true};
}

}  // namespace

TEST_CASE("cached calls mix with all others", "[cached]") {
  const auto kind = GENERATE(WorldTransport::inproc, WorldTransport::shm);
  const auto p = GENERATE(2U, 3U, 4U);
  const bool is_patient = GENERATE(false, true);
  CAPTURE(static_cast<int>(kind), p, is_patient);
  Engine::Options options = World::oversubscribed();
  if (is_patient) {
    options.waiting.line_polls = 4096;
    options.waiting.pauses_per_ns = 0.05;
    options.waiting.cross_llc_ns = p == 3 ? -1e9 : 1e9;  // whatever these cores are
  }
  World world(kind, p, options);
  std::vector<std::uint32_t> run_at_once(p);
  REQUIRE(world.run([&](Member& member) {
    return run_cached(member, is_selected(1) ? 800 : 100, &run_at_once[member.rank]);
  }) == "");
  // The last rank that comes to a call finds all others' lines there.
  CHECK(std::accumulate(run_at_once.begin(), run_at_once.end(), 0U) > 0);
  // Ranks that share CPUs have told where they wait, and only those.
  std::uint32_t told = 0;
  for (std::uint32_t r = 0; r < p; ++r) {
    for (const BlockKind size : kBlockKinds) {
      const ControlBlocks& control_blocks = world.member(r).group->shown_control_blocks(size);
      const bool is_linked = control_blocks.state() == ControlBlocks::State::linked;
      told += is_linked && control_blocks.head(r).cpu.load() != 0 ? 1 : 0;
    }
  }
  CHECK((told > 0) == !is_patient);
}

TEST_CASE("longer cached calls go piece by piece, by non-temporal stores, and give way to shared buffers",
          "[cached]") {
  const auto p = GENERATE(2U, 3U, 4U);
  const auto staging = GENERATE(StagingPolicy::cached, StagingPolicy::streamed);
  CAPTURE(p, static_cast<int>(staging));
  World::Adjust adjust;
  adjust.group = [&](std::uint32_t, GroupContext::Options& options) {
    options.staging = staging;
    options.lowered_limits.piece_bytes = 4096;
  };
  Engine::Options options = World::oversubscribed();
  options.waiting.line_polls = 4096;
  World world(WorldTransport::inproc, p, options, {}, adjust);
  std::vector<std::uint32_t> run_at_once(p), refused(p);
  REQUIRE(world.run([&](Member& member) -> std::string {
    std::uint32_t number = 0;
    // 8 KiB, which has no other plan for shared buffers; no multiple of a line; 64 KiB.
    for (const std::size_t count : {2048U, 4099U, 16384U}) {
      CachedCall* cached = nullptr;
      for (int i = 0; i < 24; ++i, ++number) {
        // Shared buffers on all ranks, on all but one, on none.
        const bool is_shared = i % 6 == 5 || (i % 6 == 4 && member.rank != 1);
        const WordBuffer input(member, is_shared, count), output(member, is_shared, count);
        for (std::size_t at = 0; at < count; ++at) input.words()[at] = value_of(member.rank, number, at);
        Call call;
        call.dtype = Dtype::u32;
        call.input = input.words().data();
        call.output = output.words().data();
        call.count = count;
        const Made made = make(member, cached, call);
        if (!made.status) return made.status.to_string();
        run_at_once[member.rank] += made.is_at_once ? 1 : 0;
        refused[member.rank] += cached != nullptr && !made.is_taken ? 1 : 0;
        for (std::size_t at = 0; at < count; ++at) {
          if (output.words()[at] != sum_of(p, number, at))
            return fmt::format("element {} of {} in call {}", at, count, number);
        }
        if (i == 1) cached = member.backend->cached_call(call);
        if (i >= 1 && cached == nullptr) return "not cached";
      }
    }
    return {};
  }) == "");
  CHECK(std::accumulate(run_at_once.begin(), run_at_once.end(), 0U) > 0);
  // A rank whose buffers are not shared needs to ask nobody; else it depends on the others.
  CHECK(refused[0] >= 2 * 8);
  CHECK(world.member(0).group->shown_control_blocks(BlockKind::bulk).direct_count() == 2 * 4);
}

TEST_CASE("cached calls of short blocks that are much together: through the caches, past them, measured",
          "[cached]") {
  const auto p = GENERATE(2U, 3U, 8U);
  const auto staging = GENERATE(StagingPolicy::cached, StagingPolicy::streamed, StagingPolicy::measured);
  const auto collective = GENERATE(Collective::alltoall, Collective::reduce_scatter);
  CAPTURE(p, static_cast<int>(staging), static_cast<int>(collective));
  World::Adjust adjust;
  adjust.group = [&](std::uint32_t, GroupContext::Options& options) { options.staging = staging; };
  World world(WorldTransport::inproc, p, World::oversubscribed(), {}, adjust);
  std::vector<std::uint32_t> run_at_once(p);
  REQUIRE(world.run([&](Member& member) -> std::string {
    std::uint32_t number = 0;
    // Blocks below the least copy, at it, above it, no multiple of a line, and at the least batch.
    for (const std::size_t count : {255U, 256U, 511U, 700U, 1024U}) {
      CachedCall* cached = nullptr;
      const bool is_sum = collective == Collective::reduce_scatter;
      std::vector<std::uint32_t> input(p * count), output(is_sum ? count : p * count);
      for (int i = 0; i < 48; ++i, ++number) {
        for (std::size_t at = 0; at < input.size(); ++at) input[at] = value_of(member.rank, number, at);
        Call call;
        call.collective = collective;
        call.dtype = Dtype::u32;
        call.input = input.data();
        call.output = output.data();
        call.count = count;
        const Made made = make(member, cached, call);
        if (!made.status) return made.status.to_string();
        run_at_once[member.rank] += made.is_at_once ? 1 : 0;
        for (std::size_t at = 0; at < output.size(); ++at) {
          const std::size_t own_block = member.rank * count + at % count;
          const std::uint32_t expected =
              is_sum ? sum_of(p, number, own_block)
                     : value_of(static_cast<std::uint32_t>(at / count), number, own_block);
          if (output[at] != expected) return fmt::format("element {} of {} in call {}", at, count, number);
        }
        if (i == 1) cached = member.backend->cached_call(call);
        if (i >= 1 && cached == nullptr) return "not cached";
      }
    }
    return {};
  }) == "");
  CHECK(std::accumulate(run_at_once.begin(), run_at_once.end(), 0U) > 0);
}

TEST_CASE("what a call stages in one epoch counts as one batch, as an operation and as a cached call",
          "[cached]") {
  constexpr std::uint32_t kRanks = 5;
  // Four blocks, none of which is a batch alone.
  constexpr std::size_t kCount = StagingStores::kLeastBytes / (kRanks - 1) / sizeof(std::uint32_t);
  World world(WorldTransport::inproc, kRanks, World::oversubscribed());
  std::vector<CachedCall*> cached(kRanks);
  const auto make_calls = [&](std::uint32_t calls) {
    return world.run([&](Member& member) -> std::string {
      std::vector<std::uint32_t> input(kRanks * kCount, member.rank), output(input.size());
      Call call;
      call.collective = Collective::alltoall;
      call.dtype = Dtype::u32;
      call.input = input.data();
      call.output = output.data();
      call.count = kCount;
      for (std::uint32_t i = 0; i < calls; ++i) {
        if (const Status s = make(member, cached[member.rank], call).status; !s) return s.to_string();
        if (i == 3) cached[member.rank] = member.backend->cached_call(call);
      }
      return cached[member.rank] == nullptr ? "not cached" : "";
    });
  };
  const auto is_timed_next = [&](std::uint32_t rank) {
    return world.member(rank).group->shown_control_blocks(BlockKind::small).stores().way().is_timed;
  };
  REQUIRE(make_calls(StagingStores::kTimedEvery - 2) == "");
  for (std::uint32_t r = 0; r < kRanks; ++r) CHECK_FALSE(is_timed_next(r));
  REQUIRE(make_calls(1) == "");
  for (std::uint32_t r = 0; r < kRanks; ++r) CHECK(is_timed_next(r));
}

TEST_CASE("every signature has a cached call of its own, up to a limit", "[cached]") {
  constexpr std::uint64_t kMost = 1024, kAsked = kMost + 8;  // SignatureTable::kMostEntries
  World world(WorldTransport::inproc, 2, World::oversubscribed());
  REQUIRE(world.run([&](Member& member) -> std::string {
    std::vector<std::uint32_t> input(kAsked, member.rank), output(kAsked);
    std::set<CachedCall*> known;
    for (std::uint64_t count = 1; count <= kAsked; ++count) {
      Call call;
      call.collective = Collective::allreduce;
      call.dtype = Dtype::u32;
      call.count = count;
      call.input = input.data();
      call.output = output.data();
      if (Status s = member.run(call); !s) return s.to_string();
      CachedCall* const cached = member.backend->cached_call(call);
      if ((cached != nullptr) != (count <= kMost)) return fmt::format("call {}", count);
      if (cached == nullptr) continue;
      if (!known.insert(cached).second) return fmt::format("call {} is another's", count);
      if (member.backend->cached_call(call) != cached) return fmt::format("call {} has two", count);
    }
    return {};
  }) == "");
}

TEST_CASE("a call is carried out as it is, whatever plans make room for its own", "[cached]") {
  constexpr std::uint32_t kRanks = 2;
  World world(WorldTransport::inproc, kRanks, World::oversubscribed());
  REQUIRE(world.run([&](Member& member) -> std::string {
    // Room for one plan: each call drops that of the one before.
    const auto backend = make_native_backend(*member.group, *member.selector, 1);
    std::vector<std::int32_t> input(8, 1), output(8);
    const Call call = allreduce_of(input, output);
    for (int i = 0; i < 3; ++i) {
      for (const std::string_view algorithm : {"ring", "one_shot", "", "recursive_doubling"}) {
        output.assign(output.size(), 0);
        auto work = backend->start(call, {algorithm});
        if (!work) return work.status().to_string();
        if (Status s = (*work)->wait(Clock::now() + kPatience); !s) return s.to_string();
        if (output != std::vector<std::int32_t>(8, kRanks)) return fmt::format("{}: wrong sum", algorithm);
      }
    }
    return {};
  }) == "");
}

TEST_CASE("a rank knows whether those that wait on a CPU have published", "[cached]") {
  World world(WorldTransport::inproc, 3);
  REQUIRE(world.run([&](Member& member) -> std::string {
    std::vector<std::int32_t> vector(8, 1);
    Status s = member.run(allreduce_of(vector, vector));
    return s ? "" : s.to_string();
  }) == "");
  const ControlBlocks& control_blocks = world.member(0).group->shown_control_blocks(BlockKind::tiny);
  REQUIRE(control_blocks.state() == ControlBlocks::State::linked);
  constexpr std::uint32_t kHere = 5, kElsewhere = 6, kLine = 1;
  constexpr std::uint64_t kEpoch = 815;
  const ControlBlocks::Area area = control_blocks.area(0, 2);
  const auto have_signaled = [&] { return control_blocks.have_signaled_on(kHere, area, kLine, kEpoch); };
  // Nobody else waits here, whatever the own line says.
  control_blocks.head(0).cpu = kHere;
  control_blocks.head(1).cpu = kElsewhere;
  control_blocks.head(2).cpu = 0;
  CHECK(have_signaled());
  control_blocks.head(1).cpu = kHere;
  CHECK_FALSE(have_signaled());
  control_blocks.lines_at(1, area)[kLine].sequence = kEpoch;
  CHECK(have_signaled());
  control_blocks.head(2).cpu = kHere;
  CHECK_FALSE(have_signaled());
  control_blocks.lines_at(2, area)[kLine + 1].sequence = kEpoch;  // another line
  control_blocks.lines_at(2, area)[kLine].sequence = kEpoch - 1;  // another call
  CHECK_FALSE(have_signaled());
  control_blocks.lines_at(2, area)[kLine].sequence = kEpoch;
  CHECK(have_signaled());
}

TEST_CASE("a cached call tells of ranks that call something else, and of the group's failure", "[cached]") {
  World world(WorldTransport::inproc, 2);
  CHECK(world.run([&](Member& member) -> std::string {
    std::vector<std::int32_t> input(8, 1), output(8);
    Call call = allreduce_of(input, output);
    for (int i = 0; i < 2; ++i) {
      if (Status s = member.run(call); !s) return s.to_string();
    }
    CachedCall* const cached = member.backend->cached_call(call);
    if (cached == nullptr) return "an allreduce of 8 words is no cached call";
    if (member.rank == 1) call.collective = Collective::reduce;
    WorkRef work;
    Status status;
    if (member.rank == 0) {
      if (!cached->run(call, Completion::blocking, &work)) return "not run";
      status = work ? work->wait(Clock::now() + kPatience) : Status();
    } else {
      status = member.run(call);
    }
    // Rank 1 sends to the root and may be through before it hears of it.
    if (member.rank == 0 && status.code() != StatusCode::mismatch)
      return "no mismatch: " + status.to_string();
    if (member.rank == 0 && cached->run(call, Completion::blocking, &work))
      return "run in a group that has failed";
    return {};
  }) == "");
}

}  // namespace tutti::test
