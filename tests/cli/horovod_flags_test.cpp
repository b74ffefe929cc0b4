// horovodrun's flags without processes: each is honoured, answered or refused, by the command line or by a file.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <set>

#include "runtime/base/horovod_variables.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/docs_table.hpp"
#include "tools/cli/run/flags.hpp"
#include "tools/cli/run/horovod_config.hpp"
#include "tools/cli/run/hosts.hpp"
#include "tools/cli/run/remote.hpp"
#include "tools/cli/run/run.hpp"

using namespace tutti;
using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;

namespace {

Result<RunOptions> parse(std::vector<std::string_view> words) {
  words.insert(words.begin(), {"-np", "4"});
  words.push_back("prog");
  return parse_run_options(words, true);
}

// "NAME=value,..." in the order in which ranks get them.
std::string exported_by(std::vector<std::string_view> words) {
  const auto options = parse(std::move(words));
  if (!options) return options.status().message();
  std::string text;
  for (const ExportedVariable& variable : options->exported)
    text += (text.empty() ? "" : ",") + variable.name + "=" + variable.value;
  return text;
}

std::string answer_to(std::vector<std::string_view> words) {
  const auto options = parse(std::move(words));
  if (!options || options->answers.size() != 1) return options.status().message();
  return options->answers[0];
}

// A file of this name with this text, while it lives.
struct TextFile {
  explicit TextFile(std::string_view text) {
    const int fd = ::mkstemp(path.data());
    std::ofstream(path) << text;
    if (fd >= 0) ::close(fd);
  }
  ~TextFile() { ::unlink(path.c_str()); }
  std::string path = "horovod_flags_XXXXXX";
};

}  // namespace

TEST_CASE("every flag of horovodrun is known, and honoured or answered") {
  // The option strings of Horovod 0.28.1.
  constexpr std::string_view kNames =
      "-v --version -np --num-proc -cb --check-build --disable-cache --start-timeout --network-interfaces "
      "--network-interface --output-filename --verbose --config-file -p --ssh-port -i --ssh-identity-file "
      "--fusion-threshold-mb --cycle-time-ms --cache-capacity --hierarchical-allreduce "
      "--no-hierarchical-allreduce "
      "--hierarchical-allgather --no-hierarchical-allgather --torus-allreduce --no-torus-allreduce "
      "--autotune "
      "--no-autotune --autotune-log-file --autotune-warmup-samples --autotune-steps-per-sample "
      "--autotune-bayes-opt-max-samples --autotune-gaussian-process-noise --min-np --min-num-proc --max-np "
      "--max-num-proc --slots-per-host --elastic-timeout --reset-limit --blacklist-cooldown-range "
      "--timeline-filename --timeline-mark-cycles --no-timeline-mark-cycles --no-stall-check --stall-check "
      "--stall-check-warning-time-seconds --stall-check-shutdown-time-seconds --mpi-threads-disable "
      "--no-mpi-threads-disable --mpi-args --tcp --binding-args --num-nccl-streams --thread-affinity "
      "--gloo-timeout-seconds --log-level --log-with-timestamp --log-without-timestamp -prefix-timestamp "
      "--prefix-output-with-timestamp --log-hide-timestamp --no-log-hide-timestamp -H --hosts -hostfile "
      "--hostfile "
      "--host-discovery-script --gloo --mpi --jsrun";
  std::set<std::string> known;
  for (const auto& flags : {own_flags(), horovod_flags()}) {
    for (const RunFlag& flag : flags)
      for_each_name(flag, [&](std::string_view name) { CHECK(known.insert(std::string(name)).second); });
  }
  for (std::string_view rest = kNames; !rest.empty();) {
    const std::string name(rest.substr(0, rest.find(' ')));
    INFO(name);
    CHECK(known.count(name) == 1);
    rest.remove_prefix(std::min(name.size() + 1, rest.size()));
  }
  const auto changes = [](const RunOptions& o) {
    return !o.exported.empty() || !o.answers.empty() || !o.output_folder.empty() || !o.config_path.empty() ||
           !o.ssh_identity.empty() || o.ssh_port > 0 || o.ssh_connect_seconds > 0 || o.has_times ||
           o.is_verbose || o.wants_version || o.wants_check_build || o.elastic.min_ranks > 0 ||
           o.elastic.max_ranks > 0 || o.elastic.reset_limit > 0 ||
           o.elastic.timeout != ElasticLimits().timeout || o.elastic.cooldown || o.slots_per_host > 1 ||
           !o.discovery_script.empty();
  };
  for (const RunFlag& flag : horovod_flags()) {
    INFO(flag.names);
    CHECK_FALSE(meaning_of(flag).empty());
    RunOptions options;
    const std::string_view value = flag.value_count == 0         ? flag.preset
                                   : flag.value_count == 2       ? "4 5"
                                   : flag.names == "--log-level" ? "INFO"
                                                                 : "4";
    CHECK(flag.apply(options, flag, value).is_ok());
    CHECK(changes(options));
  }
}

