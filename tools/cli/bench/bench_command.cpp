// `tutti bench`: decides who runs the ranks (a launcher, this process, threads) and starts them.
// Knows no measurement.
#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <condition_variable>
#include <cstdlib>
#include <latch>
#include <mutex>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/ascii.hpp"
#include "runtime/base/config.hpp"
#include "runtime/base/thread.hpp"
#include "runtime/job/launchers/launch.hpp"
#include "runtime/selection/selection.hpp"
#include "tools/cli/arguments.hpp"
#include "tools/cli/bench/about.hpp"
#include "tools/cli/bench/against.hpp"
#include "tools/cli/bench/gpu_memory.hpp"
#include "tools/cli/bench/neighbours.hpp"
#include "tools/cli/bench/options.hpp"
#include "tools/cli/bench/placement.hpp"
#include "tools/cli/bench/plot.hpp"
#include "tools/cli/bench/puppet_show.hpp"
#include "tools/cli/bench/rank.hpp"
#include "tools/cli/bench/workload.hpp"
#include "tools/cli/commands.hpp"
#include "tools/cli/files.hpp"
#include "tools/cli/run/run.hpp"

namespace tutti::tool {
namespace {

// An allgather between threads, for tutti::init.
class ThreadExchange {
 public:
  explicit ThreadExchange(int rank_count) : contributions_(static_cast<std::size_t>(rank_count)) {}

