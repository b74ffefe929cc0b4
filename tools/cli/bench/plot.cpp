// Runs the plot script, for a .png in a python that has matplotlib. Knows where the script lies.
#include "tools/cli/bench/plot.hpp"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/cli/arguments.hpp"
#include "tools/cli/files.hpp"
#include "tools/cli/process.hpp"

namespace tutti::tool {
namespace {

// The script's own status for "this python has no matplotlib"; then another python may.
constexpr int kNoMatplotlib = 3;

// Draws the results to `path`; `about` is a file for the page.
int draw_to(const std::string& path, std::string_view option, const BenchOptions& options,
            const std::string& about) {
  const auto script = find_data_file("cli/plot/plot_bench.py", "plot_bench.py");
  if (!script) {
    fmt::print(stderr, "tutti bench: {}: {}\n", option, script.status().message());
    return 1;
  }
  // The first python3 of PATH may be a bare one beside a system's that has the package.
  constexpr std::array kPythons = {"python3", "/usr/bin/python3"};
  for (const char* python : kPythons) {
    const bool is_last = python == kPythons.back();
    // Without -B python would leave a folder of its own beside the scripts.
    std::vector<std::string> words = {python, "-B", *script};
    if (!about.empty()) words.insert(words.end(), {"--about", about});
    words.insert(words.end(), {options.json_path, path});
    const int status = run_and_wait(words, !is_last);
    if (status == 0) {
      fmt::print("# {}: {}\n", option.substr(2), path);
      return 0;
    }
    if (status != kNoMatplotlib && status != kNotStarted && !is_last) return run_and_wait(words, false);
  }
  const bool needs_package = path.ends_with(".png");
  fmt::print(stderr, "tutti bench: {}: nothing was drawn; it needs {}. {} --json FILE keeps the results.\n",
             option,
             needs_package ? "python3 with matplotlib (Debian: apt install python3-matplotlib)"
                           : "python3 (Debian: apt install python3)",
             needs_package ? "A name that ends in .svg needs no package;" : "Until then");
  return 1;
}

}  // namespace

int draw_plots(const BenchOptions& options, const std::function<Json()>& about) {
  int status = 0;
  if (!options.plot_path.empty()) status = draw_to(options.plot_path, "--plot", options, "");
  if (options.html_path.empty()) return status;
  const std::string text = about().dump();
  const OwnedFd file(::memfd_create("about", 0));
  const bool is_written =
      file.is_open() && ::write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const int page_status =
      draw_to(options.html_path, "--html", options, is_written ? fmt::format("/dev/fd/{}", file.get()) : "");
  return std::max(status, page_status);
}

Status check_outputs(const BenchOptions& options) {
  for (const auto& [option, path] :
       {std::pair("--json", options.json_path), std::pair("--plot", options.plot_path),
        std::pair("--html", options.html_path)}) {
    if (!path.empty()) TUTTI_RETURN_IF_ERROR(check_writable(option, path));
  }
  return {};
}

TemporaryLines::TemporaryLines(BenchOptions& options) {
  const bool is_drawn = !options.plot_path.empty() || !options.html_path.empty();
  if (!is_drawn || !options.json_path.empty()) return;
  file_ = OwnedFd(::memfd_create("tutti-bench", MFD_CLOEXEC));
  // Other processes of this user open it by this name; no folder has to be there, none has to be writable.
  if (file_.is_open()) options.json_path = fmt::format("/proc/{}/fd/{}", ::getpid(), file_.get());
}

}  // namespace tutti::tool
