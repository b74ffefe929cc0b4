// Turns the byte streams of ranks into whole lines with a prefix, and writes them to our own.
// Knows pipes and terminals, no process.
#pragma once

#include <poll.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/owned_fd.hpp"
#include "runtime/base/status.hpp"
#include "tools/cli/run/part_messages.hpp"

namespace tutti {

class LinePrefixer;

// One device that streams write to: it stands at the start of a line, or behind the unfinished line of a
// stream that was shown.
struct Cursor {
  const LinePrefixer* open_line = nullptr;
};

// Collects one stream and emits it line by line, so that lines of different ranks never mix. A line ends at
// \n, or at a \r that is not followed by \n: progress bars write themselves again from there.
class LinePrefixer {
 public:
  // A longer line is emitted in pieces: memory stays bounded whatever a rank prints.
  static constexpr std::size_t kMaxLineBytes = std::size_t{1} << 20U;

  // The cursor must outlive it; null: nothing unfinished is shown. `has_times`: the local time comes before the
  // prefix.
  explicit LinePrefixer(std::string prefix, Cursor* cursor = nullptr, bool has_times = false)
      : prefix_(std::move(prefix)), cursor_(cursor), has_times_(has_times) {}

  // Appends every line completed by `bytes`, with prefix and end, to `out`.
  void feed(std::string_view bytes, std::string& out);
  // Appends what there is of an unfinished line; what follows continues it unless another stream writes
  // first.
  void show(std::string& out);
  // Appends what is left of an unfinished last line, ended by a newline.
  void finish(std::string& out);
  // Is there something that show() would append?
  bool has_unfinished() const { return !partial_.empty(); }

 private:
  void begin(std::string& out);
  void emit(std::string_view line_end, char terminator, std::string& out);

  std::string prefix_;
  Cursor* cursor_;
  bool has_times_;
  std::string partial_;
  bool ended_by_return_ = false;  // a \n that follows belongs to it
};

// The output of all ranks: from their pipes to our stdout and stderr. A write to those blocks, which is how a
// slow reader slows the ranks down as it would without us.
class RankOutput {
 public:
  enum Target : std::size_t { to_stdout, to_stderr };

  RankOutput();
  // `copy`: a file that gets the same bytes without prefixes, if it is open.
  void add(OwnedFd pipe, LinePrefixer lines, Target target, OwnedFd copy = OwnedFd());
  Cursor* cursor_of(Target target);  // null where target is no terminal
  // The standard error of a part of an elastic job, which has its messages in it.
  void add_part(OwnedFd pipe, std::size_t part, std::string_view job_id);
  // Since the last call, with the number of the part.
  std::vector<std::pair<std::size_t, PartMessage>> take_messages() { return std::exchange(messages_, {}); }

  // One entry for each stream, in their order; closed ones are -1.
  void append_polls(std::vector<pollfd>& fds) const;
  // Reads the streams whose entries have events, and writes what is complete.
  void read(const pollfd* fds);
  // Shows unfinished lines on terminals once nothing has followed them for a moment; and how long until then.
  void show_prompts();
  std::optional<std::chrono::milliseconds> time_to_prompt() const;
  // Reads all that is in the pipes by now. With `until` also reads until all are closed, and then the ends.
  void read_available();
  void drain(std::chrono::steady_clock::time_point until);
  // A line of our own, on stderr.
  void say(const std::string& line);
  // The terminal has echoed a newline that somebody typed.
  void note_typed_newline();
  // Why nothing more can be written to stdout: an errno, EPIPE where its reader has gone; 0: it can.
  int stdout_error() const { return write_error_[to_stdout]; }

 private:
  struct Stream {
    OwnedFd pipe;
    LinePrefixer lines;
    Target target;
    OwnedFd copy;
    std::optional<PartMessageReader> reader = {};
    std::size_t part = 0;
    std::optional<std::chrono::steady_clock::time_point> show_at = {};
  };
  void read_stream(Stream& stream);
  void copy(Stream& stream, std::string_view bytes);
  void flush();

  std::array<bool, 2> is_terminal_{};
  std::array<Cursor, 2> cursors_;
  std::array<Cursor*, 2> cursor_of_;    // one for both where both are one terminal
  std::array<std::string, 2> pending_;  // for our stdout and stderr
  std::array<int, 2> write_error_{};    // errno of the first write that failed: nothing is written any more
  std::deque<Stream> streams_;          // cursors point at its lines
  std::vector<std::pair<std::size_t, PartMessage>> messages_;
};

// For ranks from `first_rank` on the files FOLDER/rank.N/stdout and stderr, emptied unless `appends`; N has as many digits as the last
// rank of `size`. Errors: invalid_argument naming the path that cannot be made.
using OutputFiles = std::array<OwnedFd, 2>;  // by RankOutput::Target
Result<std::vector<OutputFiles>> open_output_files(const std::string& folder, int first_rank, int count,
                                                   int size, bool appends = false);

// Writes everything, retrying after signals. False when the reader is gone (EPIPE) or the device fails.
bool write_all(int fd, std::string_view bytes);

}  // namespace tutti
