// The output of a benchmark: a table for people, JSON lines for programs, progress and bars on a
// terminal. Knows no measurement.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/harness/record.hpp"
#include "bench/roofline/ceilings.hpp"
#include "runtime/base/config.hpp"
#include "runtime/base/status.hpp"

namespace tutti::tool {

// "4 B", "1764 B", "64 KiB", "1.5 MiB": exact where that is short, else three digits.
std::string bytes_text(std::uint64_t bytes);

// One line over the last one on a terminal's standard error; nothing elsewhere.
class Progress {
 public:
  Progress();
  ~Progress() { clear(); }
  // "[#####.....] 50 % 64 KiB; 1 min 30 s left". `done`: of all, 0 to 1. Where `seconds_left` is not given it
  // follows from the time so far.
  void show(double done, std::string_view what, std::optional<double> seconds_left = {});
  void clear();

 private:
  bool has_terminal_;
  bool is_shown_ = false;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

// A bar chart of Unicode blocks, or of '#' in a locale that has none. Coloured unless NO_COLOR is set.
struct Bar {
  std::string label;
  double value = 0;
  std::string text;  // behind the bar
};
std::string bars_text(std::string_view title, const std::vector<Bar>& bars, const Environment& environment);
// The same below a table at a terminal; nothing elsewhere, or where there is nothing to compare.
void print_bars(std::string_view title, const std::vector<Bar>& bars);

// A file of JSON objects, one per line, flushed after each. Without a path it swallows them.
class JsonLines {
 public:
  // Errors: invalid_argument if the file cannot be written.
  static Result<JsonLines> open(const std::string& path);
  void write(const std::string& object);

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::unique_ptr<std::FILE, Close> file_;
};

// The table of one library.
void print_table_header(bool has_bounds);
// `label` stands in place of the size if given ("total").
void print_table_row(const bench::Record& record, std::string_view label = {});

// The table of calls on GPUs, in the columns of nccl-tests: each call out of place and in place.
void print_gpu_table_header();
// Null where the call has no such form, or was not asked for.
void print_gpu_table_row(const bench::Record* out_of_place, const bench::Record* in_place);

// The ceilings, in GB/s and us by size; and the same as JSON lines.
void print_ceilings(const bench::Ceilings& ceilings);
void write_ceilings(const bench::Ceilings& ceilings, JsonLines& json);
// The sizes of caches and the way of a line, which every bound rests on, in one line.
void print_ceilings_summary(const bench::Ceilings& ceilings);

}  // namespace tutti::tool
