// Prints what was measured. Knows columns and widths only.
#include "tools/cli/bench/report.hpp"

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
