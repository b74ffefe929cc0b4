// A connection to the launcher that started this process, with deadlines. Knows no protocol.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "runtime/base/fork_guard.hpp"
#include "runtime/base/status.hpp"
#include "runtime/base/work.hpp"

namespace tutti::detail {

// Errors of all calls: timeout; peer_failed where the other side has closed the connection. Messages begin
// with the name. Reading takes no byte beyond the returned ones: an MPI library may share the connection, and
// reads on from there. One thread at a time.
class LauncherSocket {
 public:
  // From a descriptor that the launcher left open, which stays open: this duplicates it. Errors:
  // invalid_argument where that is not an open socket.
  static Result<LauncherSocket> adopt(int fd, std::string name);
  // `address` is "host:port". Resolving a name may take longer than the deadline. Errors: invalid_argument.
  static Result<LauncherSocket> connect(std::string_view address, Clock::time_point deadline,
                                        std::string name);

  LauncherSocket(LauncherSocket&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), generation_(other.generation_), name_(std::move(other.name_)) {}
  LauncherSocket& operator=(LauncherSocket&& other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(generation_, other.generation_);
    std::swap(name_, other.name_);
    return *this;
  }
  ~LauncherSocket();

  Status write(std::string_view bytes, Clock::time_point deadline);
  // Without its newline. A longer line than `limit_bytes` is an error.
  Result<std::string> read_line(std::size_t limit_bytes, Clock::time_point deadline);
  Result<std::string> read_bytes(std::size_t count, Clock::time_point deadline);
  const std::string& name() const { return name_; }
  // True in a child of fork(): the connection belongs to the parent.
  bool is_inherited() const { return generation_ != fork_generation(); }

 private:
  LauncherSocket(int fd, std::string name);
  Status wait_until_ready(short events, Clock::time_point deadline);
  // Returns the bytes of one recv() with these flags, at most `limit`; waits for the first.
  Result<std::string> receive(std::size_t limit, int flags, Clock::time_point deadline);

  int fd_ = -1;
  unsigned generation_ = 0;
  std::string name_;
};

}  // namespace tutti::detail
