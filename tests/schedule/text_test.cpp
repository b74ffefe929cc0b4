// The text form survives round trips, rolled or not; mistakes are pointed at; exports look as other tools
// want.
#include "runtime/schedule/export.hpp"
#include "runtime/schedule/loop_form.hpp"
#include "runtime/schedule/passes/lower.hpp"
#include "runtime/schedule/passes/segment.hpp"
#include "tests/schedule/support.hpp"

#include <algorithm>

using namespace tutti;
using namespace tutti::test;
using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;

namespace {

void check_round_trips(const Schedule& s) {
  for (const TextForm form : {TextForm::plain, TextForm::rolled}) {
    const std::string text = print_schedule(s, form);
    const auto again = parse_schedule(text);
    INFO(text << again.status().message());
    REQUIRE(again.is_ok());
    REQUIRE(*again == s);
  }
  const auto unrolled = unroll(roll(s));
  REQUIRE(unrolled.is_ok());
  REQUIRE(*unrolled == s);
}

long line_count(const std::string& text) { return std::count(text.begin(), text.end(), '\n'); }

std::string mistake(const std::string& steps) {
  return parse_schedule("schedule allreduce rank 0 of 4 blocks 4 segments 1 slots 2 channels 2\n" + steps)
      .status()
      .message();
}

}  // namespace

TEST_CASE("every row prints, rolls and parses back exactly") {
  for (const AlgorithmRow& row : catalog()) {
    for (const std::uint32_t p : {1U, 4U, 5U, 12U}) {
      for (const Instance& instance : instances_of(row, p)) {
        const auto ranks = emit_all(row, instance);
        INFO(to_string(row.collective) << " " << row.name << " " << ranks.status().message());
        REQUIRE(ranks.is_ok());
        for (const Schedule& s : *ranks) check_round_trips(s);
        auto cut = segment(ranks->back(), 3, 2);
        REQUIRE(cut.is_ok());
        check_round_trips(*cut);
        const auto lowered = lower_for_shared_memory(*ranks);
        INFO(lowered.status().message());
        REQUIRE(lowered.is_ok());
        check_round_trips(lowered->front());
      }
    }
  }
}

TEST_CASE("a ring of any size is O(1) lines in loop form") {
  const auto lines = [](std::uint32_t p) {
    return line_count(print_schedule(emit_row(Collective::allreduce, "ring", p)[1], TextForm::rolled));
  };
  CHECK(lines(100) < 40);
  CHECK(lines(100) == lines(200));
  CHECK(line_count(print_schedule(emit_row(Collective::allreduce, "ring", 100)[1])) == 1 + 99 * 5);
}

TEST_CASE("several schedules, comments, blank lines and carriage returns") {
  std::string text = "# all ranks\n\n";
  const auto ranks = emit_row(Collective::allreduce, "two_shot", 3);
  for (const Schedule& s : ranks) text += print_schedule(s) + "   # done\r\n";
  const auto again = parse_schedules(text);
  INFO(again.status().message());
  REQUIRE(again.is_ok());
  CHECK(*again == ranks);
}

TEST_CASE("the former verbs publish and await are read as signal and wait") {
  const std::string head = "schedule barrier rank 0 of 2 blocks 1 segments 1 slots 0 channels 1\n";
  const auto now = parse_schedule(head + "signal 1\nwait 1 of 1\n");
  const auto before = parse_schedule(head + "publish 1\nawait 1 of 1\n");
  INFO(now.status().message() << before.status().message());
  REQUIRE(now.is_ok());
  REQUIRE(before.is_ok());
  CHECK(*before == *now);
  CHECK_THAT(print_schedule(*before), Contains("signal 1") && Contains("wait 1 of 1"));
}

