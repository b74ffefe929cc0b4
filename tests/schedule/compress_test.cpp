// Compression: every row that adds stays proved, rounds as often as the documents say, and a schedule that does not
// round alike on all ranks is found.
#include "runtime/schedule/passes/compress.hpp"

#include "runtime/schedule/check_steps.hpp"
#include "runtime/schedule/passes/fuse.hpp"
#include "runtime/schedule/passes/in_place.hpp"
#include "runtime/schedule/passes/segment.hpp"
#include "runtime/schedule/passes/share_losses.hpp"
#include "tests/schedule/support.hpp"
#include "tests/support/test_fraction.hpp"

#include <algorithm>

using namespace tutti;
using namespace tutti::test;
using Catch::Matchers::Contains;

namespace {

std::vector<Schedule> compressed(const std::vector<Schedule>& ranks, const Hierarchy* domains = nullptr) {
  std::vector<Schedule> made;
  for (const Schedule& schedule : ranks) {
    auto result = compress(schedule, domains);
    INFO(result.status().message());
    REQUIRE(result.is_ok());
    made.push_back(*std::move(result));
  }
  return made;
}

std::vector<Schedule> segmented(const std::vector<Schedule>& ranks, std::uint32_t segments,
                                std::uint32_t channels) {
  std::vector<Schedule> made;
  for (const Schedule& schedule : ranks) {
    auto result = segment(schedule, segments, channels);
    REQUIRE(result.is_ok());
    made.push_back(*std::move(result));
  }
  return made;
}

std::uint32_t roundings(Collective collective, std::string_view row, std::uint32_t p) {
  const auto report = verify(compressed(emit_row(collective, row, p)), Algebra::expression);
  INFO(report.status().message());
  REQUIRE(report.is_ok());
  CHECK(report->same_bits);
  return report->roundings;
}

std::vector<std::string> lines_of(const Schedule& s) {
  std::vector<std::string> lines;
  for (Step step : s.steps) {
    step.dependency_count = 0;
    lines.push_back(to_text(s, step));
  }
  return lines;
}

// Calls `visit` for legal instances of every row that has a compressed form.
template <class Visit>
void for_each_instance(const std::vector<std::uint32_t>& sizes, const Visit& visit) {
  std::uint64_t number = 0;
  for (const AlgorithmRow& row : catalog()) {
    if (!is_compressible(row.collective)) continue;
    for (const std::uint32_t p : sizes) {
      for (std::uint32_t root = 0; root < (is_rooted(row.collective) ? std::min(p, 3U) : 1U); ++root) {
        for (const bool in_place : {false, true}) {
          for (const Instance& instance : instances_of(row, p, root, in_place)) {
            if (is_selected(number++)) visit(row, instance);
          }
        }
      }
    }
  }
}

// Two ranks that swap their vectors and add.
std::vector<Schedule> swap_and_add() { return compressed(emit_row(Collective::allreduce, "one_shot", 2)); }

}  // namespace

TEST_CASE("every row that adds stays proved with compressed messages, whole and in segments") {
  for_each_instance({1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17},
                    [](const AlgorithmRow& row, const Instance& instance) {
                      const auto ranks = emit_all(row, instance);
                      REQUIRE(ranks.is_ok());
                      const Status whole = prove_compressed(row, instance, *ranks);
                      const Status cut = prove_compressed(row, instance, segmented(*ranks, 3, 2));
                      INFO(to_string(row.collective)
                           << " " << row.name << " p " << instance.size << " root " << instance.root
                           << (instance.in_place ? " in place " : " ") << whole.message() << cut.message());
                      REQUIRE(whole.is_ok());
                      REQUIRE(cut.is_ok());
                    });
}

