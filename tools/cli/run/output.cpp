// Line assembly for the output of ranks. Knows no process.
#include "tools/cli/run/output.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <system_error>
#include <utility>

namespace tutti {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kReadBytes = 65536;
// A program that writes a line in pieces is faster than that, and a person who waits for a prompt is not.
constexpr std::chrono::milliseconds kPromptDelay{50};

bool is_same_file(int a, int b) {
  struct stat first, second;
  return ::fstat(a, &first) == 0 && ::fstat(b, &second) == 0 && first.st_dev == second.st_dev &&
         first.st_ino == second.st_ino;
}

// "2026-02-03 14:05:06 "
std::string local_time() {
  const std::time_t now = std::time(nullptr);
  std::tm time{};
  if (::localtime_r(&now, &time) == nullptr) return {};
  return fmt::format("{:04}-{:02}-{:02} {:02}:{:02}:{:02} ", time.tm_year + 1900, time.tm_mon + 1,
                     time.tm_mday, time.tm_hour, time.tm_min, time.tm_sec);
}

}  // namespace

// -- lines --------------------------------------------------------------------------------------------------

void LinePrefixer::begin(std::string& out) {
  ended_by_return_ = false;
  if (cursor_ != nullptr && cursor_->open_line == this) return;
  if (cursor_ != nullptr && cursor_->open_line != nullptr) out += '\n';
  if (has_times_) out += local_time();
  out += prefix_;
}

void LinePrefixer::emit(std::string_view line_end, char terminator, std::string& out) {
  begin(out);
  out += partial_;
  out += line_end;
  out += terminator;
  partial_.clear();
  ended_by_return_ = terminator == '\r';
  if (cursor_ != nullptr) cursor_->open_line = nullptr;
}

void LinePrefixer::feed(std::string_view bytes, std::string& out) {
  if (ended_by_return_ && partial_.empty() && bytes.starts_with('\n')) {
    out += '\n';
    ended_by_return_ = false;
    bytes.remove_prefix(1);
  }
  // Whether a \r at the end of what came before ends a line is known only now.
  if (!bytes.empty() && partial_.ends_with('\r') && bytes.front() != '\n') {
    partial_.pop_back();
    emit({}, '\r', out);
  }
  while (!bytes.empty()) {
    std::size_t end = bytes.find_first_of("\r\n");
    while (end != std::string_view::npos && bytes[end] == '\r' &&
           (end + 1 == bytes.size() || bytes[end + 1] == '\n'))
      end = bytes.find_first_of("\r\n", end + 1);
    const std::size_t room = kMaxLineBytes - partial_.size();
    if (end <= room) {  // npos is larger than any room
      emit(bytes.substr(0, end), bytes[end], out);
      bytes.remove_prefix(end + 1);
    } else if (bytes.size() >= room) {
      emit(bytes.substr(0, room), '\n', out);
      bytes.remove_prefix(room);
    } else {
      partial_ += bytes;
      return;
    }
  }
}

void LinePrefixer::show(std::string& out) {
  if (partial_.empty() || cursor_ == nullptr) return;
  if (partial_.ends_with('\r')) {
    partial_.pop_back();
    return emit({}, '\r', out);
  }
  begin(out);
  out += partial_;
  partial_.clear();
  cursor_->open_line = this;
}

void LinePrefixer::finish(std::string& out) {
  if (!partial_.empty() || (cursor_ != nullptr && cursor_->open_line == this)) emit({}, '\n', out);
}

// -- streams ------------------------------------------------------------------------------------------------

RankOutput::RankOutput()
    : is_terminal_{::isatty(STDOUT_FILENO) == 1, ::isatty(STDERR_FILENO) == 1},
      cursor_of_{cursors_.data(), cursors_.data() + 1} {
  if (is_terminal_[to_stdout] && is_terminal_[to_stderr] && is_same_file(STDOUT_FILENO, STDERR_FILENO))
    cursor_of_[to_stderr] = cursor_of_[to_stdout];
}

Cursor* RankOutput::cursor_of(Target target) { return is_terminal_[target] ? cursor_of_[target] : nullptr; }

void RankOutput::add(OwnedFd pipe, LinePrefixer lines, Target target, OwnedFd copy) {
  streams_.push_back({std::move(pipe), std::move(lines), target, std::move(copy)});
}

void RankOutput::add_part(OwnedFd pipe, std::size_t part, std::string_view job_id) {
  add(std::move(pipe), LinePrefixer({}, cursor_of(to_stderr)), to_stderr);
  streams_.back().reader.emplace(job_id);
  streams_.back().part = part;
}

// A file that cannot be written ends its copy, not the job.
void RankOutput::copy(Stream& stream, std::string_view bytes) {
  if (!stream.copy.is_open() || write_all(stream.copy.get(), bytes)) return;
  say(fmt::format("tutti run: --output-filename: {}; the output goes on here alone", std::strerror(errno)));
  stream.copy.reset();
}

