// A descriptor that is closed with its owner, and at once in a child of fork(): a connection that lives on in a
// child would hide the death of its rank. Knows no address.
#pragma once

#include <unistd.h>

#include <utility>

#include "runtime/base/fork_guard.hpp"

namespace tutti::tcp {

class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd), generation_(fork_generation()) {
    if (fd_ >= 0) close_on_fork(fd_);
  }
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)), generation_(other.generation_) {}
  Socket& operator=(Socket&& other) noexcept {
    if (this == &other) return *this;
    close();
    fd_ = std::exchange(other.fd_, -1);
    generation_ = other.generation_;
    return *this;
  }
  ~Socket() { close(); }

  // -1 in a child of fork(): there the number may be another's by now.
  int fd() const { return generation_ == fork_generation() ? fd_ : -1; }
  bool is_open() const { return fd() >= 0; }
  void close() {
    const int fd = this->fd();
    fd_ = -1;
    if (fd < 0) return;
    forget_on_fork(fd);
    ::close(fd);
  }

 private:
  int fd_ = -1;
  unsigned generation_ = 0;
};

}  // namespace tutti::tcp