TEST_CASE("a compressed reduce_scatter in place leaves the blocks of other ranks alone") {
  for_each_instance({2, 3, 4, 5, 8, 9}, [](const AlgorithmRow& row, const Instance& instance) {
    if (row.collective != Collective::reduce_scatter || instance.in_place) return;
    auto ranks = emit_all(row, instance);
    REQUIRE(ranks.is_ok());
    for (Schedule& s : *ranks) s = put_input_into_output(s);
    INFO(row.name << " p " << instance.size);
    const Status status = prove_compressed(row, instance, *ranks);
    INFO(status.message());
    REQUIRE(status.is_ok());
    for (const Schedule& s : compressed(*ranks)) {
      for (const Step& step : s.steps) {
        if (!detail::writes(step.verb) || step.dst.buffer != Buffer::output || step.dst.is_wire) continue;
        for (std::uint32_t k = 0; k < step.dst.count; ++k)
          REQUIRE(s.atom(step.dst, k) / s.segments == s.rank);
      }
    }
  });
}

TEST_CASE("a value is rounded when it is sent, on its sender, too") {
  const auto ranks = compressed(emit_row(Collective::allreduce, "ring", 2));
  CHECK(lines_of(ranks[0]) == std::vector<std::string>{
                                  "copy wire input[0] = input[0]",
                                  "send wire input[0] to 1",
                                  "recv wire scratch.0[1] from 1",
                                  "reduce output[1] = wire scratch.0[1] + input[1]",
                                  "copy wire output[1] = output[1]",
                                  "send wire output[1] to 1",
                                  "recv wire output[0] from 1",
                                  "copy output[1] = wire output[1] on 1",
                                  "copy output[0] = wire output[0] on 1",
                              });
  CHECK(ranks[0].channels == 2);
}

TEST_CASE("rows round as often as docs/tensors.md says") {
  for (const std::uint32_t p : {2U, 3U, 5U, 8U}) {
    CHECK(roundings(Collective::allreduce, "ring", p) == p);
    CHECK(roundings(Collective::allreduce, "two_shot", p) == 2);
    CHECK(roundings(Collective::allreduce, "one_shot", p) == 2);
    CHECK(roundings(Collective::reduce_scatter, "direct", p) == 1);
  }
  CHECK(roundings(Collective::allreduce, "recursive_doubling", 8) == 4);
  CHECK(roundings(Collective::allreduce, "rabenseifner", 8) == 4);
}

TEST_CASE("ranks that round one value share its loss") {
  const auto shares_of = [](std::string_view row, std::uint32_t p) {
    const auto ranks = compressed(emit_row(Collective::allreduce, row, p));
    const auto made = share_losses(ranks, 0);
    REQUIRE(made.is_ok());
    std::vector<std::uint32_t> shares;
    for (const Step& step : made->steps) {
      if (step.verb == Verb::copy && step.dst.is_wire) shares.push_back(step.peer);
    }
    return shares;
  };
  using Shares = std::vector<std::uint32_t>;
  CHECK(shares_of("ring", 3) == Shares{1, 1, 1});
  // Its own vector, the sum of two ranks, the sum of all.
  CHECK(shares_of("recursive_doubling", 4) == Shares{1, 2, 4});
  CHECK(shares_of("one_shot", 3) == Shares{1, 3});
}

TEST_CASE("between domains only messages that leave one are compressed") {
  const Hierarchy domains = Hierarchy::of_sizes(std::vector<std::uint32_t>{2, 2});
  const AlgorithmRow* row = find_algorithm(Collective::allreduce, "hierarchical");
  REQUIRE(row != nullptr);
  const Instance instance{4, 0, false, default_params(*row), domains};
  const auto ranks = emit_all(*row, instance);
  REQUIRE(ranks.is_ok());
  for (const Schedule& s : compressed(*ranks, &domains)) {
    for (const Step& step : s.steps) {
      if (!detail::is_message(step.verb)) continue;
      const Slice& moved = step.verb == Verb::send ? s.sources_of(step)[0] : step.dst;
      CHECK(moved.is_wire == (domains.domain_of(step.peer) != domains.domain_of(s.rank)));
    }
  }
}

