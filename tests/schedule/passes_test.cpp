// Segmentation, fusion and the lowering for shared memory: what they promise beyond being right. That their
// results are right for every row is shown in catalog_test.cpp.
#include "runtime/schedule/passes/fuse.hpp"
#include "runtime/schedule/passes/lower.hpp"
#include "runtime/schedule/passes/segment.hpp"
#include "runtime/schedule/passes/stage.hpp"

#include <algorithm>

#include "tests/schedule/support.hpp"

using namespace tutti;
using namespace tutti::test;
using Catch::Matchers::Contains;

namespace {

Schedule segmented(const Schedule& s, std::uint32_t segments, std::uint32_t channels) {
  auto result = segment(s, segments, channels);
  INFO(result.status().message());
  REQUIRE(result.is_ok());
  return *std::move(result);
}

std::vector<std::string> lines_of(const Schedule& s) {
  std::vector<std::string> lines;
  for (Step step : s.steps) {
    step.dependency_count = 0;
    lines.push_back(to_text(s, step));
  }
  return lines;
}

// Loads and stores of one rank, in atoms: a step fused behind another loads nothing.
struct Traffic {
  std::uint64_t loads = 0, stores = 0;
};
Traffic traffic(const Schedule& s) {
  std::vector<bool> is_behind(s.steps.size());
  Traffic t;
  for (std::size_t i = 0; i < s.steps.size(); ++i) {
    const Step& step = s.steps[i];
    if (step.fused_with != kNotFused) is_behind[step.fused_with] = true;
    if (step.verb != Verb::copy && step.verb != Verb::reduce) continue;
    t.stores += step.dst.count;
    if (!is_behind[i]) t.loads += std::uint64_t{step.source_count} * step.dst.count;
  }
  return t;
}

}  // namespace

TEST_CASE("segmenting a ring sends segment 0 of the next round before reducing segment 1 of this one") {
  const auto ring = emit_row(Collective::allreduce, "ring", 4);
  const Schedule s = segmented(ring[1], 2, 1);
  CHECK(s.atoms() == 8);
  CHECK(s.segments == 2);
  CHECK(s.scratch_slots == 2 * ring[1].scratch_slots);
  const auto lines = lines_of(s);
  const auto place = [&](std::string_view line) {
    return std::find(lines.begin(), lines.end(), line) - lines.begin();
  };
  const auto first = place("reduce output[0] = scratch.0[0] + input[0]");
  const auto send = place("send output[0] to 2"),
             second = place("reduce output[1] = scratch.2[1] + input[1]");
  REQUIRE(second < static_cast<long>(lines.size()));
  CHECK(first < send);
  CHECK(send < second);
}

TEST_CASE("segments spread over channels, rounds and blocks sent stay") {
  auto ranks = emit_row(Collective::allreduce, "ring", 5);
  for (Schedule& s : ranks) s = segmented(s, 6, 3);
  CHECK(ranks[0].channels == 3);
  for (const Step& step : ranks[0].steps) {
    const Slice& any = step.verb == Verb::send ? ranks[0].sources_of(step)[0] : step.dst;
    CHECK(step.channel == any.first % 6 % 3);
  }
  const auto report = verify(ranks, Algebra::multiset);
  INFO(report.status().message());
  REQUIRE(report.is_ok());
  CHECK(report->rounds == 8);
  CHECK(report->max_sent_atoms == 8 * 6);
}

TEST_CASE("segment refuses what it cannot cut") {
  const Schedule ring = emit_row(Collective::allreduce, "ring", 3)[0];
  CHECK_THAT(segment(ring, 0).status().message(), Contains("at least one segment"));
  CHECK_THAT(segment(segmented(ring, 2, 1), 2).status().message(), Contains("segmented already"));
  CHECK_THAT(segment(ring, 1U << 30).status().message(), Contains("too many"));
  CHECK(segmented(ring, 1, 4) == ring);
}

