// Each seeded fault is caught, with a message that names what a person has to look at.
#include "runtime/schedule/passes/fuse.hpp"
#include "runtime/schedule/passes/lower.hpp"
#include "tests/schedule/support.hpp"

using namespace tutti;
using namespace tutti::test;
using Catch::Matchers::Contains;
using Lines = std::vector<std::string>;

namespace {

// Rank r of a ring over 5 begins: 0 send input[r], 1 recv scratch.0[r-1], 2 reduce output[r-1], 3 send ...
std::vector<Schedule> ring() { return emit_row(Collective::allreduce, "ring", 5); }

std::vector<Schedule> lowered_two_shot(std::uint32_t p, bool in_place) {
  auto lowered = lower_for_shared_memory(emit_row(Collective::allreduce, "two_shot", p, in_place));
  INFO(lowered.status().message());
  REQUIRE(lowered.is_ok());
  return *std::move(lowered);
}

std::vector<Schedule> staged_one_shot(std::uint32_t p) {
  auto lowered = lower_for_shared_memory(emit_row(Collective::allreduce, "one_shot", p), Sharing::scratch);
  INFO(lowered.status().message());
  REQUIRE(lowered.is_ok());
  return *std::move(lowered);
}

// The number of the first line that begins so.
std::size_t find_line(const Lines& lines, std::string_view start) {
  for (std::size_t i = 0; i < lines.size(); ++i)
    if (lines[i].rfind(start, 0) == 0) return i;
  FAIL("no line starts with " << start);
  return 0;
}

}  // namespace

TEST_CASE("wrong chunk") {
  auto ranks = ring();
  ranks[2] = edit(ranks[2], [](Lines& lines) { lines[0] = "send input[0] to 3"; });
  CHECK_THAT(verdict(ranks),
             Contains("rank 2 step 0") && Contains("block 0 is taken as block 2") && Contains("rank 3"));
}

TEST_CASE("wrong peer") {
  auto ranks = ring();
  ranks[2] = edit(ranks[2], [](Lines& lines) { lines[0] = "send input[2] to 4"; });
  CHECK_THAT(verdict(ranks), Contains("rank 2 sends") && Contains("to rank") && Contains("messages"));
}

TEST_CASE("missing reduce") {
  auto ranks = ring();
  ranks[1] = edit(ranks[1], [](Lines& lines) { lines.erase(lines.begin() + 2); });
  CHECK_THAT(verdict(ranks), Contains("rank 1") && Contains("nobody has written"));
  ranks = emit_row(Collective::allreduce, "ring", 5,
                   true);  // in place something stands there: a sum lacks a part
  ranks[1] = edit(ranks[1], [](Lines& lines) { lines.erase(lines.begin() + 2); });
  CHECK_THAT(verdict(ranks),
             Contains("ends with the contribution") && Contains("block 0") && Contains("ranks 0-4"));
}

TEST_CASE("doubled reduce") {
  auto ranks = emit_row(Collective::allreduce, "ring", 5, true);
  ranks[1] = edit(ranks[1], [](Lines& lines) { lines.insert(lines.begin() + 3, lines[2]); });
  CHECK_THAT(verdict(ranks), Contains("rank 1 step 3") && Contains("contribution of rank 0 a second time"));
}

TEST_CASE("a round short") {
  auto ranks = ring();
  for (Schedule& s : ranks) s = edit(s, [](Lines& lines) { lines.resize(lines.size() - 2); });
  CHECK_THAT(verdict(ranks),
             Contains("rank 0 ends with") && Contains("output block 2") && Contains("ranks 0-4"));
}

TEST_CASE("swapped order in a channel") {
  auto ranks = ring();
  // The two last messages of the second phase change places at the sender only.
  ranks[3] = edit(ranks[3], [](Lines& lines) {
    std::swap(lines[find_line(lines, "send output[3]")], lines[find_line(lines, "send output[2]")]);
  });
  CHECK_THAT(verdict(ranks),
             Contains("rank 3") && (Contains("is taken as block") || Contains("nobody has written")));
}

TEST_CASE("missing dependency") {
  auto ranks = ring();
  ranks[1] = edit(
      ranks[1],
      [](Lines& lines) { lines[2] = "reduce output[0] = scratch.0[0] + input[0]"; },  // was: after 1
      false);
  CHECK_THAT(verdict(ranks), Contains("rank 1 step 2") && Contains("step 1") && Contains("scratch slot 0") &&
                                 Contains("dependency"));
}

