// The command line of `tutti run`. Knows nothing of how the ranks are started; that is job.cpp.
#include "tools/run/run.hpp"

#include <fmt/format.h>
#include <sched.h>

#include <charconv>
#include <cstdio>
#include <optional>

namespace tutti {
namespace {

constexpr int kMaxRanks = 4096;
constexpr int kUsageStatus = 2;

constexpr std::string_view kHelp =
    "usage: tutti run [-n N] [--no-prefix] [--grace SECONDS] [--] PROGRAM [ARGUMENT...]\n"
    "\n"
    "Starts N ranks of PROGRAM on this machine and waits for all of them.\n"
    "\n"
    "  -n N               number of ranks (default: the CPUs this process may use)\n"
    "  --no-prefix        pass output through untouched instead of writing \"[rank] \" before each line\n"
    "  --grace SECONDS    time from SIGTERM to SIGKILL when the job is ended (default 5)\n"
    "\n"
    "Each rank finds RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE and what tutti needs (TUTTI_*) in its\n"
    "environment. Standard input goes to rank 0. INT, TERM, HUP, USR1 and USR2 are passed on to every rank.\n"
    "The first rank that fails ends the job; the exit status is its own, or 128 + the signal that killed "
    "it.\n";

std::optional<double> parse_number(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

Status set_rank_count(RunOptions& options, std::string_view text) {
  const std::optional<double> value = parse_number(text);
  if (!value || *value < 1 || *value > kMaxRanks || *value != static_cast<int>(*value)) {
    return invalid_argument(
        fmt::format("-n: expected a number of ranks from 1 to {}, got '{}'", kMaxRanks, text));
  }
  options.rank_count = static_cast<int>(*value);
  return {};
}

Status set_grace(RunOptions& options, std::string_view text) {
  const std::optional<double> value = parse_number(text);
  if (!value || !(*value >= 0) || *value > 86400) {
    return invalid_argument(fmt::format("--grace: expected seconds from 0 to 86400, got '{}'", text));
  }
  options.grace = std::chrono::milliseconds(static_cast<long>(*value * 1000));
  return {};
}

}  // namespace

int count_allowed_cpus() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return 1;
  return CPU_COUNT(&allowed) > 0 ? CPU_COUNT(&allowed) : 1;
}

Result<RunOptions> parse_run_options(std::span<const std::string_view> arguments) {
  RunOptions options;
  options.rank_count = count_allowed_cpus();
  std::size_t i = 0;
  for (; i < arguments.size() && arguments[i].starts_with('-'); ++i) {
    const std::string_view option = arguments[i];
    const bool takes_value = option == "-n" || option == "--grace";
    if (takes_value && i + 1 == arguments.size()) {
      return invalid_argument(fmt::format("{}: a value must follow", option));
    }
    if (option == "--help" || option == "-h") {
      options.wants_help = true;
      return options;
    }
    if (option == "--") {
      ++i;
      break;
    }
    if (option == "-n") {
      TUTTI_RETURN_IF_ERROR(set_rank_count(options, arguments[++i]));
    } else if (option.starts_with("-n") && option.size() > 2) {
      TUTTI_RETURN_IF_ERROR(set_rank_count(options, option.substr(2)));
    } else if (option == "--grace") {
      TUTTI_RETURN_IF_ERROR(set_grace(options, arguments[++i]));
    } else if (option.starts_with("--grace=")) {
      TUTTI_RETURN_IF_ERROR(set_grace(options, option.substr(8)));
    } else if (option == "--no-prefix") {
      options.has_prefix = false;
    } else {
      return invalid_argument(
          fmt::format("unknown option '{}'; known are -n, --no-prefix, --grace and --help", option));
    }
  }
  for (; i < arguments.size(); ++i) options.program.emplace_back(arguments[i]);
  if (options.program.empty()) return invalid_argument("a program to run must follow the options");
  return options;
}

int run_command(int argc, char** argv) {
  const std::vector<std::string_view> arguments(argv + (argc > 0 ? 1 : 0), argv + argc);
  const Result<RunOptions> options = parse_run_options(arguments);
  if (!options) {
    fmt::print(stderr, "tutti run: {}\nTry 'tutti run --help'.\n", options.status().message());
    return kUsageStatus;
  }
  if (options->wants_help) {
    fmt::print("{}", kHelp);
    return 0;
  }
  return run_job(*options);
}

}  // namespace tutti
