// Runs the plot script in a python that has matplotlib. Knows where the script lies.
#include "tools/cli/bench/plot.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <string>
#include <vector>

#include "tools/cli/files.hpp"
#include "tools/cli/process.hpp"

namespace tutti::tool {
namespace {

// The script's own status for "this python has no matplotlib"; then another python may.
constexpr int kNoMatplotlib = 3;
}  // namespace

int draw_plot(const BenchOptions& options) {
  if (options.plot_path.empty()) return 0;
  const auto script = find_data_file("cli/plot/plot_bench.py", "plot_bench.py");
  if (!script) {
    fmt::print(stderr, "tutti bench: --plot: {}\n", script.status().message());
    return 1;
  }
  // The first python3 of PATH may be a bare one beside a system's that has the package.
  constexpr std::array kPythons = {"python3", "/usr/bin/python3"};
  for (const char* python : kPythons) {
    const bool is_last = python == kPythons.back();
    const int status = run_and_wait({python, *script, options.json_path, options.plot_path}, !is_last);
    if (status == 0) {
      fmt::print("# plot: {}\n", options.plot_path);
      return 0;
    }
    if (status != kNoMatplotlib && status != kNotStarted && !is_last)
      return run_and_wait({python, *script, options.json_path, options.plot_path}, false);
  }
  fmt::print(stderr,
             "tutti bench: --plot: nothing was drawn; it needs python3 with matplotlib (Debian: apt install "
             "python3-matplotlib). The results can be drawn later: {} RESULTS.json {}\n",
             *script, options.plot_path);
  return 1;
}

TemporaryLines::TemporaryLines(BenchOptions& options) {
  if (options.plot_path.empty() || !options.json_path.empty()) return;
  const char* folder = std::getenv("TMPDIR");
  path_ = fmt::format("{}/tutti-bench-XXXXXX", folder != nullptr && *folder != '\0' ? folder : "/tmp");
  const int fd = ::mkstemp(path_.data());
  if (fd < 0) {
    path_.clear();
    return;
  }
  ::close(fd);
  options.json_path = path_;
}

TemporaryLines::~TemporaryLines() {
  if (!path_.empty()) ::unlink(path_.c_str());
}

}  // namespace tutti::tool
