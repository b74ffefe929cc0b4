// What the calls of one rank were, when they ran and why in that way, as a file that trace viewers draw
// (ui.perfetto.dev, chrome://tracing). Knows no group layer and no transport.
//
// The file is an array in the Trace Event Format, one event a line: a span for each collective and message,
// from the call to its end, with the algorithm and the rule that chose it; an instant for each call that a
// GPU carries, and for each wait that stalls. Times count from 2026-01-01 UTC by the clock of the machine, so
// that the files of all ranks fit together. Lines are written every tenth of a second while there are any:
// what a killed process leaves lacks the closing bracket, which viewers do without.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/call.hpp"
#include "runtime/base/status.hpp"
#include "runtime/base/work.hpp"

namespace tutti {

class Trace {
 public:
  // One collective or message that has ended.
  struct Span {
    std::uint64_t context = 0;  // of its group or stream
    std::uint32_t rank = 0;     // there
    std::uint32_t size = 0;
    std::uint32_t sequence = 0;  // of collectives
    std::uint32_t choice = 0;    // what note_choice() returned; 0: there was none to make
    std::uint64_t bytes = 0;     // of the full vector
    Call call;                   // its memory is not looked at
    SteadyClock::time_point submitted, started, ended;
    StatusCode status = StatusCode::ok;
  };

  // `path` with the rank instead of %r, or before its extension if the job has several ranks. Replaces what
  // is there, but follows no symbolic link. Errors: invalid_argument with the system's reason.
  static Result<std::unique_ptr<Trace>> open(const std::string& path, int rank, int size);
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  // All from any thread. What cannot be written is reported once, and the trace ends there.
  // A text that spans refer to: the algorithm and why it was chosen. Above 0, the same for the same text.
  std::uint32_t note_choice(std::string_view text);
  void add(const Span& span);
  // Something at this moment: `name` is short, `text` says what.
  void mark(std::string_view name, std::string_view text);
  // Writes what is not in the file yet.
  void flush();

 private:
  Trace(std::FILE* file, std::string path, int rank);
  void write_spans();  // this and the following with the mutex held
  void write(const Span& span);
  void write_event(std::string_view json);
  std::size_t track_of(const Span& span);
  std::string timestamp(SteadyClock::time_point at) const;

  struct Track {
    std::uint64_t context;
    SteadyClock::time_point busy_until;
  };

  std::mutex mutex_;
  std::FILE* file_;  // null once it could not be written
  const std::string path_;
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
