// `tutti run` without processes: its command line and how output becomes whole lines.
#include <algorithm>

#include "tests/support/catch.hpp"
#include "tools/run/output.hpp"
#include "tools/run/run.hpp"

using namespace tutti;

namespace {

Result<RunOptions> parse(std::vector<std::string_view> arguments) { return parse_run_options(arguments); }

}  // namespace

TEST_CASE("options end at the program, whose own options are left alone") {
  const auto options = parse({"-n", "3", "--grace", "0.5", "--no-prefix", "prog", "-n", "9", "--help"});
  REQUIRE(options);
  CHECK(options->rank_count == 3);
  CHECK(options->grace == std::chrono::milliseconds(500));
  CHECK_FALSE(options->has_prefix);
  CHECK(options->program == std::vector<std::string>{"prog", "-n", "9", "--help"});
  CHECK(parse({"-n4", "--", "-odd"})->program == std::vector<std::string>{"-odd"});
  CHECK(parse({"prog"})->rank_count == count_allowed_cpus());
  CHECK(parse({"--help"})->wants_help);
}

TEST_CASE("a wrong command line names the option and what was expected") {
  const auto error = [](std::vector<std::string_view> arguments) {
    return parse(std::move(arguments)).status().message();
  };
  using Catch::Matchers::StartsWith;
  for (const char* count : {"0", "-1", "4097", "two", "1.5", ""}) {
    CHECK_THAT(error({"-n", count, "prog"}), StartsWith("-n: expected a number of ranks from 1 to 4096"));
  }
  CHECK_THAT(error({"-n"}), StartsWith("-n: a value must follow"));
  CHECK_THAT(error({"--grace", "-1", "prog"}), StartsWith("--grace: expected seconds"));
  CHECK_THAT(error({"--grace=nan", "prog"}), StartsWith("--grace: expected seconds"));
  CHECK_THAT(error({"--np", "2", "prog"}), StartsWith("unknown option '--np'"));
  CHECK_THAT(error({"-n", "2"}), StartsWith("a program to run must follow"));
  CHECK_THAT(error({}), StartsWith("a program to run must follow"));
}

TEST_CASE("lines come out whole, whatever pieces they arrive in") {
  const std::string input = "first\n\nthird line\nlast without newline";
  for (std::size_t piece = 1; piece <= input.size(); ++piece) {
    LinePrefixer lines("[7] ");
    std::string out;
    for (std::size_t at = 0; at < input.size(); at += piece)
      lines.feed(std::string_view(input).substr(at, piece), out);
    CHECK(out == "[7] first\n[7] \n[7] third line\n");
    lines.finish(out);
    lines.finish(out);
    CHECK(out == "[7] first\n[7] \n[7] third line\n[7] last without newline\n");
  }
}

TEST_CASE("an endless line is cut, and nothing of it is lost") {
  LinePrefixer lines("p:");
  std::string out;
  const std::string piece(100000, 'x');
  for (int i = 0; i < 25; ++i) lines.feed(piece, out);
  lines.feed("\n", out);
  CHECK(std::count(out.begin(), out.end(), 'x') == 2500000);
  CHECK(std::count(out.begin(), out.end(), '\n') == 3);
  CHECK(std::count(out.begin(), out.end(), 'p') == 3);
}
