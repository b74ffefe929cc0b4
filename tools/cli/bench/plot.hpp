// Hands saved JSON lines to the plot script. Knows nothing of drawing.
#pragma once

#include "tools/cli/bench/options.hpp"

namespace tutti::tool {

// Draws options.json_path to options.plot_path, if a plot was asked for. Returns the exit status: 1 with a
// message if python3 or matplotlib is missing.
int draw_plot(const BenchOptions& options);

// Gives options.json_path a temporary file where there is a plot but no --json; removes it at the end.
class TemporaryLines {
 public:
  explicit TemporaryLines(BenchOptions& options);
  ~TemporaryLines();
  TemporaryLines(const TemporaryLines&) = delete;
  TemporaryLines& operator=(const TemporaryLines&) = delete;
  bool is_used() const { return !path_.empty(); }

 private:
  std::string path_;
};

}  // namespace tutti::tool