TEST_CASE("cyclic wait") {
  // Everybody receives before sending what arrived: no message is ever on its way.
  auto ranks = build(Collective::broadcast, 3, 1, true, [](Builder& b) {
    b.recv((b.rank() + 2) % 3, b.output(0));
    b.send((b.rank() + 1) % 3, b.output(0));
  });
  CHECK_THAT(verdict(ranks), Contains("deadlock") && Contains("rank 0 step 0") && Contains("rank 1 step 0") &&
                                 Contains("rank 2 step 1") && Contains("Ranks that wait for ever: 0-2"));
}

TEST_CASE("step that overwrites a source it has still to read") {
  auto ranks = build(Collective::allgather, 1, 1, false, [](Builder& b) { b.copy(b.output(0), b.input(0)); });
  ranks[0].blocks = 1;
  ranks[0].scratch_slots = 4;
  ranks[0].segments = 3;
  ranks[0] = edit(ranks[0], [](Lines& lines) {
    lines = {"copy output[0+3] = input[0+3]", "copy scratch.1[0+2] = output[0+2]",
             "copy scratch.2[0+2] = scratch.1[0+2]"};
  });
  CHECK_THAT(verdict(ranks), Contains("step 2") && Contains("overlaps what it writes"));
}

TEST_CASE("bounds, windows and peers") {
  auto ranks = emit_row(Collective::reduce_scatter, "ring", 4);
  ranks[1].steps.back().dst.first = 2;  // its output holds block 1 only
  CHECK_THAT(verdict(ranks), Contains("rank 1") && Contains("output block 2") && Contains("does not hold"));
  ranks = ring();
  ranks[0].steps[0].peer = 5;
  CHECK_THAT(verdict(ranks), Contains("peer 5 of 5"));
  ranks = ring();
  ranks[0].scratch_slots = 1;
  CHECK_THAT(verdict(ranks), Contains("outside 1 scratch slots"));
  ranks = ring();
  ranks[0].sources[0].first = 99;
  CHECK_THAT(verdict(ranks), Contains("outside a grid of 5 atoms"));
}

TEST_CASE("lowered: overwriting what a peer may still read") {
  // In place, rank 1 adds block 1 from everybody's output. Without waiting for the others to enter or to
  // finish, its stores hit what they still read.
  auto ranks = build(Collective::allreduce, 2, 1, true, [](Builder&) {});
  for (Schedule& s : ranks) s.scratch_slots = 1;
  const auto lines_of = [](const char* peer, bool waits) {
    Lines lines = {"signal 1", std::string("wait 1 of ") + peer,
                   std::string("reduce scratch.0[0] = output[0] + output@") + peer + "[0]"};
    if (waits) lines.insert(lines.end(), {"signal 2", std::string("wait 2 of ") + peer});
    lines.push_back("copy output[0] = scratch.0[0]");
    return lines;
  };
  for (const bool waits : {true, false}) {
    std::vector<Schedule> both;
    both.push_back(edit(ranks[0], [&](Lines& lines) { lines = lines_of("1", waits); }));
    both.push_back(edit(ranks[1], [&](Lines& lines) { lines = lines_of("0", waits); }));
    if (waits) {
      CHECK(verdict(both).empty());
    } else {
      CHECK_THAT(verdict(both), Contains("output block 0 of rank") && Contains("may still") &&
                                    Contains("no signal and wait order them"));
    }
  }
}

TEST_CASE("lowered: every wait that is taken out is missed") {
  for (const bool in_place : {false, true}) {
    const auto ranks = lowered_two_shot(4, in_place);
    REQUIRE(verdict(ranks).empty());
    int waits = 0;
    for (std::uint32_t r = 0; r < ranks.size(); ++r) {
      for (std::size_t i = 0; i < ranks[r].steps.size(); ++i) {
        if (ranks[r].steps[i].verb != Verb::wait) continue;
        ++waits;
        auto broken = ranks;
        broken[r] = edit(ranks[r], [i](Lines& lines) { lines.erase(lines.begin() + static_cast<long>(i)); });
        CHECK_THAT(verdict(broken), Contains("may still") || Contains("has entered"));
      }
    }
    CHECK(waits == 4 * 6);  // two synchronisations with three peers each
  }
}

TEST_CASE("lowered: leaving before others are done, entering unannounced, sequences, deadlock") {
  const auto good = lowered_two_shot(3, false);
  auto ranks = good;
  ranks[0] = edit(good[0], [](Lines& lines) { lines.pop_back(); });
  CHECK_THAT(verdict(ranks), Contains("after rank 0 has left the operation"));

  ranks = good;
  ranks[1] = edit(good[1], [](Lines& lines) { lines.erase(lines.begin() + 1); });
  CHECK_THAT(verdict(ranks), Contains("rank 1") && Contains("has entered the operation"));

  ranks = good;
  ranks[2] = edit(good[2], [](Lines& lines) { lines[find_line(lines, "signal 2")] = "signal 3"; });
  CHECK_THAT(verdict(ranks), Contains("signal 3 where signal 2 is next"));
  ranks[2] = edit(good[2], [](Lines& lines) {
    lines.erase(lines.begin() + static_cast<long>(find_line(lines, "signal 2")));
  });
  CHECK_THAT(verdict(ranks), Contains("waits for signal 2 of rank 2, which sets 1"));

  ranks = good;
  for (Schedule& s : ranks) {
    s = edit(s, [](Lines& lines) {  // everybody waits before announcing itself
      std::rotate(lines.begin(), lines.begin() + 1, lines.begin() + 3);
    });
  }
  CHECK_THAT(verdict(ranks), Contains("deadlock") && Contains("wait 1") && Contains("to be signalled"));
}