TEST_CASE("fuse marks arrivals that one reduce consumes, and the send behind a reduce") {
  const Schedule s = fuse(emit_row(Collective::allreduce, "ring", 5)[2]);
  int arrivals = 0, results = 0;
  for (std::size_t i = 0; i < s.steps.size(); ++i) {
    const Step& step = s.steps[i];
    if (step.fused_with == kNotFused) continue;
    const Verb next = s.steps[step.fused_with].verb;
    arrivals += step.verb == Verb::recv && next == Verb::reduce ? 1 : 0;
    results += step.verb == Verb::reduce && next == Verb::send ? 1 : 0;
  }
  CHECK(arrivals == 4);
  CHECK(results == 4);
  Schedule plain = s;
  for (Step& step : plain.steps) step.fused_with = kNotFused;
  CHECK(plain == emit_row(Collective::allreduce, "ring", 5)[2]);
}

TEST_CASE("fuse leaves alone what waits for the rank's own send") {
  // In place the sum replaces what the peer is still taking: consuming the message only then would deadlock.
  const Schedule s = fuse(emit_row(Collective::allreduce, "recursive_doubling", 2, true)[0]);
  for (const Step& step : s.steps)
    if (step.verb == Verb::recv) CHECK(step.fused_with == kNotFused);
}

TEST_CASE("lowered two_shot: load q inputs, add once, store q outputs, two synchronisations, no scratch") {
  for (const bool in_place : {false, true}) {
    for (const std::uint32_t q : {2U, 3U, 5U, 8U}) {
      const auto ranks = emit_row(Collective::allreduce, "two_shot", q, in_place);
      const auto lowered = lower_for_shared_memory(ranks);
      INFO(lowered.status().message());
      REQUIRE(lowered.is_ok());
      CHECK(verdict(*lowered).empty());
      for (const Schedule& s : *lowered) {
        INFO(print_schedule(s));
        CHECK(traffic(s).loads == q);   // of m / q each: m in all
        CHECK(traffic(s).stores == q);  // so all ranks together move 2qm, the bound of shared memory
        CHECK(s.scratch_slots == 0);
        const auto count = [&](Verb verb) {
          return std::count_if(s.steps.begin(), s.steps.end(), [&](const Step& x) { return x.verb == verb; });
        };
        CHECK(count(Verb::reduce) == 1);
        CHECK(count(Verb::signal) == 2);  // fanout: one line serves all peers
        CHECK(count(Verb::wait) == 2 * (static_cast<long>(q) - 1));
        CHECK(count(Verb::send) + count(Verb::recv) == 0);
      }
    }
  }
}

TEST_CASE("lowered broadcast: one signal serves every peer that copies from the root") {
  const auto ranks = build(Collective::broadcast, 4, 1, true, [](Builder& b) {
    if (b.rank() != 0) return b.recv(0, b.output(0));
    for (std::uint32_t peer = 1; peer < 4; ++peer) b.send(peer, b.output(0));
  });
  const auto lowered = lower_for_shared_memory(ranks);
  REQUIRE(lowered.is_ok());
  CHECK(verdict(*lowered).empty());
  const auto root = lines_of((*lowered)[0]);
  CHECK(root == std::vector<std::string>{"signal 1", "wait 1 of 3", "wait 1 of 2", "wait 1 of 1"});
  CHECK(lines_of((*lowered)[2]) ==
        std::vector<std::string>{"wait 1 of 0", "copy output[0] = output@0[0]", "signal 1"});
}

TEST_CASE("staged alltoall: from 16 destinations on, one signal serves all of them") {
  for (const std::uint32_t p : {16U, 17U, 20U}) {
    const auto lowered =
        lower_for_shared_memory(emit_row(Collective::alltoall, "linear", p), Sharing::scratch);
    REQUIRE(lowered.is_ok());
    CHECK(verdict(*lowered).empty());
    for (const Schedule& s : *lowered) {
      const auto signals =
          std::ranges::count_if(s.steps, [](const Step& step) { return step.verb == Verb::signal; });
      CHECK(signals == (p < 17 ? p - 1 : 1));
    }
  }
}

