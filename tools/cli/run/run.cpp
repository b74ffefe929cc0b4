// The sub-commands `tutti run` and `tutti horovodrun`: from a command line to a job. Knows nothing of how the ranks
// are started; that is job.cpp.
#include "tools/cli/run/run.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

#include "runtime/base/version.hpp"
#include "tools/cli/run/flags.hpp"
#include "tools/cli/run/horovod_package.hpp"
#include "tools/cli/run/host_discovery.hpp"
#include "tools/cli/run/remote.hpp"

namespace tutti {
namespace {

constexpr int kUsageStatus = 2;

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
    "  --min-np N         go on without ranks that fail as long as N are left, and start others for them "
    "(docs/elastic.md)\n"
    "  --max-np N         up to so many ranks, where there are slots (default: -n)\n"
    "  --host-discovery-script COMMAND\n"
    "                     prints host:slots in each line, and is asked every second\n"
    "  --horovod          `import horovod` means tutti, as under `tutti horovodrun`, whose options are "
    "taken, too\n"
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

constexpr std::string_view kHorovodHelp =
    "Starts the ranks of a Horovod script: there `import horovod.torch` means tutti, nothing is installed "
    "over "
    "Horovod.\n"
    "\n"
    "Usage: tutti horovodrun -np N [-H HOST:SLOTS,...] [OPTION...] PROGRAM [ARGUMENT...]\n"
    "\n"
    "Options:\n"
    "  -np,--num-proc N   number of ranks\n"
    "  -H,--hosts HOST:SLOTS,...\n"
    "                     on these hosts, neighbouring ranks on each (default: this machine)\n"
    "  -hostfile,--hostfile FILE\n"
    "                     the same from a file: \"host slots=4\" in each line\n";

constexpr std::string_view kHorovodEnd =
    "\n"
    "Environment:\n"
    "  Each rank finds HOROVOD_RANK, HOROVOD_SIZE, HOROVOD_LOCAL_RANK, HOROVOD_LOCAL_SIZE, "
    "HOROVOD_CROSS_RANK,\n"
    "  HOROVOD_CROSS_SIZE and HOROVOD_HOSTNAME, and all that `tutti run` sets. The options of `tutti run` "
    "are taken,\n"
    "  too.\n";

int print_help(bool is_horovodrun) {
  if (is_horovodrun) {
    fmt::print("{}{}{}", kHorovodHelp, describe_horovod_flags(), kHorovodEnd);
  } else {
    fmt::print("{}", kHelp);
  }
  return 0;
}

// A single host that is this machine needs no part of its own.
void stay_here(RunOptions& options) {
  if (options.hosts.size() == 1 && options.way.empty() && options.agent.empty() &&
      is_here(options.hosts[0].host))
    options.part.placement = std::exchange(options.hosts, {});
}

// Becomes the launcher that starts the ranks. Returns only if that fails.
int become_launcher(const RunOptions& options) {
  for (const ExportedVariable& variable : options.exported)
    ::setenv(variable.name.c_str(), variable.value.c_str(), 1);
  const Result<std::vector<std::string>> command = hand_over(options);
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

int show_build(RunOptions& options, const char* name) {
  if (const Status status = use_horovod_alias(options); !status)
    fmt::print(stderr, "{}: {}\n", name, status.message());
  fmt::print("{}", describe_horovod_build(options));
  return 0;
}

// Asks the script until there are enough slots.
Status discover_hosts(RunOptions& options, const char* name) {
  HostDiscovery discovery(options.discovery_script, options.slots_per_host);
  const auto deadline = std::chrono::steady_clock::now() + options.elastic.timeout;
  const int wanted = options.has_rank_count ? options.rank_count : 1;
  for (bool is_first = true;; is_first = false) {
    const auto hosts = discovery.run();
    std::int64_t slots = 0;
    if (hosts) {
      for (const HostSlots& host : *hosts) slots += host.slots;
    }
    if (slots >= wanted) {
      options.hosts = *hosts;
      return place_job(options);
    }
    const std::string found =
        hosts ? fmt::format("the script offers {} slots of {}", slots, wanted) : hosts.status().message();
    if (std::chrono::steady_clock::now() >= deadline)
      return {StatusCode::timeout, fmt::format("--host-discovery-script: {}", found)};
    if (is_first) fmt::print(stderr, "{}: waiting for hosts: {}\n", name, found);
    std::this_thread::sleep_for(std::chrono::seconds(1));
  }
}

// Errors: unsupported for ranks that come and go under another launcher.
Status check_launcher(const RunOptions& options, bool is_ours) {
  if (!options.is_elastic() || is_ours) return {};
  return unsupported(fmt::format(
      "--min-np {}: {} ends the job when a rank fails; say --through ssh for ranks that come and go",
      options.elastic.min_ranks, choose_way(options)));
}

int start(RunOptions& options, const char* name) {
  if (!options.discovery_script.empty()) {
    if (const Status status = discover_hosts(options, name); !status) {
      fmt::print(stderr, "{}: {}\n", name, status.message());
      return 1;
    }
  }
  stay_here(options);
  const bool is_ours = (options.hosts.empty() && options.way.empty()) || choose_way(options) == "ssh";
  if (const Status status = check_launcher(options, is_ours); !status) {
    fmt::print(stderr, "{}: {}\n", name, status.message());
    return kUsageStatus;
  }
  // Parts on other hosts ask their own interpreters.
  if (options.is_horovod && (!is_ours || options.hosts.empty())) {
    if (const Status status = use_horovod_alias(options); !status) {
      fmt::print(stderr, "{}: {}\n", name, status.message());
      if (is_python(options)) return 1;
    }
  }
  for (const std::string& answer : options.answers) fmt::print(stderr, "{}: {}\n", name, answer);
  for (const ExportedVariable& variable : options.exported) {
    if (options.is_verbose) fmt::print(stderr, "{}: ranks get {}={}\n", name, variable.name, variable.value);
  }
  return is_ours ? run_job(options) : become_launcher(options);
}

int run(int argc, char** argv, bool is_horovodrun) {
  const char* const name = is_horovodrun ? "tutti horovodrun" : "tutti run";
  const std::vector<std::string_view> arguments(argv + (argc > 0 ? 1 : 0), argv + argc);
  Result<RunOptions> options = parse_run_options(arguments, is_horovodrun);
  if (!options) {
    fmt::print(stderr, "{}: {}\nTry '{} --help'.\n", name, options.status().message(), name);
    return kUsageStatus;
  }
  if (options->wants_help) return print_help(is_horovodrun);
  if (options->wants_version) {
    fmt::print("{}\n", version_text());
    return 0;
  }
  return options->wants_check_build ? show_build(*options, name) : start(*options, name);
}

}  // namespace

int run_command(int argc, char** argv) { return run(argc, argv, false); }

int horovodrun_command(int argc, char** argv) { return run(argc, argv, true); }

}  // namespace tutti