TEST_CASE("what is wrong with rounding is found") {
  SECTION("a rank that adds its own value in full has other bits than its peer") {
    auto ranks = swap_and_add();
    for (Slice& source : ranks[0].sources) {
      if (source.buffer == Buffer::input) source.is_wire = false;
    }
    for (Step& step : ranks[0].steps) {  // the message is as before
      if (step.verb == Verb::send) ranks[0].sources[step.first_source].is_wire = true;
    }
    infer_dependencies(ranks[0]);
    const auto report = verify(ranks, Algebra::expression);
    INFO(report.status().message());
    REQUIRE(report.is_ok());
    CHECK_FALSE(report->same_bits);
    const auto right = verify(swap_and_add(), Algebra::expression);
    REQUIRE(right.is_ok());
    CHECK(right->same_bits);
  }
  SECTION("an owner that does not take over the rounded result") {
    auto ranks = compressed(emit_row(Collective::allreduce, "ring", 2));
    ranks[0] = edit(ranks[0], [](auto& lines) { std::erase(lines, "copy output[1] = wire output[1] on 1"); });
    const auto report = verify(ranks, Algebra::expression);
    REQUIRE(report.is_ok());
    CHECK_FALSE(report->same_bits);
  }
  SECTION("only one end of a message in the wire dtype") {
    auto ranks = swap_and_add();
    ranks[1] = edit(ranks[1], [](auto& lines) {
      for (std::string& line : lines) {
        if (line.starts_with("recv wire")) line = "recv" + line.substr(9);
        if (line.starts_with("reduce")) line = "reduce output[0] = scratch.0[0] + wire input[0]";
      }
    });
    CHECK_THAT(verdict(ranks), Contains("sends in the wire dtype, its partner"));
  }
  SECTION("a sum in the wire dtype") {
    auto ranks = swap_and_add();
    ranks[0] = edit(ranks[0], [](auto& lines) {
      for (std::string& line : lines) {
        if (line.starts_with("reduce output")) line = "reduce wire " + line.substr(7);
      }
    });
    CHECK_THAT(verdict(ranks), Contains("forms a sum in the wire dtype"));
  }
  SECTION("a rounding for no message") {
    auto ranks = swap_and_add();
    ranks[0] = edit(ranks[0], [](auto& lines) {
      lines.emplace_back("copy scratch.0[0] = output[0]");
      lines.emplace_back("copy wire scratch.0[0] = scratch.0[0]");
    });
    CHECK_THAT(verdict(ranks), Contains("rounds a value that no message carries"));
  }
  SECTION("a wire copy of another location") {
    auto ranks = swap_and_add();
    ranks[0] =
        edit(ranks[0], [](auto& lines) { lines.insert(lines.begin(), "copy wire scratch.0[0] = input[0]"); });
    CHECK_THAT(verdict(ranks), Contains("writes the wire copy of another location"));
  }
  SECTION("a wire copy that is out of date") {
    auto ranks = swap_and_add();
    ranks[0] = edit(ranks[0], [](auto& lines) { std::erase(lines, "copy wire input[0] = input[0]"); });
    CHECK_THAT(verdict(ranks), Contains("reads the wire copy of input block 0, which nobody has written"));
  }
  SECTION("wire copies that only some ranks have") {
    auto ranks = swap_and_add();
    ranks[1].has_wire_copies = false;
    CHECK_THAT(verdict(ranks), Contains("wire copies"));
  }
}

TEST_CASE("a compressed schedule keeps its text, plain and rolled") {
  for (const Schedule& s : compressed(emit_row(Collective::allreduce, "ring", 12))) {
    for (const TextForm form : {TextForm::plain, TextForm::rolled}) {
      const auto again = parse_schedule(print_schedule(s, form));
      INFO(again.status().message());
      REQUIRE(again.is_ok());
      CHECK(*again == s);
    }
  }
}

TEST_CASE("what has no compressed form is refused") {
  const auto ring = emit_row(Collective::allreduce, "ring", 4);
  CHECK_THAT(compress(compressed(ring)[0], nullptr).status().message(), Contains("compressed already"));
  CHECK_THAT(compress(emit_row(Collective::allgather, "ring", 4)[0], nullptr).status().message(),
             Contains("allgather adds nothing"));
}