TEST_CASE("flags reach the ranks as Horovod's variables, in its units") {
  CHECK(exported_by({"--fusion-threshold-mb", "32"}) == "HOROVOD_FUSION_THRESHOLD=33554432");
  CHECK(exported_by({"--cycle-time-ms=2.5", "--cache-capacity", "0"}) ==
        "HOROVOD_CYCLE_TIME=2.5,HOROVOD_CACHE_CAPACITY=0");
  CHECK(exported_by({"--timeline-filename", "t.json", "--timeline-mark-cycles"}) ==
        "HOROVOD_TIMELINE=t.json,HOROVOD_TIMELINE_MARK_CYCLES=1");
  CHECK(exported_by({"--no-stall-check"}) == "HOROVOD_STALL_CHECK_DISABLE=1");
  CHECK(exported_by({"--network-interfaces", "eth0,eth1", "--network-interface", "ib0"}) ==
        "HOROVOD_GLOO_IFACE=eth0,eth1,ib0");
  CHECK(exported_by({"--tcp"}) == "NCCL_IB_DISABLE=1,TUTTI_TRANSPORTS=shm,tcp");
  CHECK(exported_by({"--log-level", "TRACE"}) == "HOROVOD_LOG_LEVEL=TRACE");
  for (const auto& [flag, value, expectation] :
       {std::tuple("--fusion-threshold-mb", "-1", "--fusion-threshold-mb: expected a whole number of MiB"),
        std::tuple("--fusion-threshold-mb", "99999999999999", "--fusion-threshold-mb: expected"),
        std::tuple("--cycle-time-ms", "fast", "--cycle-time-ms: expected milliseconds"),
        std::tuple("--log-level", "loud", "--log-level: expected trace, debug"),
        std::tuple("-p", "0", "-p: expected a port from 1 to 65535"),
        std::tuple("--start-timeout", "x", "--start-timeout: expected seconds from 1 to 86400")})
    CHECK_THAT(exported_by({flag, value}), StartsWith(expectation));
  CHECK_THAT(exported_by({"--timeline-filename"}), StartsWith("-np") || Contains("must follow"));
}

TEST_CASE("flags without an effect are answered in one sentence") {
  CHECK_THAT(answer_to({"--mpi"}), StartsWith("--mpi: no effect: "));
  CHECK_THAT(answer_to({"--torus-allreduce"}), StartsWith("--torus-allreduce: no effect: "));
  CHECK_THAT(answer_to({"--autotune-warmup-samples", "1"}), Contains("no effect: TUTTI_AUTOTUNE tries"));
  CHECK(exported_by({"--autotune-warmup-samples", "1"}).empty());
}

