// The options of `tutti bench` and the words given for them. Knows nothing of what fits together; see options.hpp.
#pragma once

#include <string>

#include "tools/cli/arguments.hpp"
#include "tools/cli/bench/options.hpp"

namespace tutti::tool {

// Words as they were given, before they are checked.
struct BenchWords {
  std::string collective, dtype = "f32", op = "sum", first = "4", last = "256m", factor = "4";
  std::string compute = "100ms", then, device = "host", allocation = "malloc", pages = "4k", binding = "auto",
              nodes, against, map, puppet;
  int iterations = 0;
  bool is_b2b = false, is_hot = false;
};

// The parser writes to both, which outlive it.
void declare_bench_options(ArgumentParser& app, BenchOptions& options, BenchWords& words);

}  // namespace tutti::tool