TEST_CASE("lowering keeps the sums as they are and never deadlocks, with several channels too") {
  for (const char* name : {"ring", "two_shot", "recursive_doubling"}) {
    for (const std::uint32_t p : {2U, 3U, 4U, 7U}) {
      for (const std::uint32_t channels : {1U, 3U}) {
        auto ranks = emit_row(Collective::allreduce, name, p);
        for (Schedule& s : ranks) s = segmented(s, 3, channels);
        const auto lowered = lower_for_shared_memory(ranks);
        INFO(name << " p " << p << " channels " << channels << ": " << lowered.status().message());
        REQUIRE(lowered.is_ok());
        CHECK(verdict(*lowered).empty());
        const auto trees = verify(*lowered, Algebra::expression);
        REQUIRE(trees.is_ok());
        CHECK(trees->same_bits);
      }
    }
  }
}

TEST_CASE("a message from one channel that another channel uses is ordered by a dependency") {
  const auto ranks = build(Collective::broadcast, 2, 1, true, [](Builder& b) {
    if (b.rank() == 0) return b.send(1, b.output(0), 1);
    b.recv(0, b.scratch(0, 0), 1);
    b.copy(b.output(0), b.scratch(0, 0), 0);
  });
  REQUIRE(verdict(ranks).empty());
  const auto lowered = lower_for_shared_memory(ranks);
  REQUIRE(lowered.is_ok());
  CHECK(verdict(*lowered).empty());
}

TEST_CASE("lowering says what is wrong with its input") {
  auto ranks = emit_row(Collective::allreduce, "ring", 4);
  ranks[1].steps.pop_back();
  CHECK_THAT(lower_for_shared_memory(ranks).status().message(), Contains("messages"));
  const auto lowered = lower_for_shared_memory(emit_row(Collective::allreduce, "ring", 4));
  REQUIRE(lowered.is_ok());
  CHECK_THAT(lower_for_shared_memory(*lowered).status().message(), Contains("lowered already"));
}

TEST_CASE("stage: sends take their data from scratch, equal slices share one copy") {
  // Rank 0 sends its input to two peers, its output to one, and what lies in scratch already as it is.
  const auto ranks = build(Collective::allgather, 3, 3, false, [](Builder& b) {
    if (b.rank() != 0) {
      b.recv(0, b.output(0));
      return b.recv(0, b.output(0));
    }
    b.copy(b.scratch(0, 0), b.input(0));
    for (const std::uint32_t peer : {1U, 2U}) b.send(peer, b.input(0));
    b.send(1, b.scratch(0, 0));
    b.copy(b.output(0), b.input(0));
    b.send(2, b.output(0));
  });
  const Schedule s = stage(ranks[0]);
  CHECK(lines_of(s) == std::vector<std::string>{"copy scratch.0[0] = input[0]",
                                                "copy scratch.1[0] = input[0]", "send scratch.1[0] to 1",
                                                "send scratch.1[0] to 2", "send scratch.0[0] to 1",
                                                "copy output[0] = input[0]", "copy scratch.2[0] = output[0]",
                                                "send scratch.2[0] to 2"});
  CHECK(s.scratch_slots == 3);
  CHECK_FALSE(s.is_staged);  // still an authored schedule
  CHECK(stage(s) == s);      // nothing is left to do
  CHECK(stage(ranks[1]) == ranks[1]);
}

TEST_CASE("stage: a write ends the life of a copy, also when it hits a part of it") {
  const auto ranks = build(Collective::broadcast, 3, 4, true, [](Builder& b) {
    if (b.rank() != 1) return;
    b.send(0, b.output(0, 2));
    b.recv(2, b.output(1));
    b.send(0, b.output(0, 2));
    b.recv(2, b.output(3));
    b.send(2, b.output(0, 2));
    b.send(2, b.output(0));  // not the slice that was copied
  });
  CHECK(lines_of(stage(ranks[1])) ==
        std::vector<std::string>{
            "copy scratch.0[0+2] = output[0+2]", "send scratch.0[0+2] to 0", "recv output[1] from 2",
            "copy scratch.2[0+2] = output[0+2]", "send scratch.2[0+2] to 0", "recv output[3] from 2",
            "send scratch.2[0+2] to 2", "copy scratch.4[0] = output[0]", "send scratch.4[0] to 2"});
}