  std::vector<std::string> allgather(int rank, std::string_view mine) {
    std::unique_lock lock(mutex_);
    contributions_[static_cast<std::size_t>(rank)] = mine;
    if (++arrived_count_ == contributions_.size()) {
      result_ = contributions_;
      arrived_count_ = 0;
      ++turn_;
      changed_.notify_all();
    } else {
      // The last of the next turn cannot come before everybody has left this one.
      changed_.wait(lock, [this, turn = turn_] { return turn_ != turn; });
    }
    return result_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> contributions_, result_;
  std::size_t arrived_count_ = 0;
  std::uint64_t turn_ = 0;
};

// Runs a rank; what it throws ends it with a message and a status.
template <class Run>
int guarded(int rank, Run&& run) {
  std::string who = "tutti bench";
  if (rank >= 0) who += fmt::format(": rank {}", rank);
  try {
    return run();
  } catch (const Error& error) {
    fmt::print(stderr, "{}: {}\n", who, error.what());
    return error.code() == StatusCode::invalid_argument ? 2 : 1;
  } catch (const std::bad_alloc&) {
    fmt::print(stderr,
               "{}: out of memory; raise `ulimit -v` or the cgroup's memory.max, or use fewer ranks\n", who);
    return 1;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", who, error.what());
    return 1;
  }
}

// For messages, where it is known before the world is.
int rank_of(const Environment& environment) {
  const auto text =
      environment.find("TUTTI_RANK") ? environment.find("TUTTI_RANK") : environment.find("RANK");
  return parse_number<int>(text.value_or("")).value_or(-1);
}

// This process is one rank of a job, or the only one.
int run_process_rank(const BenchOptions& options, const Environment& environment, bool is_alone, int* rank) {
  const std::vector<int> cpus = allowed_cpus_by(options.map);
  return guarded(is_alone ? -1 : rank_of(environment), [&] {
    if (options.binding == Binding::core) {
      const auto local_rank = get_integer(environment, "TUTTI_LOCAL_RANK");
      const Status bound = bind_to_core(local_rank && *local_rank ? static_cast<int>(**local_rank) : 0, cpus);
      if (!bound) throw Error(bound.code(), -1, "--bind core: " + bound.message());
    }
    const CommGroup group = init();
    *rank = group.rank();
    return options.is_server ? serve_bench_rank(options, group) : run_bench_rank(options, group, cpus);
  });
}

int run_threads(const BenchOptions& options, const Environment& environment) {
  // Ranks of one process would take shared memory too; what is asked for here is the transport for threads.
  if (!environment.find("TUTTI_TRANSPORTS")) ::setenv("TUTTI_TRANSPORTS", "inproc", 1);
  const std::vector<int> cpus = allowed_cpus_by(options.map);
  ThreadExchange exchange(options.rank_count);
  std::vector<int> statuses(static_cast<std::size_t>(options.rank_count));
  std::vector<std::thread> threads;
  threads.reserve(statuses.size());
  std::latch all_started(1);  // a rank that runs takes address space that a later one's stack needs
  for (int rank = 0; rank < options.rank_count; ++rank) {
    Result<std::thread> thread = start_thread("tutti-rank", [&, rank] {
      all_started.wait();
      const int status = guarded(rank, [&] {
        if (options.binding == Binding::core) {
          const Status bound = bind_to_core(rank, cpus);
          if (!bound) throw Error(bound.code(), -1, "--bind core: " + bound.message());
        }
        InitOptions init_options;
        init_options.allgather = [&exchange, rank](std::string_view mine) {
          return exchange.allgather(rank, mine);
        };
        init_options.rank = rank;
        init_options.size = options.rank_count;
        return run_bench_rank(options, init(init_options), cpus);
      });
      statuses[static_cast<std::size_t>(rank)] = status;
      // The other threads wait for this one at a barrier that knows no failure.
      if (status != 0 && rank != 0) std::_Exit(status);
    });
    if (!thread) {
      fmt::print(stderr, "tutti bench: rank {}: {}\n", rank, thread.status().message());
      std::_Exit(1);  // the ranks that have started wait for this one
    }
    threads.push_back(*std::move(thread));
  }
  all_started.count_down();
  for (std::thread& thread : threads) thread.join();
  return statuses[0];
}

// Starts this program again, once per rank.
int run_processes(const BenchOptions& options, int argc, char** argv) {
  RunOptions job;
  job.rank_count = options.rank_count;
  job.has_prefix = false;
  job.program = {own_path(), "bench"};
  for (int i = 1; i < argc; ++i) job.program.emplace_back(argv[i]);
  job.program.insert(job.program.end(),
                     {"--child", "--bind", options.binding == Binding::core ? "core" : "none"});
  return run_job(job);
}

// Finds the mistakes that every rank would report, once, before there are ranks.
Status check_before_start(const BenchOptions& options, const Environment& environment) {
  TUTTI_RETURN_IF_ERROR(check_values(environment));
  TUTTI_RETURN_IF_ERROR(check_outputs(options));
  if (options.is_roofline) return {};
  const std::string variable = "TUTTI_ADJUST_" + to_upper(to_string(options.collective));
  const auto rules = get_text(environment, variable);
  if (!rules) return rules.status();
  std::vector<RuleText> texts;
  if (*rules) texts.push_back({options.collective, variable, **rules});
  const auto selector = Selector::make(std::move(texts));
  if (!selector) return selector.status();
  if (!options.workload.empty()) {
    const auto workload = load_workload(options.workload);
    if (!workload) return workload.status();
  }
  if (options.root < 0 || options.root >= options.rank_count)
    return invalid_argument(
        fmt::format("--root {}: the ranks are 0 to {}", options.root, options.rank_count - 1));
  Question question;
  question.collective = options.collective;
  question.bytes = options.first_bytes;
  question.size = static_cast<std::uint32_t>(options.rank_count);
  // Whether there are domains only the ranks find out: here it is enough that there could be.
  const std::uint32_t domains[] = {1, question.size - 1};
  const Hierarchy hierarchy = Hierarchy::of_sizes(domains);
  question.hierarchy = &hierarchy;
  question.is_device = options.is_on_gpus();
  const auto choice = selector->choose(question, options.algorithm);
  if (!choice && !options.algorithm.empty()) return choice.status().with_context("--algorithm");
  return {};
}

// As one rank of a job that a launcher has started.
int run_inside_job(BenchOptions& options, const Environment& environment, std::string_view launcher,
                   const std::vector<std::string>& words) {
  if (!options.against.empty() || options.overlap_ms > 0 || options.uses_threads ||
      !options.puppet_ranks.empty() ||
      ((options.has_rank_count || options.neighbour_count > 0) && !options.is_child)) {
    return usage_error("bench",
                       invalid_argument(fmt::format(
                           "-n, --threads, --overlap, --against, --puppet and --beside start ranks of their "
                           "own, so they cannot be given inside a job (started by {})",
                           launcher)));
  }
  int rank = 0;
  TemporaryLines lines(options);
  const int status = run_process_rank(options, environment, false, &rank);
  if (status != 0 || options.is_child || rank != 0) return status;
  return draw_plots(options, [&] { return about_run(options, environment, words, std::string(launcher)); });
}

// The number of ranks and their binding, where this process starts them.
Status prepare_ranks(BenchOptions& options, const Environment& environment) {
  const int cpu_count = count_allowed_cpus();
  int most_useful = cpu_count;
  if (options.is_on_gpus()) {
    const auto gpu_count = count_gpus();
    if (!gpu_count) return gpu_count.status();
    most_useful = *gpu_count;
  }
  if (!options.has_rank_count) options.rank_count = most_useful;
  const bool fits = options.rank_count <= cpu_count;
  // --bind comes before TUTTI_PIN, which the launcher of the ranks obeys.
  const bool is_pinned = environment.find("TUTTI_PIN").value_or("off") != "off";
  if (options.binding != Binding::automatic) {
    ::setenv("TUTTI_PIN", "off", 1);
  } else {
    // Threads of NCCL's and of our own work beside a rank that has its buffers on a GPU.
    options.binding = !is_pinned && !options.is_on_gpus() ? Binding::core : Binding::none;
  }
  if ((options.is_roofline || options.has_bounds) && !fits) {
    return unsupported(fmt::format("roofline: each rank needs a CPU of its own; {} ranks, {} CPUs",
                                   options.rank_count, cpu_count));
  }
  return check_before_start(options, environment);
}

}  // namespace

// Has more than 15 decisions because there is one for each way to get the ranks.
int bench_command(int argc, char** argv) {
  int status = 0;
  auto parsed = parse_bench_options(argc, argv, &status);
  if (!parsed) return status;
  BenchOptions& options = *parsed;
  const Environment environment = Environment::of_process();
  std::vector<std::string> words = {"tutti", "bench"};
  words.insert(words.end(), argv + 1, argv + argc);

  if (const std::string_view launcher = find_launcher(environment); launcher != "none")
    return run_inside_job(options, environment, launcher, words);

  if (!options.puppet_ranks.empty())
    return guarded(-1, [&] { return run_puppet_show(options, environment); });

  if (const Status ready = prepare_ranks(options, environment); !ready) return usage_error("bench", ready);

  if (const auto bed = Bed::current(); options.nodes.node_count > 0 && bed) {
    if (bed->addresses.size() != static_cast<std::size_t>(options.nodes.node_count))
      return usage_error("bench",
                         invalid_argument(fmt::format("--nodes: this bed has {}", bed->addresses.size())));
  } else if (options.nodes.node_count > 0) {
    std::vector<std::string> command = {own_path(), "bench"};
    command.insert(command.end(), argv + 1, argv + argc);
    return usage_error("bench", enter_bed(options.nodes, options.rate, command).with_context("--nodes"));
  }

  // The ranks are this process and its children, or threads of it: nothing else has been started yet.
  const auto neighbours = BusyNeighbours::start(options.is_server ? 0 : options.neighbour_count);
  if (!neighbours) return usage_error("bench", neighbours.status().with_context("--beside"));
  if (options.neighbour_count > 0 && !options.is_server) {
    fmt::print("# beside {} busy process{}\n", options.neighbour_count,
               options.neighbour_count == 1 ? "" : "es");
    std::fflush(stdout);
  }

  // A plot is drawn from JSON lines; without --json they go to a file that has no name for long.
  TemporaryLines lines(options);
  std::vector<char*> arguments(argv, argv + argc);
  std::string json_option = "--json=" + options.json_path;
  if (lines.is_used()) arguments.push_back(json_option.data());
  if (!options.against.empty() || options.overlap_ms > 0) {
    status = run_comparison(options);
  } else if (options.uses_threads) {
    status = run_threads(options, environment);
  } else if (options.rank_count == 1) {
    int rank = 0;
    status = run_process_rank(options, environment, true, &rank);
  } else {
    status = run_processes(options, static_cast<int>(arguments.size()), arguments.data());
  }
  if (status != 0 || options.is_server) return status;
  return draw_plots(options, [&] { return about_run(options, environment, words, ""); });
}

}  // namespace tutti::tool