TEST_CASE("an elastic job has bounds and hosts") {
  CHECK(exported_by({"--min-np", "2"}).empty());
  CHECK_THAT(exported_by({"--min-np", "5"}),
             StartsWith("--min-np 5: the job starts with fewer ranks: -np is 4"));
  CHECK_THAT(exported_by({"--max-np", "3"}),
             StartsWith("--max-np 3: the job starts with more ranks: -np is 4"));
  CHECK_THAT(exported_by({"--host-discovery-script", "./hosts.sh", "-H", "one:4"}),
             StartsWith("--host-discovery-script: it names the hosts, and so does -H"));
  CHECK_THAT(exported_by({"--blacklist-cooldown-range", "60", "30"}),
             StartsWith("--blacklist-cooldown-range: expected the second number of seconds from 60"));
  CHECK_FALSE(parse({})->is_elastic());
  const auto fixed = parse({"--max-np", "4"});
  CHECK((fixed->is_elastic() && fixed->elastic.min_ranks == 4 && fixed->elastic.max_ranks == 4));
  // Slots that there are are taken.
  const auto grown = parse({"--max-np", "6", "-H", "one:3,two:5"});
  CHECK((grown->rank_count == 6 && to_text(grown->hosts) == "one:3,two:3" &&
         to_text(grown->offered) == "one:3,two:5"));
  const auto cooled =
      parse({"--min-np", "1", "--blacklist-cooldown-range", "60", "300", "--elastic-timeout=7"});
  CHECK(
      (cooled->elastic.cooldown == std::pair(60, 300) && cooled->elastic.timeout == std::chrono::seconds(7)));
}

TEST_CASE("horovodrun needs a number of ranks, and its names of other options are taken") {
  const std::vector<std::string_view> none{"prog"};
  CHECK_THAT(parse_run_options(none, true).status().message(),
             StartsWith("-np: expected the number of ranks"));
  const std::vector<std::string_view> build{"-cb"};
  CHECK(parse_run_options(build, true)->wants_check_build);
  const std::vector<std::string_view> words{"--num-proc=3", "--hosts", "a:2,b:2", "-x",
                                            "A=1",          "python",  "-np",     "9"};
  const auto options = parse_run_options(words, true);
  REQUIRE(options);
  CHECK(options->rank_count == 3);
  CHECK(options->is_horovod);
  CHECK(to_text(options->hosts) == "a:2,b:1");
  CHECK(options->program == std::vector<std::string>{"python", "-np", "9"});
  CHECK_FALSE(parse_run_options(std::vector<std::string_view>{"--mpi", "prog"})->is_horovod);
}

TEST_CASE("a variable of ours wins over a flag, and that is said") {
  REQUIRE(::setenv("TUTTI_FUSION_CYCLE", "1ms", 1) == 0);
  CHECK(answer_to({"--cycle-time-ms", "3"}) ==
        "HOROVOD_CYCLE_TIME=3 is not used: TUTTI_FUSION_CYCLE is set, and wins");
  REQUIRE(::unsetenv("TUTTI_FUSION_CYCLE") == 0);
  CHECK(parse({"--cycle-time-ms", "3"})->answers.empty());
  CHECK_THAT(answer_to({"--cycle-time-ms", "3", "-x", "TUTTI_FUSION_CYCLE=9ms"}), Contains("is not used"));
}

TEST_CASE("a configuration file sets what the command line leaves open") {
  const TextFile file(
      "controller: gloo\nparams:\n  fusion_threshold_mb: 8\n  cycle_time_ms: 5.5\n  hierarchical_allreduce: "
      "false\n"
      "stall_check:\n  enabled: false\ntimeline:\n  filename: 'a b.json'\n  mark_cycles: true\n");
  CHECK(exported_by({"--config-file", file.path}) ==
        "HOROVOD_FUSION_THRESHOLD=8388608,HOROVOD_CYCLE_TIME=5.5,HOROVOD_STALL_CHECK_DISABLE=1,"
        "HOROVOD_TIMELINE=a b.json,HOROVOD_TIMELINE_MARK_CYCLES=1");
  CHECK_THAT(exported_by({"--config-file", file.path, "--cycle-time-ms", "1", "--stall-check"}),
             StartsWith("HOROVOD_CYCLE_TIME=1,HOROVOD_STALL_CHECK_DISABLE=0,HOROVOD_FUSION_THRESHOLD=8388608,"
                        "HOROVOD_TIMELINE"));
  const auto answers = parse({"--config-file", file.path})->answers;
  REQUIRE(answers.size() == 2);
  CHECK_THAT(answers[0], StartsWith("--gloo: no effect"));
  CHECK_THAT(answers[1], StartsWith("--no-hierarchical-allreduce: no effect"));
}

