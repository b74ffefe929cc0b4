// Settings of progress threads, which carry operations on while the program computes, from the environment.
// Knows no thread.
#pragma once

#include <cstdint>

#include "runtime/base/config.hpp"
#include "runtime/base/status.hpp"
#include "topology/progress_cpus.hpp"

namespace tutti {

struct ProgressSettings {
  std::uint32_t thread_count = 1;
  ProgressCpuList cpus;
  bool cpus_may_be_missing = false;  // they are MLSL's: a CPU that is not there causes a warning
};

// Reads TUTTI_PROGRESS_*, and MLSL's variables where these are not set. Errors: invalid_argument naming the
// variable, what it was given and what was expected.
Result<ProgressSettings> read_progress_settings(const Environment& environment);

}  // namespace tutti
