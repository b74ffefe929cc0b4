// Compiled lowered plans: what travels in lines, which stores are one pass, what is refused.
// Knows no control block and no transport.
#include <algorithm>
#include <string>
#include <vector>

#include "runtime/schedule/passes/segment.hpp"
#include "runtime/schedule/text.hpp"
#include "tests/scheduler/lowered_support.hpp"
#include "tests/support/catch.hpp"

namespace tutti::test {
namespace {

constexpr std::uint32_t kManyLines = 1000;
using Kind = LoweredStep::Kind;
using Catch::Matchers::Contains;

std::vector<Schedule> lowered(Collective collective, const char* name, std::uint32_t p, Sharing sharing) {
  const AlgorithmRow* row = find_algorithm(collective, name);
  REQUIRE(row != nullptr);
  auto ranks = lowered_row(*row, p, 0, sharing);
  REQUIRE(ranks.size() == p);
  return ranks;
}

LoweredPlan plan_of(const std::vector<Schedule>& ranks, std::uint32_t rank) {
  auto plan = compile_lowered(ranks, rank, kManyLines);
  INFO(plan.status().message());
  REQUIRE(plan.is_ok());
  return *std::move(plan);
}

// Schedules of two ranks with that many scratch slots; what `lines` says is the program of both.
std::vector<Schedule> written(std::uint32_t slots, const std::string& own, const std::string& other) {
  std::vector<Schedule> ranks;
  for (const std::string* lines : {&own, &other}) {
    auto s = parse_schedule("schedule broadcast rank " + std::to_string(ranks.size()) +
                            " of 2 staged blocks 4 segments 1 slots " + std::to_string(slots) +
                            " channels 1\n" + *lines);
    INFO(s.status().message());
    REQUIRE(s.is_ok());
    ranks.push_back(*std::move(s));
  }
  return ranks;
}

// The lines of all scratch slices of the plan, in order.
std::vector<std::uint32_t> scratch_lines(const LoweredPlan& plan) {
  std::vector<std::uint32_t> lines;
  for (const LoweredSlice& at : plan.slices) {
    if (at.slice.buffer == Buffer::scratch) lines.push_back(at.line);
  }
  return lines;
}

std::vector<Kind> kinds_of(const LoweredPlan& plan) {
  std::vector<Kind> kinds;
  for (const LoweredStep& step : plan.steps) kinds.push_back(step.kind);
  return kinds;
}

}  // namespace

TEST_CASE("what one signal makes known travels in its line", "[lowered]") {
  const auto ranks = lowered(Collective::allreduce, "one_shot", 3, Sharing::scratch);
  for (std::uint32_t r = 0; r < 3; ++r) {
    const LoweredPlan plan = plan_of(ranks, r);
    CHECK(kinds_of(plan) ==
          std::vector<Kind>{Kind::copy, Kind::signal, Kind::wait, Kind::wait, Kind::reduce});
    // Its own slot, and those of its peers: each in line 1 of its owner.
    CHECK(scratch_lines(plan) == std::vector<std::uint32_t>{1, 1, 1});
    CHECK(plan.line_count == 2);
    CHECK(plan.staging_slots == 1);
    CHECK(plan.steps[0].source_count == 1);
    CHECK(plan.steps[4].source_count == 3);
    CHECK(plan.shape.rank == r);
    CHECK(plan.shape.steps.empty());
    const auto owned = std::count_if(plan.slices.begin(), plan.slices.end(),
                                     [&](const LoweredSlice& at) { return at.owner == r; });
    CHECK(owned == 4);  // scratch and output written, input read twice
  }
}

TEST_CASE("what lies beside others, is written twice or is not what was signalled last stays in staging",
          "[lowered]") {
  const std::string reader = "wait 1 of 0\ncopy output[0] = scratch@0.0[0]\n";
  const auto lines = [](const std::vector<Schedule>& ranks) {
    return std::pair(scratch_lines(plan_of(ranks, 0)), scratch_lines(plan_of(ranks, 1)));
  };
  using Lines = std::vector<std::uint32_t>;
  // The last write before the signal is in the line, the one before it is not.
  CHECK(lines(written(2, "copy scratch.0[0] = input[0]\ncopy scratch.1[1] = input[1]\nsignal 1\n",
                      "wait 1 of 0\ncopy output[0] = scratch@0.0[0]\ncopy output[1] = scratch@0.1[1]\n")) ==
        std::pair(Lines{0, 1}, Lines{0, 1}));
  // Written twice: which signal a reader has seen would matter.
  CHECK(lines(written(1, "copy scratch.0[0] = input[0]\nsignal 1\ncopy scratch.0[0] = input[1]\nsignal 2\n",
                      reader)) == std::pair(Lines{0, 0}, Lines{0}));
  // Two slots at once.
  CHECK(lines(written(2, "copy scratch.0[0+2] = input[0+2]\nsignal 1\n", reader)) ==
        std::pair(Lines{0}, Lines{0}));
  // Written one by one, but somebody takes both at once.
  CHECK(lines(written(2, "copy scratch.0[0] = input[0]\nsignal 1\ncopy scratch.1[1] = input[1]\nsignal 2\n",
                      "wait 2 of 0\ncopy output[0+2] = scratch@0.0[0+2]\n")) ==
        std::pair(Lines{0, 0}, Lines{0}));
  // Taken one by one: each in the line of its own signal.
  CHECK(lines(written(2, "copy scratch.0[0] = input[0]\nsignal 1\ncopy scratch.1[1] = input[1]\nsignal 2\n",
                      "wait 2 of 0\ncopy output[0] = scratch@0.0[0]\ncopy output[1] = scratch@0.1[1]\n")) ==
        std::pair(Lines{1, 2}, Lines{1, 2}));
}

TEST_CASE("a sum and its stores to all ranks are one pass", "[lowered]") {
  for (const std::uint32_t p : {2U, 3U, 8U}) {
    const auto ranks = lowered(Collective::allreduce, "two_shot", p, Sharing::buffers);
    for (std::uint32_t r = 0; r < p; ++r) {
      const LoweredPlan plan = plan_of(ranks, r);
      CHECK(plan.staging_slots == 0);
      const auto sum = std::find_if(plan.steps.begin(), plan.steps.end(),
                                    [](const LoweredStep& step) { return step.kind == Kind::reduce; });
      REQUIRE(sum != plan.steps.end());
      CHECK(sum->source_count == p);
      REQUIRE(sum->more_stores == p - 1);
      std::vector<std::uint32_t> owners;
      for (std::uint32_t k = 0; k < p; ++k) {
        const LoweredStep& store = sum[k];
        CHECK(store.more_stores == p - 1 - k);
        owners.push_back(plan.slices[store.dst].owner);
      }
      std::sort(owners.begin(), owners.end());
      for (std::uint32_t k = 0; k < p; ++k) CHECK(owners[k] == k);
    }
  }
}

TEST_CASE("where buffers are mapped nobody signals that it has come: announcements tell", "[lowered]") {
  const auto count = [](const LoweredPlan& plan, Kind kind) {
    return std::count_if(plan.steps.begin(), plan.steps.end(),
                         [&](const LoweredStep& step) { return step.kind == kind; });
  };
  // Rank r: signal 1; wait 1 of all; sum and store to all; signal 2; wait 2 of all.
  for (const std::uint32_t p : {2U, 3U, 8U}) {
    const auto ranks = lowered(Collective::allreduce, "two_shot", p, Sharing::buffers);
    REQUIRE(ranks[0].steps[0].verb == Verb::signal);
    const LoweredPlan plan = plan_of(ranks, 0);
    CHECK(plan.steps[0].kind == Kind::reduce);
    CHECK(count(plan, Kind::signal) == 1);
    CHECK(count(plan, Kind::wait) == p - 1);
  }
  // Staged plans are not announced.
  const LoweredPlan plan = plan_of(lowered(Collective::barrier, "dissemination", 2, Sharing::scratch), 0);
  CHECK(count(plan, Kind::signal) == 1);
  CHECK(count(plan, Kind::wait) == 1);
}

TEST_CASE("numbers of plans are never used twice", "[lowered]") {
  const auto ranks = lowered(Collective::allreduce, "one_shot", 2, Sharing::scratch);
  const std::uint64_t first = plan_of(ranks, 0).number;
  CHECK(first != 0);
  CHECK(plan_of(ranks, 0).number != first);
}

TEST_CASE("several channels, too many lines, too many sources and authored schedules are no lowered plans",
          "[lowered]") {
  const AlgorithmRow* row = find_algorithm(Collective::allreduce, "ring");
  Instance instance;
  instance.size = 4;
  instance.params = default_params(*row);
  const auto authored = emit_all(*row, instance);
  REQUIRE(authored.is_ok());
  CHECK_THAT(compile_lowered(*authored, 0, kManyLines).status().message(), Contains("authored"));

  std::vector<Schedule> cut;
  for (const Schedule& s : *authored) cut.push_back(*segment(s, 4, 2));
  const auto on_two = lower_for_shared_memory(cut, Sharing::scratch);
  REQUIRE(on_two.is_ok());
  CHECK(compile_lowered(*on_two, 0, kManyLines).status().code() == StatusCode::unsupported);
  CHECK_THAT(compile_lowered(*on_two, 0, kManyLines).status().message(), Contains("several channels"));

  // All ranks refuse, also those with few lines of their own.
  auto ring = lowered(Collective::allreduce, "ring", 4, Sharing::scratch);
  const std::uint32_t lines = plan_of(ring, 0).line_count;
  CHECK(lines > 2);
  for (std::uint32_t r = 0; r < 4; ++r) {
    CHECK(plan_of(ring, r).line_count == lines);
    CHECK(compile_lowered(ring, r, lines).is_ok());
    CHECK(compile_lowered(ring, r, lines - 1).status().code() == StatusCode::unsupported);
  }

  auto wide = lowered(Collective::allreduce, "one_shot", 2, Sharing::scratch);
  for (Schedule& s : wide) {
    const std::vector<Slice> sources(256, Slice{Buffer::input, 0, 1, 1, 0, kSelf});
    Step step;
    step.verb = Verb::reduce;
    step.dst = {Buffer::output, 0, 1, 1, 0, kSelf};
    s.append(step, sources, {});
  }
  CHECK_THAT(compile_lowered(wide, 0, kManyLines).status().message(), Contains("255 sources"));
}

}  // namespace tutti::test
