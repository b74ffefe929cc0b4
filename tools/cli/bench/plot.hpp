// Hands saved JSON lines to the plot script. Knows nothing of drawing.
#pragma once

#include <functional>
#include <string>

#include "runtime/base/owned_fd.hpp"
#include "tools/cli/bench/options.hpp"
#include "tools/cli/json.hpp"

namespace tutti::tool {

// Draws options.json_path to options.plot_path and options.html_path, as far as they were asked for; the page
// shows what `about` returns. Returns the exit status: 1 with a message if python3 or matplotlib is missing.
int draw_plots(const BenchOptions& options, const std::function<Json()>& about);

// Errors: invalid_argument for a file that cannot be written, before anything is measured.
Status check_outputs(const BenchOptions& options);

// Gives options.json_path a file in memory where something is drawn but there is no --json.
class TemporaryLines {
 public:
  explicit TemporaryLines(BenchOptions& options);
  bool is_used() const { return file_.is_open(); }

 private:
  OwnedFd file_;
};

}  // namespace tutti::tool
