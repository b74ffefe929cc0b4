// The present activity of the ranks of a job, from two readings of their records. Knows no file and no terminal.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tools/cli/json.hpp"
#include "tools/cli/record/job_records.hpp"

namespace tutti::tool {

// Of one rank in one group or stream. Rates are by second.
struct GroupActivity {
  std::string name;
  double calls = 0, bytes = 0;  // of full vectors
  double waiting = 0;  // the share of the time in which it has waited for late ranks, of completed calls
  struct Operation {
    std::string call;
    std::uint64_t number = 0;
    std::string phase;                    // "waits", "moves", "reduces", "queued"
    std::optional<int> awaited;           // a rank of the world
    std::optional<std::uint64_t> age_ns;  // since its submission; unknown for short calls
  };
  std::optional<Operation> operation;  // the first one under way
};

struct RankActivity {
  int rank = 0, pid = 0;
  std::string host;
  bool is_alive = false;
  std::optional<double> cpus;                // that its process keeps busy
  std::map<std::string, double> transports;  // bytes sent and received by messages, by second
  std::vector<GroupActivity> groups;
};

// CPU time of processes, in nanoseconds, by pid.
using CpuTimes = std::map<int, std::uint64_t>;

struct Reading {
  JobRecords job;
  CpuTimes cpu;
  std::uint64_t at = 0;    // nanoseconds of CLOCK_MONOTONIC of this machine
  std::uint64_t boot = 0;  // of the ranks whose clock that is
};

// `before` and `after` are of one job.
std::vector<RankActivity> activity_of(const Reading& before, const Reading& after);

// CPU time of the threads of a process; nullopt: there is none, or it is hidden.
std::optional<std::uint64_t> cpu_time_of(int pid);

Json to_json(const RankActivity& rank);

}  // namespace tutti::tool
