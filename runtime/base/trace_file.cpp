// See trace_file.hpp.
#include "runtime/base/trace_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "runtime/base/running_clock.hpp"

namespace tutti {
namespace {

constexpr std::chrono::seconds kEpoch{1767225600};  // 2026-01-01
constexpr std::string_view kOpening = "[\n", kClosing = "\n]\n";

}  // namespace

Result<std::unique_ptr<TraceFile>> TraceFile::open(const std::string& path) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (fd < 0) {
    return invalid_argument(
        fmt::format("cannot write '{}': {}", path,
                    errno == ELOOP ? "it is a symbolic link, which is not followed" : std::strerror(errno)));
  }
  return std::unique_ptr<TraceFile>(new TraceFile(fd, path));
}

TraceFile::TraceFile(int fd, std::string path)
    : fd_(fd), path_(std::move(path)), is_seekable_(::lseek(fd, 0, SEEK_CUR) == 0) {}

TraceFile::~TraceFile() {
  static_cast<void>(write());
  if (fd_ < 0) return;
  if (!is_seekable_) static_cast<void>(put(kClosing));
  ::close(fd_);
}

void TraceFile::add(std::string_view event) {
  if (fd_ < 0) return;
  kept_ += is_first_ ? kOpening : ",\n";
  kept_ += event;
  is_first_ = false;
}

Status TraceFile::write() {
  if (fd_ < 0 || kept_.empty()) return {};
  const std::size_t bytes = kept_.size();
  // In one call, so that events and bracket appear together.
  if (is_seekable_) kept_ += kClosing;
  Status status = put(kept_);
  kept_.clear();
  end_ += static_cast<std::int64_t>(bytes);
  if (status) return {};
  ::close(std::exchange(fd_, -1));
  return status;
}

Status TraceFile::put(std::string_view text) {
  for (std::size_t done = 0; done < text.size();) {
    const char* const from = text.data() + done;
    const std::size_t left = text.size() - done;
    const ssize_t written = is_seekable_ ? ::pwrite(fd_, from, left, end_ + static_cast<std::int64_t>(done))
                                         : ::write(fd_, from, left);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0)
      return invalid_argument(fmt::format("'{}' cannot be written: {}", path_, std::strerror(errno)));
    done += static_cast<std::size_t>(written);
  }
  return {};
}

std::string quote_json(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

std::string in_microseconds(std::chrono::nanoseconds time) {
  return fmt::format("{}.{:03}", time.count() / 1000, time.count() % 1000);
}

std::chrono::nanoseconds trace_epoch_offset() {
  const auto wall = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(wall) - kEpoch -
         SteadyClock::now().time_since_epoch();
}

}  // namespace tutti