TEST_CASE("a mistake in a configuration file is named with its line") {
  const auto error = [](std::string_view text) {
    const TextFile file(text);
    return exported_by({"--config-file", file.path});
  };
  CHECK_THAT(error("params:\n  cycle_time_ms: soon\n"),
             StartsWith("--config-file ") && Contains("line 2: params.cycle_time_ms: expected milliseconds"));
  CHECK_THAT(error("controller: smtp\n"), Contains("line 1: controller: expected gloo or mpi"));
  CHECK_THAT(error("autotune:\n  enabled: maybe\n"), Contains("expected true or false"));
  CHECK_THAT(exported_by({"--config-file", "/no/such/file"}), Contains("cannot read '/no/such/file'"));
  const TextFile unknown("params:\n  colour: red\n");
  CHECK_THAT(answer_to({"--config-file", unknown.path}),
             Contains("line 2: params.colour: Horovod reads no such"));
}

TEST_CASE("the YAML of a configuration file") {
  const auto settings = parse_horovod_config(
      "---\n# all of it\ncontroller : mpi # here\nparams:   # of fusion\n    a: 1\n\n    b: \"two # "
      "words\"\n    c: 'it''s'\n"
      "    d: ~\n    e:\nempty:\nlogging:\r\n\n  level: INFO\r\n  url: http://x:1#y\n");
  REQUIRE(settings);
  CHECK(*settings == std::vector<HorovodSetting>{{"controller", "mpi", 3},
                                                 {"params.a", "1", 5},
                                                 {"params.b", "two # words", 7},
                                                 {"params.c", "it's", 8},
                                                 {"logging.level", "INFO", 14},
                                                 {"logging.url", "http://x:1#y", 15}});
  for (const auto& [text, expectation] :
       {std::pair("- a", "line 1: expected 'key: value'"), std::pair("a b: 1", "expected 'key: value'"),
        std::pair("  a: 1", "no section is above it"), std::pair("a: 1\n  b: 2", "line 2: it is indented"),
        std::pair("a:\n  b: 1\n    c: 2", "line 3: settings of a section"),
        std::pair("a:\n\tb: 1", "line 2: a tab"), std::pair("a: [1, 2]", "expected a plain value"),
        std::pair("a: {b: 1}", "expected a plain value"), std::pair("a: |", "expected a plain value"),
        std::pair("a: 'x", "a quote is not closed"), std::pair("a: \"\\n\"", "a backslash"),
        std::pair("a: 'x' y", "text follows"), std::pair("a: 1\na: 2", "line 2: a is set in line 1, too")}) {
    INFO(text);
    CHECK_THAT(parse_horovod_config(text).status().message(), Contains(expectation));
  }
}

TEST_CASE("cross ranks count hosts that have so many ranks") {
  const std::vector<HostSlots> placed = {{"a", 2}, {"b", 1}, {"c", 3}};
  const auto place = [&](int first, int local) {
    const CrossPlace found = find_cross_place(placed, first, local);
    return fmt::format("{}/{} {}", found.rank, found.size, found.host);
  };
  CHECK(place(0, 0) == "0/3 a");
  CHECK(place(2, 0) == "1/3 b");
  CHECK(place(3, 0) == "2/3 c");
  CHECK(place(0, 1) == "0/2 a");
  CHECK(place(3, 1) == "1/2 c");
  CHECK(place(3, 2) == "0/1 c");
}

TEST_CASE("parts on other hosts get the flags that they need, and ssh its own") {
  auto options = parse({"-H", "far1:3,far2:1", "--output-filename", "my out", "-p", "2222", "-i", "key",
                        "--start-timeout", "7", "--verbose", "-prefix-timestamp"});
  REQUIRE(options);
  const auto parts = parts_of(*options, "/opt/tutti", "job7");
  REQUIRE(parts.size() == 2);
  CHECK(std::vector<std::string>(parts[1].command.begin(), parts[1].command.end() - 1) ==
        std::vector<std::string>{"ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=7", "-p", "2222", "-i",
                                 "key", "far2"});
  CHECK_THAT(parts[1].command.back(), Contains(" --horovod --placement 'far1:3,far2:1'") &&
                                          Contains(" --output-filename 'my out'") && Contains(" --verbose") &&
                                          Contains(" --prefix-output-with-timestamp"));
}

TEST_CASE("docs/horovod.md has the table of flags") {
  check_docs_table(SOURCE_ROOT "/docs/horovod.md", describe_horovod_flags_markdown());
}
