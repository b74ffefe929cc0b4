// Line assembly for the output of ranks. Knows no process.
#include "tools/run/output.hpp"

#include <poll.h>
#include <unistd.h>

#include <cerrno>

namespace tutti {

void LinePrefixer::emit(std::string_view line_end, std::string& out) {
  out += prefix_;
  out += partial_;
  out += line_end;
  out += '\n';
  partial_.clear();
}

void LinePrefixer::feed(std::string_view bytes, std::string& out) {
  while (!bytes.empty()) {
    const std::size_t newline = bytes.find('\n');
    const std::size_t room = kMaxLineBytes - partial_.size();
    if (newline <= room) {  // npos is larger than any room
      emit(bytes.substr(0, newline), out);
      bytes.remove_prefix(newline + 1);
    } else if (bytes.size() >= room) {
      emit(bytes.substr(0, room), out);
      bytes.remove_prefix(room);
    } else {
      partial_ += bytes;
      return;
    }
  }
}

void LinePrefixer::finish(std::string& out) {
  if (!partial_.empty()) emit({}, out);
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
