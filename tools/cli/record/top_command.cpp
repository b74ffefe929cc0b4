// `tutti top`: watches a job that runs, by reading the records of its ranks. Stops nobody.
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <string>
#include <thread>

#include <fmt/format.h>

#include "tools/cli/arguments.hpp"
#include "tools/cli/commands.hpp"
#include "tools/cli/record/activity.hpp"
#include "tools/cli/record/verdict.hpp"

namespace tutti::tool {
namespace {

struct TopOptions {
  std::string what;
  double interval = 1.0;  // seconds
  bool is_json = false, is_once = false;
};

Result<Reading> read_job(const std::string& what, const std::string& world) {
  auto job = find_job(what, world);
  if (!job) return job.status();
  Reading reading;
  for (const record::RecordedRank& rank : job->ranks) {
    if (!rank.is_alive) continue;
    reading.boot = rank.boot;
    if (const auto time = cpu_time_of(rank.pid)) reading.cpu[rank.pid] = *time;
  }
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  reading.at = static_cast<std::uint64_t>(now.tv_sec) * 1000000000U + static_cast<std::uint64_t>(now.tv_nsec);
  reading.job = *std::move(job);
  return reading;
}

std::string describe_rate(double bytes) {
  if (bytes < 1e3) return fmt::format("{:.0f} B", bytes);
  if (bytes < 1e6) return fmt::format("{:.1f} kB", bytes / 1e3);
  return bytes < 1e9 ? fmt::format("{:.1f} MB", bytes / 1e6) : fmt::format("{:.2f} GB", bytes / 1e9);
}

std::string describe_operation(const GroupActivity& group) {
  if (!group.operation) return "-";
  const GroupActivity::Operation& now = *group.operation;
  std::string text = fmt::format("{} (number {}) {}", now.call, now.number, now.phase);
  if (now.awaited)
    text += fmt::format("{} rank {}", now.phase == "waits" ? " for" : ", awaits", *now.awaited);
  if (now.age_ns) text += fmt::format(", since {}", describe_time(*now.age_ns));
  return text;
}

void print_table(const JobRecords& job, const std::vector<RankActivity>& ranks) {
  fmt::print("job '{}', {} of {} ranks on this machine\n", job.job, ranks.size(), job.size());
  fmt::print("{:>5} {:>8} {:>5} {:>10} {:>10} {:>6}  {}\n", "rank", "pid", "cpus", "calls/s", "bytes/s",
             "late", "now");
  for (const RankActivity& rank : ranks) {
    bool is_first = true;
    for (const GroupActivity& group : rank.groups) {
      const bool is_quiet = !group.operation && group.calls == 0;
      if (is_quiet && !is_first) continue;
      const std::string name = is_first ? fmt::format("{:>5} {:>8} {:>5}", rank.rank,
                                                      rank.is_alive ? std::to_string(rank.pid) : "ended",
                                                      rank.cpus ? fmt::format("{:.2f}", *rank.cpus) : "-")
                                        : std::string(20, ' ');
      fmt::print("{} {:>10.0f} {:>10} {:>5.0f}%  {}: {}\n", name, group.calls, describe_rate(group.bytes),
                 100 * group.waiting, group.name, describe_operation(group));
      is_first = false;
    }
    for (const auto& [transport, bytes] : rank.transports) {
      if (bytes > 0)
        fmt::print("{:>20} {:>10} {:>10}         messages by {}\n", "", "", describe_rate(bytes), transport);
    }
  }
}

void print_json(const JobRecords& job, const std::vector<RankActivity>& ranks) {
  Json list = Json::array();
  for (const RankActivity& rank : ranks) list.push_back(to_json(rank));
  fmt::print(
      "{}\n",
      Json{{"job", job.job}, {"world", job.world}, {"size", job.size()}, {"ranks", std::move(list)}}.dump());
}

bool is_anyone_alive(const JobRecords& job) {
  for (const record::RecordedRank& rank : job.ranks) {
    if (rank.is_alive) return true;
  }
  return false;
}

int watch(const TopOptions& options) {
  auto before = read_job(options.what, "");
  if (!before) return usage_error("top", before.status());
  if (!is_anyone_alive(before->job)) {
    return usage_error("top",
                       invalid_argument(fmt::format("no rank of job '{}' runs on this machine any more; "
                                                    "tutti doctor reads what is left",
                                                    before->job.job)));
  }
  const std::string world = before->job.world;
  for (;;) {
    std::this_thread::sleep_for(std::chrono::duration<double>(options.interval));
    auto after = read_job(options.what, world);
    if (!after || !is_anyone_alive(after->job)) return 0;  // the job has ended
    const std::vector<RankActivity> ranks = activity_of(*before, *after);
    if (options.is_json) {
      print_json(after->job, ranks);
    } else {
      if (!options.is_once) std::fputs("\x1b[H\x1b[2J", stdout);
      print_table(after->job, ranks);
    }
    std::fflush(stdout);
    if (options.is_json || options.is_once) return 0;
    before = std::move(after);
  }
}

}  // namespace

int top_command(int argc, char** argv) {
  TopOptions options;
  ArgumentParser app(
      "Watches a job that runs on this machine: what each rank is doing now, for whom it waits, rates and "
      "CPUs. "
      "Reads the records of the ranks, and stops nobody.",
      "tutti top");
  app.footer(
      "Examples:\n"
      "  tutti top               the job that runs here\n"
      "  tutti top 4711          the job with this process\n"
      "  tutti top --json        one snapshot, for programs");
  app.add_option("job", options.what, "the id of a job, the pid of a rank, or a folder with record files");
  app.add_option("--interval", options.interval, "seconds between two readings, from which rates follow")
      .show_default();
  app.add_flag("--once", options.is_once, "print one table");
  app.add_flag("--json", options.is_json, "print one snapshot as JSON");
  int status = 0;
  if (!app.parse(argc, argv, &status)) return status;
  if (!(options.interval > 0 && options.interval <= 3600))
    return usage_error("top", invalid_argument("--interval: expected seconds above 0, at most 3600"));
  options.is_once = options.is_once || ::isatty(STDOUT_FILENO) == 0;
  return watch(options);
}

}  // namespace tutti::tool
