// `tutti tune` inside of a job: joins it, measures, says what came out and writes the tuning file. Knows no
// command line and no launcher.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/harness/harness.hpp"

namespace tutti::tool {

struct TuneOptions {
  std::vector<Collective> collectives;  // empty: all
  std::size_t first_bytes = 4, last_bytes = std::size_t{16} << 20U;
  double budget_seconds = 180;
  std::optional<bench::Mode> mode;  // none: back to back if ranks outnumber CPUs, else call by call
  std::string output;               // empty: the default path
  bool is_verified = false;
  bool is_json = false;
  std::string command;  // as it was typed, for the file
};

// Runs in every rank; returns the exit status of this one (1 at rank 0 if the rules were verified to be
// slower). Throws tutti::Error.
int run_tune_job(const TuneOptions& options);

}  // namespace tutti::tool