TEST_CASE("stage leaves lowered schedules as they are, and what it makes is proved like the original") {
  const auto ring = emit_row(Collective::allreduce, "ring", 4);
  const auto lowered = lower_for_shared_memory(ring);
  REQUIRE(lowered.is_ok());
  for (const Schedule& s : *lowered) CHECK(stage(s) == s);
  std::vector<Schedule> staged;
  for (const Schedule& s : ring) staged.push_back(stage(s));
  CHECK(verdict(staged).empty());
  const auto before = verify(ring, Algebra::multiset), after = verify(staged, Algebra::multiset);
  REQUIRE(after.is_ok());
  CHECK(before->rounds == after->rounds);
  CHECK(before->messages == after->messages);
}

TEST_CASE("in place is right only where nobody takes an input after its place may have been written") {
  struct Known {
    const char* name;
    Collective collective;
    bool is_mapped_right, is_staged_right;
  };
  // In the direct form a rank of the first two takes a peer's input when the peer may have stored its result
  // there; in the staged form it takes a copy. two_shot stores a block where all its inputs have been read.
  for (const Known& known : {Known{"linear", Collective::alltoall, false, true},
                             Known{"one_shot", Collective::allreduce, false, true},
                             Known{"two_shot", Collective::allreduce, true, true}}) {
    for (const Sharing sharing : {Sharing::buffers, Sharing::scratch}) {
      const bool is_staged = sharing == Sharing::scratch;
      const auto lowered = lower_for_shared_memory(emit_row(known.collective, known.name, 4), sharing);
      INFO(known.name << (is_staged ? " staged: " : " mapped: ") << lowered.status().message());
      REQUIRE(lowered.is_ok());
      CHECK(verdict(*lowered).empty());
      CHECK(is_right_in_place(*lowered) == (is_staged ? known.is_staged_right : known.is_mapped_right));
    }
  }
}

TEST_CASE("rows that do not run on control blocks, because in place they would be wrong, are these") {
  // By sharing: "collective row: sizes". A row that leaves this list runs on control blocks, one that joins it does
  // no longer: both are to be noticed.
  const auto wrong_in_place = [](Sharing sharing) {
    std::vector<std::string> list;
    for (const AlgorithmRow& row : catalog()) {
      std::string sizes;
      for (std::uint32_t p = 2; p <= 8; ++p) {
        bool is_right = true;
        for (std::uint32_t root = 0; root < (is_rooted(row.collective) ? p : 1U); ++root) {
          for (const Instance& instance : instances_of(row, p, root)) {
            const auto lowered = lower_for_shared_memory(*emit_all(row, instance), sharing);
            is_right = is_right && lowered && is_right_in_place(*lowered);
          }
        }
        if (!is_right) sizes += " " + std::to_string(p);
      }
      if (!sizes.empty())
        list.push_back(std::string(to_string(row.collective)) + " " + std::string(row.name) + ":" + sizes);
    }
    return list;
  };
  CHECK(wrong_in_place(Sharing::scratch) ==
        std::vector<std::string>{"alltoall bruck: 3 4 5 6 7 8", "exscan chain: 3 4 5 6 7 8"});
  CHECK(wrong_in_place(Sharing::buffers) ==
        std::vector<std::string>{
            "allreduce recursive_doubling: 2 3 4 5 6 7 8", "allreduce reduce_broadcast: 2 3 5",
            "allreduce recursive_multiplying: 2 3 4 5 6 7", "allreduce one_shot: 2 3 4 5 6 7 8",
            "allreduce census: 2 3 4 5 6 7 8", "allreduce hierarchical: 3 4 5 6 7 8",
            "alltoall linear: 2 3 4 5 6 7 8", "alltoall pairwise: 2 3 4 5 6 7 8",
            "alltoall bruck: 3 4 5 6 7 8", "alltoall hierarchical: 3 4 5 6 7 8",
            "barrier dissemination: 2 3 4 5 6 7 8", "barrier recursive_doubling: 2 3 4 5 6 7 8",
            "barrier hierarchical: 3 4 5 6 7 8", "scan recursive_doubling: 3 4 5 6 7 8",
            "exscan recursive_doubling: 3 4 5 6 7 8", "exscan chain: 3 4 5 6 7 8"});
}