TEST_CASE("mistakes name line, column and what would have been right") {
  CHECK_THAT(mistake("sned input[0] to 1"), StartsWith("line 2, column 1: expected send, recv"));
  CHECK_THAT(mistake("send input[0] too 1"), StartsWith("line 2, column 15: expected 'to', found 'too'"));
  CHECK_THAT(mistake("send input[4] to 1"), StartsWith("line 2, column 12: expected an atom (0-3)"));
  CHECK_THAT(mistake("send input[0] to 4"), Contains("column 18") && Contains("a rank (0-3)"));
  CHECK_THAT(mistake("copy output[0] input[0]"), Contains("column 16") && Contains("'='"));
  CHECK_THAT(mistake("recv scratch.2[0] from 1"), Contains("a scratch slot (0-1)"));
  CHECK_THAT(mistake("send input[0] to 1 on 2"), Contains("a channel (0-1)"));
  CHECK_THAT(mistake("send input[0] to 1 after 0"), Contains("this is the first step"));
  CHECK_THAT(mistake("send input[0] to 1 now"), Contains("column 20") && Contains("end of the line"));
  CHECK_THAT(mistake("3: send input[0] to 1"), Contains("step number 0"));
  CHECK_THAT(mistake("send input[0~1] to 1"), Contains("in no loop"));
  CHECK_THAT(
      parse_schedule(
          "schedule barrier rank 0 of 1 blocks 1 segments 1 slots 0 channels 1\ncopy scratch.0[0] = input[0]")
          .status()
          .message(),
      Contains("column 14") && Contains("0 slots"));
  CHECK_THAT(mistake("end"), Contains("no loop is open"));
  CHECK_THAT(mistake("repeat 3\nsend input[0] to 1"), Contains("'end' is missing"));
  CHECK_THAT(mistake("repeat 3\nrepeat 2"), Contains("do not nest"));
  CHECK_THAT(mistake("repeat 3\nend"), Contains("a step before 'end'"));
  CHECK_THAT(mistake("repeat 3\nsend scratch.0~1[0] to 1 after -4\nend"), Contains("leaves its range"));
  CHECK_THAT(mistake("repeat 1000000\nsend input[0] to 1\nsend input[0] to 1\nend"), Contains("more than"));
  CHECK_THAT(mistake("send input[99999999999] to 1"), Contains("an atom (0-3)"));
  CHECK_THAT(parse_schedule("schedule allreduces").status().message(),
             Contains("column 10") && Contains("a collective"));
  CHECK_THAT(parse_schedule("").status().message(), Contains("expected one schedule, found 0"));
  CHECK_THAT(parse_schedule("send input[0] to 1").status().message(), Contains("'schedule'"));
}

TEST_CASE("GOAL: labels, sizes, tags, dependencies and the order of a channel") {
  const auto ranks = emit_row(Collective::allreduce, "ring", 2);
  const auto goal = export_goal(ranks, {64, 1024, 0});
  REQUIRE(goal.is_ok());
  INFO(*goal);
  CHECK_THAT(
      *goal,
      StartsWith(
          "num_ranks 2\n\nrank 0 {\nl1: send 64b to 1 tag 0\nl2: recv 64b from 1 tag 0\nl2 irequires l1\n"
          "l3: calc 64\nl3 requires l2\n"));
  CHECK_THAT(*goal, Contains("l4 requires l3") && Contains("rank 1 {"));
  const auto lowered = lower_for_shared_memory(ranks);
  REQUIRE(lowered.is_ok());
  CHECK(export_goal(*lowered).status().code() == StatusCode::unsupported);
}

TEST_CASE("Graphviz: a cluster per rank and an edge per message") {
  const auto ranks = emit_row(Collective::allreduce, "ring", 3);
  const std::string dot = export_dot(ranks);
  CHECK_THAT(dot,
             StartsWith("digraph schedule {") && Contains("cluster_2") && Contains("0: send input[0] to 1"));
  std::size_t messages = 0;
  for (std::size_t at = dot.find("color=blue"); at != std::string::npos; at = dot.find("color=blue", at + 1))
    ++messages;
  CHECK(messages == 3 * 4);
}
