// `tutti run` without processes: its command line and how output becomes whole lines.
#include <algorithm>

#include "tests/support/catch.hpp"
#include "tools/cli/run/hosts.hpp"
#include "tools/cli/run/output.hpp"
#include "tools/cli/run/part_messages.hpp"
#include "tools/cli/run/remote.hpp"
#include "tools/cli/run/run.hpp"

using namespace tutti;
using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;

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

TEST_CASE("a line that writes itself again has its prefix each time, and CR LF is one end") {
  const std::string input = "10%\r20%\r\ndos\r\n\rend";
  for (std::size_t piece = 1; piece <= input.size(); ++piece) {
    LinePrefixer lines("[7] ");
    std::string out;
    for (std::size_t at = 0; at < input.size(); at += piece)
      lines.feed(std::string_view(input).substr(at, piece), out);
    lines.finish(out);
    CHECK(out == "[7] 10%\r[7] 20%\r\n[7] dos\r\n[7] \r[7] end\n");
  }
}

TEST_CASE("an unfinished line is shown, continued by its own stream, and ended by another's") {
  Cursor cursor;
  LinePrefixer first("[0] ", &cursor), second("[1] ", &cursor);
  std::string out;
  const auto taken = [&] { return std::exchange(out, {}); };
  first.feed("name", out);
  CHECK(taken().empty());
  first.show(out);
  first.show(out);
  CHECK(taken() == "[0] name");
  first.feed("? ", out);
  first.show(out);
  CHECK(taken() == "? ");
  second.feed("x\n", out);
  CHECK(taken() == "\n[1] x\n");
  first.feed("more\n", out);
  CHECK(taken() == "[0] more\n");
  second.feed("50%\r", out);
  second.show(out);
  CHECK(taken() == "[1] 50%\r");
  second.feed("\nnext", out);
  second.show(out);
  CHECK(taken() == "\n[1] next");
  second.finish(out);
  CHECK(taken() == "\n");
  LinePrefixer quiet("[2] ");  // to a file
  quiet.feed("part", out);
  quiet.show(out);
  CHECK(taken().empty());
}

TEST_CASE("hosts are read as other launchers write them") {
  const auto text_of = [](const Result<std::vector<HostSlots>>& hosts) {
    return hosts ? to_text(*hosts) : hosts.status().message();
  };
  CHECK(text_of(parse_hosts("a:2,b")) == "a:2,b:1");
  CHECK(text_of(parse_hosts("a, b:3 ,a")) == "a:2,b:3");
  CHECK(text_of(parse_hosts("[fe80::1]:2,user@c.d-e")) == "[fe80::1]:2,user@c.d-e:1");
  CHECK(
      text_of(parse_hostfile("# the cluster\na slots=2 max_slots=4\n\nb:3  # big\nc 4\nd\r\ne slots = 5")) ==
      "a:2,b:3,c:4,d:1,e:5");
  for (const char* bad : {"", ",", "a:", "a:0", "a:x", "a:2,", "-o:2", "a b:2", "a;b", "$(x)"})
    CHECK_THAT(text_of(parse_hosts(bad)),
               Contains("is not a host with slots; expected something like node1:4"));
  CHECK_THAT(text_of(parse_hostfile("a\nb slots=none")), StartsWith("line 2: 'b slots=none'"));
  CHECK_THAT(text_of(parse_hostfile("# nothing\n")), Contains("there is no host in it"));
  const std::vector<HostSlots> hosts = {{"a", 2}, {"b", 1}, {"c", 4}};
  CHECK(text_of(place_ranks(hosts, 0)) == "a:2,b:1,c:4");
  CHECK(text_of(place_ranks(hosts, 2)) == "a:2");
  CHECK(text_of(place_ranks(hosts, 4)) == "a:2,b:1,c:1");
  CHECK_THAT(text_of(place_ranks(hosts, 8)), Contains("8 ranks do not fit: a:2,b:1,c:4 have 7 slots"));
}

TEST_CASE("the parts of a job on several hosts are commands that no shell misreads") {
  RunOptions options;
  options.hosts = {{"far1", 2}, {"far2", 1}};
  options.rank_count = 3;
  options.program = {"./prog", "it's", "$HOME"};
  const auto parts = parts_of(options, "/opt/tutti", "job7");
  REQUIRE(parts.size() == 2);
  CHECK(parts[0].command[0] == "ssh");
  CHECK(parts[0].command[3] == "far1");
  const std::string& second = parts[1].command.back();
  CHECK_THAT(second, Contains("'/opt/tutti' run --part 2,1,3 --address 'far1' --job job7") &&
                         Contains("-- './prog' 'it'\\''s' '$HOME'"));
  CHECK(second.find("SECRET") == std::string::npos);
  options.agent = "my agent";
  CHECK(parts_of(options, "/opt/tutti", "job7")[0].command[2] == "my agent \"$@\"");
}

TEST_CASE("messages of a part are found among its output, in whatever pieces it comes") {
  const PartMessage waiting{PartMessage::Kind::waiting, 3};
  const PartMessage ended{PartMessage::Kind::ended, 1, -9, "rank 1 (pid 7) killed by signal 9 (Killed)"};
  CHECK(parse_part_message(to_text(ended)) == ended);
  for (const char* bad : {"", "start", "start 1", "start x 1 ", "start -1 0 ", "begin 1 2 "})
    CHECK_FALSE(parse_part_message(bad));
  const std::string output = "some\x1e text\npart" + mark_message(waiting, "job7") + "\nial\n" +
                             mark_message(waiting, "job8") + "\n" + mark_message(ended, "job7") + "\n";
  const std::string expected = "some\x1e text\npartial\n" + mark_message(waiting, "job8") + "\n";
  for (const std::size_t step : {std::size_t{1}, std::size_t{7}, output.size()}) {
    PartMessageReader reader("job7");
    std::vector<PartMessage> messages;
    std::string rest;
    for (std::size_t at = 0; at < output.size(); at += step)
      rest += reader.feed(output.substr(at, step), messages);
    CHECK(rest == expected);
    CHECK(messages == std::vector<PartMessage>{waiting, ended});
  }
}

TEST_CASE("options for hosts are checked before anything starts") {
  const auto parse = [](std::vector<std::string_view> words) { return parse_run_options(words); };
  const auto options = parse({"-n", "3", "-H", "a:2,b:2", "--through", "ssh", "prog"});
  REQUIRE(options);
  CHECK(to_text(options->hosts) == "a:2,b:1");
  CHECK(options->rank_count == 3);
  CHECK(parse({"-Ha:2,b:2", "prog"})->rank_count == 4);
  CHECK_THAT(parse({"-n5", "-H", "a:2", "prog"}).status().message(), Contains("5 ranks do not fit"));
  CHECK_THAT(parse({"--through=qsub", "prog"}).status().message(), Contains("expected ssh, srun or mpiexec"));
  CHECK_THAT(parse({"--hostfile", "/no/such/file", "prog"}).status().message(), Contains("cannot read"));
  for (const char* part : {"1", "0,2", "0,0,2", "1,2,2", "0,1,x", "0,1,2,3"})
    CHECK_FALSE(parse({"--part", part, "prog"}));
}