TEST_CASE("a false mark of fusion") {
  auto ranks = emit_row(Collective::allreduce, "recursive_doubling", 4, true);
  for (std::uint32_t i = 0; i < ranks[0].steps.size(); ++i) {
    if (ranks[0].steps[i].verb != Verb::recv) continue;
    ranks[0].steps[i].fused_with =
        i + 1;  // the reduce waits for this rank's own send: consuming would deadlock
    break;
  }
  CHECK_THAT(verdict(ranks), Contains("rank 0") && Contains("fused") && Contains("not safe"));
}

TEST_CASE("staged: touching more than another rank's scratch") {
  const auto good = staged_one_shot(3);
  REQUIRE(verdict(good).empty());
  const auto last_of = [](const Lines& lines) { return lines.size() - 1; };
  auto ranks = good;
  ranks[1] = edit(good[1], [&](Lines& lines) {
    lines[last_of(lines)] = "reduce output[0] = input@0[0] + input[0] + scratch@2.0[0]";
  });
  CHECK_THAT(verdict(ranks), Contains("rank 1") && Contains("reads input block 0 of rank 0") &&
                                 Contains("staged ranks read each other's scratch and nothing else"));
  ranks[1] = edit(good[1], [&](Lines& lines) {
    lines[last_of(lines)] = "reduce output[0] = output@0[0] + input[0] + scratch@2.0[0]";
  });
  CHECK_THAT(verdict(ranks), Contains("rank 1") && Contains("reads output block 0 of rank 0") &&
                                 Contains("staged ranks read each other's scratch and nothing else"));
  ranks[1] = edit(good[1], [&](Lines& lines) { lines.push_back("copy scratch@0.0[0] = input[0]"); });
  CHECK_THAT(verdict(ranks), Contains("rank 1") && Contains("writes scratch slot 0 of rank 0") &&
                                 Contains("staged ranks read each other's scratch and nothing else"));
}

TEST_CASE("staged: hearing from all, claimed wrongly") {
  // The last step of rank 0 no longer needs rank 2: without its wait, nothing says that rank 2 has entered.
  auto ranks = build(Collective::broadcast, 3, 1, false, [](Builder& b) {
    if (b.rank() != 0) return b.recv(0, b.output(0));
    for (const std::uint32_t peer : {1U, 2U}) b.send(peer, b.input(0));
    b.copy(b.output(0), b.input(0));
  });
  auto lowered = lower_for_shared_memory(ranks, Sharing::scratch);
  REQUIRE(lowered.is_ok());
  REQUIRE(verdict(*lowered).empty());
  for (const Schedule& s : *lowered) CHECK_FALSE(s.hears_from_all);
  for (std::uint32_t r = 0; r < 3; ++r) {
    auto claimed = *lowered;
    claimed[r].hears_from_all = true;
    CHECK_THAT(verdict(claimed), Contains("rank " + std::to_string(r) + " claims to hear from all ranks") &&
                                     Contains("has entered"));
  }
  // An allreduce hears from all; not without the wait.
  auto reduced = staged_one_shot(3);
  for (const Schedule& s : reduced) CHECK(s.hears_from_all);
  reduced[1] = edit(reduced[1], [](Lines& lines) {
    lines.erase(lines.begin() + static_cast<long>(find_line(lines, "wait 1 of 2")));
    lines.back() = "reduce output[0] = scratch@0.0[0] + input[0]";
  });
  CHECK_THAT(verdict(reduced), Contains("rank 1"));
}

TEST_CASE("staged: every wait that is taken out is missed") {
  const auto good = staged_one_shot(4);
  for (std::uint32_t r = 0; r < 4; ++r) {
    for (std::size_t i = 0; i < good[r].steps.size(); ++i) {
      if (good[r].steps[i].verb != Verb::wait) continue;
      auto broken = good;
      broken[r] = edit(good[r], [i](Lines& lines) { lines.erase(lines.begin() + static_cast<long>(i)); });
      CHECK_THAT(verdict(broken), Contains("has entered") || Contains("order them"));
    }
  }
}