void RankOutput::append_polls(std::vector<pollfd>& fds) const {
  for (const Stream& stream : streams_) fds.push_back({stream.pipe.get(), POLLIN, 0});
}

void RankOutput::read(const pollfd* fds) {
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    if (fds[i].revents != 0) read_stream(streams_[i]);
  }
  flush();
}

void RankOutput::read_stream(Stream& stream) {
  std::array<char, kReadBytes> bytes;
  const ssize_t got = ::read(stream.pipe.get(), bytes.data(), bytes.size());
  if (got < 0 && (errno == EINTR || errno == EAGAIN)) return;
  std::string& out = pending_[stream.target];
  if (got > 0) {
    std::string rest;
    std::string_view fresh(bytes.data(), static_cast<std::size_t>(got));
    if (stream.reader) {
      std::vector<PartMessage> messages;
      fresh = rest = stream.reader->feed(fresh, messages);
      for (PartMessage& message : messages) messages_.emplace_back(stream.part, std::move(message));
    }
    copy(stream, fresh);
    stream.lines.feed(fresh, out);
    if (!stream.lines.has_unfinished()) {
      stream.show_at.reset();
    } else if (is_terminal_[stream.target] && !stream.show_at) {
      stream.show_at = Clock::now() + kPromptDelay;
    }
  } else {
    stream.lines.finish(out);
    stream.show_at.reset();
    stream.pipe.reset();
  }
  if (cursor_of_[to_stdout] == cursor_of_[to_stderr]) flush();  // in the order in which lines were begun
}

void RankOutput::show_prompts() {
  const Clock::time_point now = Clock::now();
  for (Stream& stream : streams_) {
    if (!stream.show_at || *stream.show_at > now) continue;
    stream.show_at.reset();
    stream.lines.show(pending_[stream.target]);
    flush();
  }
}

std::optional<std::chrono::milliseconds> RankOutput::time_to_prompt() const {
  std::optional<std::chrono::milliseconds> least;
  for (const Stream& stream : streams_) {
    if (!stream.show_at) continue;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(*stream.show_at - Clock::now());
    least = std::max(std::min(left, least.value_or(left)), std::chrono::milliseconds(0));
  }
  return least;
}

void RankOutput::flush() {
  for (const Target target : {to_stdout, to_stderr}) {
    if (pending_[target].empty()) continue;
    const int fd = target == to_stdout ? STDOUT_FILENO : STDERR_FILENO;
    if (write_error_[target] == 0 && !write_all(fd, pending_[target])) write_error_[target] = errno;
    pending_[target].clear();
  }
}

void RankOutput::read_available() {
  for (Stream& stream : streams_) {
    pollfd ready{stream.pipe.get(), POLLIN, 0};
    while (stream.pipe.is_open() && ::poll(&ready, 1, 0) > 0) read_stream(stream);
  }
  flush();
}

void RankOutput::drain(Clock::time_point until) {
  for (Stream& stream : streams_) {
    while (stream.pipe.is_open()) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
      pollfd ready{stream.pipe.get(), POLLIN, 0};
      if (::poll(&ready, 1, static_cast<int>(std::max<std::int64_t>(left.count(), 0))) <= 0) break;
      read_stream(stream);
      flush();
    }
    stream.lines.finish(pending_[stream.target]);
    flush();
  }
}

void RankOutput::say(const std::string& line) {
  std::string& out = pending_[to_stderr];
  if (cursor_of_[to_stderr]->open_line != nullptr) out += '\n';
  cursor_of_[to_stderr]->open_line = nullptr;
  out += line + "\n";
  flush();
}

void RankOutput::note_typed_newline() {
  for (Cursor& cursor : cursors_) cursor.open_line = nullptr;
}

Result<std::vector<OutputFiles>> open_output_files(const std::string& folder, int first_rank, int count,
                                                   int size, bool appends) {
  const int mode = appends ? O_APPEND : O_TRUNC;
  const std::size_t digits = std::to_string(size - 1).size();
  std::vector<OutputFiles> files(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) {
    const std::string path = fmt::format("{}/rank.{:0{}}", folder, first_rank + i, digits);
    std::error_code error;
    std::filesystem::create_directories(path, error);
    if (error) return invalid_argument(fmt::format("--output-filename: {}: {}", path, error.message()));
    for (const auto& [target, name] :
         {std::pair(RankOutput::to_stdout, "stdout"), std::pair(RankOutput::to_stderr, "stderr")}) {
      const std::string file = fmt::format("{}/{}", path, name);
      OwnedFd& fd = files[static_cast<std::size_t>(i)][target];
      fd = OwnedFd(::open(file.c_str(), O_WRONLY | O_CREAT | mode | O_CLOEXEC, 0666));
      if (!fd.is_open())
        return invalid_argument(fmt::format("--output-filename: {}: {}", file, std::strerror(errno)));
    }
  }
  return files;
}

bool write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno == EAGAIN) {
      pollfd waiter{fd, POLLOUT, 0};
      ::poll(&waiter, 1, -1);
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

}  // namespace tutti
