// A file in the Trace Event Format, which trace viewers read (ui.perfetto.dev, chrome://tracing): an array of
// events, one a line. Knows no event.
//
// Each write leaves complete JSON: the next one begins where the closing bracket is. So the file of a killed
// process lacks the last events, and nothing else. A pipe gets the bracket at the end.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "runtime/base/status.hpp"

namespace tutti {

class TraceFile {
 public:
  // Replaces an existing file, but follows no symbolic link: in a folder that other users may write to it could
  // point to a file of this user. Errors: invalid_argument with the system's reason.
  static Result<std::unique_ptr<TraceFile>> open(const std::string& path);
  ~TraceFile();
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;

  const std::string& path() const { return path_; }
  // A JSON object; kept until the next write().
  void add(std::string_view event);
  // Writes the kept events. After the first failure, which it returns, nothing is written or kept any more.
  Status write();

 private:
  TraceFile(int fd, std::string path);
  Status put(std::string_view text);

  int fd_;  // -1 once it could not be written
  const std::string path_;
  bool is_seekable_;
  std::int64_t end_ = 0;  // where the closing bracket is
  bool is_first_ = true;
  std::string kept_;
};

// A text as JSON.
std::string quote_json(std::string_view text);
// "12.345"
std::string in_microseconds(std::chrono::nanoseconds time);
// From SteadyClock to times since 2026-01-01 UTC by the machine's clock: microseconds since then are exact in a
// double.
std::chrono::nanoseconds trace_epoch_offset();

}  // namespace tutti
