// How good the model's choices are where others have measured: fitted on two algorithms, asked for the best
// of all. Knows no file and no output.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/cli/tune/measurements.hpp"

namespace tutti::tool {

// One job and size.
struct Verdict {
  Job job;
  Collective collective = Collective::allreduce;
  std::uint64_t bytes = 0;
  std::string chosen, chosen_algorithm, best;  // the measured names; ours for the one chosen
  double predicted_us = 0, chosen_us = 0, best_us = 0;
  double default_us = 0;  // 0: not measured
  std::uint32_t candidates = 0;
};

struct JobReport {
  Job job;
  std::string fitted[2];             // the measured names
  std::vector<std::string> skipped;  // candidates without a price, and why
};

struct Evaluation {
  std::vector<Verdict> verdicts;
  std::vector<JobReport> jobs;
};

// Jobs with fewer than two candidates, and sizes with fewer than two, are left out. Errors: invalid_argument
// where nothing is left.
Result<Evaluation> evaluate(const Measurements& measured, const AliasMap& map);

}  // namespace tutti::tool
