// A trace of the calls of one rank, with their times and choices, as a file for trace viewers
// (ui.perfetto.dev, chrome://tracing). Knows no group layer and no transport.
//
// The file is an array in the Trace Event Format, one event a line. Each collective and message is a span,
// with its algorithm and the rule that chose it. Each call on a GPU, and each wait that stalls, is an
// instant. Times count from 2026-01-01 UTC by the machine's clock, so that the files of all ranks fit
// together. Lines are written every tenth of a second while there are any.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/call.hpp"
#include "runtime/base/status.hpp"
#include "runtime/base/trace_file.hpp"
#include "runtime/base/work.hpp"

namespace tutti {

class Trace {
 public:
  // One collective or message that has ended.
  struct Span {
    std::uint64_t context = 0;  // of its group or stream
    std::uint32_t rank = 0;     // in the group or stream
    std::uint32_t size = 0;
    std::uint32_t sequence = 0;  // of collectives
    std::uint32_t choice = 0;    // what note_choice() returned; 0: there was none to make
    std::uint64_t bytes = 0;     // of the full vector
    Call call;                   // its memory is not accessed
    SteadyClock::time_point submitted, started, ended;
    StatusCode status = StatusCode::ok;
  };

  // `path` with the rank instead of %r, or before its extension if the job has several ranks. Replaces an
  // existing file, but follows no symbolic link. Errors: invalid_argument with the system's reason.
  static Result<std::unique_ptr<Trace>> open(const std::string& path, int rank, int size);
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  // All from any thread. The first failed write is reported, and ends the trace. Registers a text that spans
  // refer to: the algorithm and the reason for it. Above 0; equal for equal texts.
  std::uint32_t note_choice(std::string_view text);
  void add(const Span& span);
  // An event at this moment: `name` is short, `text` describes it.
  void mark(std::string_view name, std::string_view text);
  // Writes all pending lines.
  void flush();

 private:
  Trace(std::unique_ptr<TraceFile> file, int rank);
  void write_spans();  // this and the following with the mutex held
  void write(const Span& span);
  std::size_t track_of(const Span& span);
  std::string timestamp(SteadyClock::time_point at) const;

  struct Track {
    std::uint64_t context;
    SteadyClock::time_point busy_until;
  };

  std::mutex mutex_;
  const std::unique_ptr<TraceFile> file_;
  const int rank_;
  const std::chrono::nanoseconds offset_;  // from SteadyClock to the times of the file
  std::vector<Span> spans_;
  SteadyClock::time_point last_flush_;
  std::vector<std::string> choices_;  // as JSON
  std::map<std::string, std::uint32_t, std::less<>> choice_numbers_;
  std::vector<Track> tracks_;
  std::map<std::uint64_t, std::size_t> group_numbers_;  // by context, in order of appearance
};

}  // namespace tutti
