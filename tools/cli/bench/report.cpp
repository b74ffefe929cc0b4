// Prints what was measured. Knows columns and widths only.
#include "tools/cli/bench/report.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "runtime/base/ascii.hpp"

namespace tutti::tool {

std::string bytes_text(std::uint64_t bytes) {
  constexpr std::array kUnits = {"KiB", "MiB", "GiB", "TiB"};
  if (bytes < 1024) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (value /= 1024; value >= 1024 && unit + 1 < kUnits.size(); ++unit) value /= 1024;
  return fmt::format("{:.4g} {}", value, kUnits[unit]);
}

namespace {

bool is_terminal(int fd) {
  const char* kind = std::getenv("TERM");
  return ::isatty(fd) == 1 && (kind == nullptr || std::string_view(kind) != "dumb");
}

// Columns of a terminal; 80 where it does not say.
std::size_t width_of(int fd) {
  winsize size{};
  return ::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

// A locale that is set and is not of UTF-8 has no blocks; without one, the terminals of today do.
bool has_blocks(const Environment& environment) {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const std::string locale = to_upper(environment.find(name).value_or(""));
    if (!locale.empty())
      return locale.find("UTF-8") != std::string::npos || locale.find("UTF8") != std::string::npos;
  }
  return true;
}

// `share` of `width` cells, in eighths of a cell where there are blocks. Always `width` cells wide.
std::string bar_text(double share, int width, bool is_in_blocks) {
  constexpr std::array kParts = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const int eighths = std::clamp(static_cast<int>(std::lround(share * width * 8)), 1, width * 8);
  if (!is_in_blocks) return fmt::format("{:<{}}", std::string((eighths + 7) / 8, '#'), width);
  std::string text;
  for (int i = 0; i < eighths / 8; ++i) text += "█";
  text += kParts[static_cast<std::size_t>(eighths % 8)];
  return text + std::string(static_cast<std::size_t>(width - (eighths + 7) / 8), ' ');
}

}  // namespace

Progress::Progress() : has_terminal_(is_terminal(STDERR_FILENO)) {}

void Progress::show(double done, std::string_view what, std::optional<double> seconds_left) {
  if (!has_terminal_) return;
  constexpr int kWidth = 24;
  const double so_far = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  if (!seconds_left && done > 0) seconds_left = so_far * (1 - done) / done;
  const auto full = static_cast<std::size_t>(std::clamp(done, 0.0, 1.0) * kWidth);
  std::string text = fmt::format("[{}{}] {:.0f} % {}", std::string(full, '#'),
                                 std::string(kWidth - full, '.'), 100 * done, what);
  if (seconds_left) {
    const auto seconds = static_cast<int>(std::ceil(std::max(0.0, *seconds_left)));
    text += seconds >= 60 ? fmt::format("; {} min {} s left", seconds / 60, seconds % 60)
                          : fmt::format("; {} s left", seconds);
  }
  // A line that wraps could not be written over.
  fmt::print(stderr, "\r\x1b[K{}", text.substr(0, width_of(STDERR_FILENO) - 1));
  std::fflush(stderr);
  is_shown_ = true;
}

void Progress::clear() {
  if (is_shown_) fmt::print(stderr, "\r\x1b[K");
  is_shown_ = false;
}

std::string bars_text(std::string_view title, const std::vector<Bar>& bars, const Environment& environment) {
  constexpr int kWidth = 40;
  double most = 0;
  std::size_t label_width = 0;
  for (const Bar& bar : bars) {
    most = std::max(most, bar.value);
    label_width = std::max(label_width, bar.label.size());
  }
  if (bars.size() < 2 || !(most > 0)) return {};
  const bool is_coloured = environment.find("NO_COLOR").value_or("").empty();
  std::string text = fmt::format("\n{}\n", title);
  for (const Bar& bar : bars) {
    text += fmt::format("{:>{}} {}{}{} {}\n", bar.label, label_width, is_coloured ? "\x1b[36m" : "",
                        bar_text(bar.value / most, kWidth, has_blocks(environment)),
                        is_coloured ? "\x1b[0m" : "", bar.text);
  }
  return text;
}

void print_bars(std::string_view title, const std::vector<Bar>& bars) {
  if (!is_terminal(STDOUT_FILENO)) return;
  fmt::print("{}", bars_text(title, bars, Environment::of_process()));
  std::fflush(stdout);
}

Result<JsonLines> JsonLines::open(const std::string& path) {
  JsonLines lines;
  if (path.empty()) return lines;
  lines.file_.reset(std::fopen(path.c_str(), "w"));
  if (!lines.file_) return invalid_argument(fmt::format("--json {}: {}", path, std::strerror(errno)));
  return lines;
}

void JsonLines::write(const std::string& object) {
  if (!file_) return;
  std::fprintf(file_.get(), "%s\n", object.c_str());
  std::fflush(file_.get());
}

void print_table_header(bool has_bounds) {
  fmt::print("{:>10} {:>11} {:>6} {:>10} {:<22} {:>10} {:>10} {:>10} {:>8} {:>8} {:>7}", "size", "count",
             "dtype", "op", "algorithm", "p50 us", "p95 us", "min us", "algbw", "busbw", "wrong");
  if (has_bounds) fmt::print(" {:>10} {:>7}  {}", "bound us", "reached", "bound");
  fmt::print("\n");
  std::fflush(stdout);
}

void print_table_row(const bench::Record& record, std::string_view label) {
  const bench::Shape& shape = record.shape;
  const double algbw = bench::algorithm_bandwidth_gbs(shape.bytes(), record.times.p50_us);
  fmt::print("{:>10} {:>11} {:>6} {:>10} {:<22} {:>10.2f} {:>10.2f} {:>10.2f} {:>8.3f} {:>8.3f} {:>7}",
             label.empty() ? bytes_text(shape.bytes()) : std::string(label), shape.count,
             to_string(shape.dtype), is_reducing(shape.collective) ? to_string(record.op) : "none",
             record.algorithm, record.times.p50_us, record.times.p95_us, record.times.min_us, algbw,
             algbw * bench::bus_factor(shape.collective, shape.ranks),
             record.is_checked ? std::to_string(record.wrong_count) : "-");
  if (record.bound_us > 0)
    fmt::print(" {:>10.2f} {:>6.0f}%  {}", record.bound_us, bench::roofline_percent(record), record.bound);
  fmt::print("\n");
  std::fflush(stdout);
}

void print_gpu_table_header() {
  fmt::print("#{:55}{:^37}{:^37}\n", "", "out-of-place", "in-place");
  fmt::print("#{:>12} {:>13} {:>9} {:>11} {:>6}", "size", "count", "type", "redop", "root");
  for (int form = 0; form < 2; ++form)
    fmt::print(" {:>10} {:>8} {:>8} {:>7}", "time", "algbw", "busbw", "#wrong");
  fmt::print("  algorithm\n#{:>12} {:>13} {:>9} {:>11} {:>6}", "(B)", "(elements)", "", "", "");
  for (int form = 0; form < 2; ++form)
    fmt::print(" {:>10} {:>8} {:>8} {:>7}", "(us)", "(GB/s)", "(GB/s)", "");
  fmt::print("\n");
  std::fflush(stdout);
}

void print_gpu_table_row(const bench::Record* out_of_place, const bench::Record* in_place) {
  const bench::Record& any = out_of_place != nullptr ? *out_of_place : *in_place;
  const bench::Shape& shape = any.shape;
  fmt::print(" {:>12} {:>13} {:>9} {:>11} {:>6}", shape.bytes(), bench::call_count(shape),
             to_string(shape.dtype), is_reducing(shape.collective) ? to_string(any.op) : "none",
             is_rooted(shape.collective) ? shape.root : -1);
  for (const bench::Record* record : {out_of_place, in_place}) {
    if (record == nullptr) {
      fmt::print(" {:>10} {:>8} {:>8} {:>7}", "N/A", "N/A", "N/A", "N/A");
      continue;
    }
    const double algbw = bench::algorithm_bandwidth_gbs(shape.bytes(), record->times.p50_us);
    fmt::print(" {:>10.2f} {:>8.2f} {:>8.2f} {:>7}", record->times.p50_us, algbw,
               algbw * bench::bus_factor(shape.collective, shape.ranks),
               record->is_checked ? std::to_string(record->wrong_count) : "N/A");
  }
  fmt::print("  {}\n", any.algorithm);
  std::fflush(stdout);
}

void print_ceilings_summary(const bench::Ceilings& ceilings) {
  const auto cache = [](std::uint64_t bytes) { return bytes == 0 ? "unknown" : bytes_text(bytes); };
  if (ceilings.ranks > 1)
    fmt::print(
        "# a line takes {:.0f} ns from core to core, an exchange of lines in the timed loop {:.0f} ns; ",
        ceilings.line_us * 1e3, ceilings.exchange_us * 1e3);
  else
    fmt::print("# ");
  fmt::print("L2 {} per core, last level {} per rank\n", cache(ceilings.l2_bytes),
             cache(ceilings.last_level_bytes));
}

void print_ceilings(const bench::Ceilings& ceilings) {
  print_ceilings_summary(ceilings);
  if (!ceilings.vm_read_missing.empty())
    fmt::print("# vm_read: not measured ({})\n", ceilings.vm_read_missing);
  for (const bool is_rate : {true, false}) {
    fmt::print("{:>10}", is_rate ? "GB/s" : "us");
    for (const std::string_view name : bench::kCeilingNames) fmt::print(" {:>11}", name);
    fmt::print("\n");
    const bench::Curve& sizes = ceilings.of(bench::Ceiling::copy);
    for (std::size_t i = 0; i < sizes.point_count(); ++i) {
      fmt::print("{:>10}", bytes_text(sizes.bytes_of(i)));
      for (const bench::Curve& curve : ceilings.curves) {
        if (curve.is_empty()) {
          fmt::print(" {:>11}", "-");
        } else {
          fmt::print(" {:>11.2f}", is_rate ? bench::algorithm_bandwidth_gbs(curve.bytes_of(i), curve.us_of(i))
                                           : curve.us_of(i));
        }
      }
      fmt::print("\n");
    }
  }
}

void write_ceilings(const bench::Ceilings& ceilings, JsonLines& json) {
  const auto write = [&](std::string_view name, std::uint64_t bytes, double us) {
    json.write(
        fmt::format("{{\"ceiling\": \"{}\", \"bytes\": {}, \"ranks\": {}, \"p50_us\": {:.6g}, "
                    "\"GBs\": {:.6g}, \"l2_bytes\": {}, \"last_level_bytes\": {}}}",
                    name, bytes, ceilings.ranks, us, bench::algorithm_bandwidth_gbs(bytes, us),
                    ceilings.l2_bytes, ceilings.last_level_bytes));
  };
  constexpr std::uint64_t kLineBytes = 64;
  if (ceilings.ranks > 1) {
    write("line", kLineBytes, ceilings.line_us);
    write("exchange", kLineBytes, ceilings.exchange_us);
  }
  for (std::size_t kind = 0; kind < ceilings.curves.size(); ++kind) {
    const bench::Curve& curve = ceilings.curves[kind];
    for (std::size_t i = 0; i < curve.point_count(); ++i)
      write(bench::kCeilingNames[kind], curve.bytes_of(i), curve.us_of(i));
  }
}

}  // namespace tutti::tool
