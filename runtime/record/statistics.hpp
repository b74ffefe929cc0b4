// Statistics of a job from the records of its ranks: a table for people, and Prometheus' text. Knows no file.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "runtime/record/reading.hpp"

namespace tutti::record {

// Calls of one collective, size class, algorithm and transport, over all groups and ranks.
struct JobRow {
  RecordedRow sum;  // of all ranks: calls, bytes, times, waited, moved
  // Of the operations that the records still have: how often a rank came last. By rank of the world.
  std::map<int, std::uint64_t> last;
};

// The most time-consuming first. Clocks of the ranks should be one; ranks of other machines come last in no row.
std::vector<JobRow> job_rows(const std::vector<RecordedRank>& ranks);

// A line for each row; one line if no rank has called anything.
std::string describe_statistics(const std::vector<RecordedRank>& ranks);

// The exposition format 0.0.4: counters, labelled with rank, collective, algorithm and transport.
std::string prometheus_text(const std::vector<RecordedRank>& ranks);

}  // namespace tutti::record
