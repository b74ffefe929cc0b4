// Prints what was measured. Knows columns and widths only.
#include "tools/commands/bench/report.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace tutti::tool {

std::string bytes_text(std::uint64_t bytes) {
  constexpr std::array kUnits = {"KiB", "MiB", "GiB", "TiB"};
  if (bytes < 1024) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (value /= 1024; value >= 1024 && unit + 1 < kUnits.size(); ++unit) value /= 1024;
  return fmt::format("{:.4g} {}", value, kUnits[unit]);
}

Progress::Progress() : has_terminal_(::isatty(STDERR_FILENO) == 1) {}

void Progress::show(std::string_view text) {
  if (!has_terminal_) return;
  fmt::print(stderr, "\r\x1b[K{}", text);
  std::fflush(stderr);
  is_shown_ = true;
}

void Progress::clear() {
  if (is_shown_) fmt::print(stderr, "\r\x1b[K");
  is_shown_ = false;
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

void print_table_header() {
  fmt::print("{:>10} {:>11} {:>6} {:>10} {:<22} {:>10} {:>10} {:>10} {:>8} {:>8} {:>7}\n", "size", "count",
             "dtype", "op", "algorithm", "p50 us", "p95 us", "min us", "algbw", "busbw", "wrong");
  std::fflush(stdout);
}

void print_table_row(const bench::Record& record, std::string_view label) {
  const bench::Shape& shape = record.shape;
  const double algbw = bench::algorithm_bandwidth_gbs(shape.bytes(), record.times.p50_us);
  fmt::print("{:>10} {:>11} {:>6} {:>10} {:<22} {:>10.2f} {:>10.2f} {:>10.2f} {:>8.3f} {:>8.3f} {:>7}\n",
             label.empty() ? bytes_text(shape.bytes()) : std::string(label), shape.count,
             to_string(shape.dtype), is_reducing(shape.collective) ? to_string(record.op) : "none",
             record.algorithm, record.times.p50_us, record.times.p95_us, record.times.min_us, algbw,
             algbw * bench::bus_factor(shape.collective, shape.ranks),
             record.is_checked ? std::to_string(record.wrong_count) : "-");
  std::fflush(stdout);
}

}  // namespace tutti::tool
