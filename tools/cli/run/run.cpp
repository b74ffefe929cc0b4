// The command line of `tutti run`. Knows nothing of how the ranks are started; that is job.cpp.
#include "tools/cli/run/run.hpp"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>

#include "runtime/base/ascii.hpp"
#include "tools/cli/run/remote.hpp"

namespace tutti {
namespace {

constexpr int kMaxRanks = 4096;  // that we start ourselves
constexpr int kMaxJobRanks = 1 << 20;
constexpr int kUsageStatus = 2;
constexpr int kNotFoundStatus = 127;

constexpr std::string_view kHelp =
    "usage: tutti run [-n N] [-H HOST:SLOTS,...] [--bind WHERE] [--no-prefix] [--grace SECONDS] [--] PROGRAM "
    "[ARGUMENT...]\n"
    "\n"
    "Starts N ranks of PROGRAM on this machine, or on those named, and waits for all of them.\n"
    "\n"
    "  -n N               number of ranks (default: the CPUs this process may use)\n"
    "  -H HOST:SLOTS,...  on these hosts, neighbouring ranks on each (default of -n: all slots)\n"
    "  --hostfile FILE    the same from a file: \"host slots=4\" or \"host:4\" in each line\n"
    "  -x NAME[=VALUE]    set this variable for all ranks, on other hosts too; may be repeated\n"
    "  --through WAY      ssh, srun or mpiexec (default: srun inside of a Slurm allocation, else ssh)\n"
    "  --agent COMMAND    instead of ssh: called with a host and one shell command\n"
    "  --bind WHERE       bind each rank to a core, l3, numa or socket, next to its gpu (local rank i's is "
    "GPU i, modulo\n"
    "                     their number), to an even share of the cores (auto), to CPUs by local rank "
    "(0,1,12,13, or sets\n"
    "                     0-5;6-11), or none (default: TUTTI_PIN, which is off); sets OMP_NUM_THREADS to the "
    "rank's cores\n"
    "                     unless it is set\n"
    "  --bind-order O     compact (neighbouring ranks close together) or scatter\n"
    "  --report-bindings  say on standard error where each rank is bound\n"
    "  --no-prefix        pass output through untouched instead of writing \"[rank] \" before each line\n"
    "  --grace SECONDS    time from SIGTERM to SIGKILL when the job is ended (default 5)\n"
    "\n"
    "Each rank finds RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT (for "
    "env://\n"
    "of torch; the last two stay if they are set) and what tutti needs (TUTTI_*) in its environment. Ranks "
    "on other hosts have the environment of a shell there and, from here, PATH,\n"
    "LD_LIBRARY_PATH, PYTHONPATH, VIRTUAL_ENV, TUTTI_*, NCCL_*, MLSL_*, I_MPI_*, HOROVOD_*, HWLOC_*, OMP_*,\n"
    "UCX_*, FI_* and what -x names. Standard input goes to rank 0 on one machine. INT, TERM, HUP, USR1 and "
    "USR2 are passed on "
    "to every rank.\n"
    "Ctrl-Z stops the ranks too, until the job is continued.\n"
    "The first rank that fails ends the job; the exit status is its own, or 128 + the signal that killed "
    "it.\n";

Status set_rank_count(RunOptions& options, std::string_view text) {
  const std::optional<double> value = parse_number<double>(text);
  if (!value || *value < 1 || *value > kMaxRanks || *value != static_cast<int>(*value)) {
    return invalid_argument(
        fmt::format("-n: expected a number of ranks from 1 to {}, got '{}'", kMaxRanks, text));
  }
  options.rank_count = static_cast<int>(*value);
  return {};
}

Status set_grace(RunOptions& options, std::string_view text) {
  const std::optional<double> value = parse_number<double>(text);
  if (!value || !(*value >= 0) || *value > 86400) {
    return invalid_argument(fmt::format("--grace: expected seconds from 0 to 86400, got '{}'", text));
  }
  options.grace = std::chrono::milliseconds(static_cast<long>(*value * 1000));
  return {};
}

Status set_hosts(RunOptions& options, std::string_view text) {
  auto hosts = parse_hosts(text);
  if (!hosts) return hosts.status().with_context("-H");
  options.hosts = *std::move(hosts);
  return {};
}

Status set_hostfile(RunOptions& options, const std::string& path) {
  std::ifstream file(path);
  std::string text;
  std::getline(file, text, '\0');
  if (!file.is_open() || file.bad())
    return invalid_argument(fmt::format("--hostfile: cannot read '{}'", path));
  auto hosts = parse_hostfile(text);
  if (!hosts) return hosts.status().with_context("--hostfile " + path);
  options.hosts = *std::move(hosts);
  return {};
}

Status set_way(RunOptions& options, std::string_view text) {
  if (text != "ssh" && text != "srun" && text != "mpiexec")
    return invalid_argument(fmt::format("--through: expected ssh, srun or mpiexec, got '{}'", text));
  options.way = text;
  return {};
}

// "NAME=value", or "NAME", whose value here is meant.
Status set_exported(RunOptions& options, std::string_view text) {
  const std::size_t equals = text.find('=');
  const std::string name(text.substr(0, equals));
  if (name.empty()) return invalid_argument(fmt::format("-x: expected NAME or NAME=value, got '{}'", text));
  if (equals != std::string_view::npos) {
    options.exported.push_back({name, std::string(text.substr(equals + 1))});
    return {};
  }
  const char* const value = std::getenv(name.c_str());
  if (value == nullptr)
    return invalid_argument(
        fmt::format("-x {}: it is not set here; set it, or write -x {}=value", name, name));
  options.exported.push_back({name, value});
  return {};
}

Status set_bind(RunOptions& options, std::string_view text) {
  auto request = parse_pin(text == "none" ? "off" : text);
  if (!request) return request.status().with_context("--bind");
  options.bind = *std::move(request);
  options.bind_text = text;
  return {};
}

Status set_bind_order(RunOptions& options, std::string_view text) {
  if (text != "compact" && text != "scatter")
    return invalid_argument(fmt::format("--bind-order: expected compact or scatter, got '{}'", text));
  options.bind_order = text == "scatter" ? PinOrder::scatter : PinOrder::compact;
  return {};
}

// "first,count,size", as we write it ourselves.
Status set_part(RunOptions& options, std::string_view text) {
  std::array<int, 3> numbers{};
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const std::size_t comma = text.find(',');
    const std::optional<double> value = parse_number<double>(text.substr(0, comma));
    if (!value || *value < 0 || *value > kMaxJobRanks || (comma == std::string_view::npos) != (i == 2))
      return invalid_argument("--part: expected FIRST,COUNT,SIZE");
    numbers[i] = static_cast<int>(*value);
    text = comma == std::string_view::npos ? std::string_view() : text.substr(comma + 1);
  }
  if (numbers[1] < 1 || numbers[0] + numbers[1] > numbers[2])
    return invalid_argument("--part: these are no ranks");
  options.part.first_rank = numbers[0];
  options.rank_count = numbers[1];
  options.part.world_size = numbers[2];
  return {};
}

// Where the ranks go, once all options are known.
Status place_on_hosts(RunOptions& options, bool has_rank_count) {
  if (options.hosts.empty()) return {};
  auto placed = place_ranks(options.hosts, has_rank_count ? options.rank_count : 0);
  if (!placed) return placed.status();
  options.hosts = *std::move(placed);
  options.rank_count = 0;
  for (const HostSlots& host : options.hosts) options.rank_count += host.slots;
  return {};
}

struct ValueOption {
  std::string_view name;
  Status (*set)(RunOptions& options, std::string_view text);
};
constexpr ValueOption kValueOptions[] = {
    {"-n", set_rank_count},
    {"--grace", set_grace},
    {"-H", set_hosts},
    {"--hostfile",
     [](RunOptions& options, std::string_view text) { return set_hostfile(options, std::string(text)); }},
    {"-x", set_exported},
    {"--through", set_way},
    {"--bind", set_bind},
    {"--bind-order", set_bind_order},
    {"--agent",
     [](RunOptions& options, std::string_view text) {
       options.agent = text;
       return Status();
     }},
    {"--part", set_part},
    {"--address",
     [](RunOptions& options, std::string_view text) {
       options.part.address = text;
       return Status();
     }},
    {"--job",
     [](RunOptions& options, std::string_view text) {
       options.part.job_id = text;
       return Status();
     }},
};

// The option that this word is or begins with ("-n4", "--grace=2"), and its value if that is in the word.
const ValueOption* find_value_option(std::string_view word, std::optional<std::string_view>* value) {
  for (const ValueOption& option : kValueOptions) {
    if (word == option.name) return &option;
    if (!word.starts_with(option.name)) continue;
    const bool is_long = option.name.starts_with("--");
    if (is_long && word[option.name.size()] != '=') continue;
    *value = word.substr(option.name.size() + (is_long ? 1 : 0));
    return &option;
  }
  return nullptr;
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
  bool has_rank_count = false;
  std::size_t i = 0;
  for (; i < arguments.size() && arguments[i].starts_with('-'); ++i) {
    const std::string_view word = arguments[i];
    if (word == "--help" || word == "-h") {
      options.wants_help = true;
      return options;
    }
    if (word == "--") {
      ++i;
      break;
    }
    if (word == "--no-prefix") {
      options.has_prefix = false;
      continue;
    }
    if (word == "--report-bindings") {
      options.reports_bindings = true;
      continue;
    }
    std::optional<std::string_view> value;
    const ValueOption* const option = find_value_option(word, &value);
    if (option == nullptr) {
      return invalid_argument(
          fmt::format("unknown option '{}'; known are -n, -H, --hostfile, -x, --through, --agent, --bind, "
                      "--bind-order, --report-bindings, --no-prefix, --grace and --help",
                      word));
    }
    if (!value) {
      if (i + 1 == arguments.size()) return invalid_argument(fmt::format("{}: a value must follow", word));
      value = arguments[++i];
    }
    TUTTI_RETURN_IF_ERROR(option->set(options, *value));
    has_rank_count = has_rank_count || option->name == "-n";
  }
  for (; i < arguments.size(); ++i) options.program.emplace_back(arguments[i]);
  if (options.program.empty()) return invalid_argument("a program to run must follow the options");
  TUTTI_RETURN_IF_ERROR(place_on_hosts(options, has_rank_count));
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
  if (options->hosts.empty() && options->way.empty()) return run_job(*options);
  if (choose_way(*options) == "ssh") return run_job(*options);
  for (const ExportedVariable& variable : options->exported)
    ::setenv(variable.name.c_str(), variable.value.c_str(), 1);
  const Result<std::vector<std::string>> command = hand_over(*options);
  if (!command) {
    fmt::print(stderr, "tutti run: {}\n", command.status().message());
    return kUsageStatus;
  }
  std::vector<char*> words;
  for (const std::string& word : *command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  ::execvp(words[0], words.data());
  fmt::print(stderr, "tutti run: cannot run '{}': {}\n", words[0], std::strerror(errno));
  return kNotFoundStatus;
}

}  // namespace tutti
