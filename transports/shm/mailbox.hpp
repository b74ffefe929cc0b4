// Passes descriptors of segments between instances over an abstract unix socket.
// Knows no memory layout. Whatever arrives that is not a note of a peer of the same user is dropped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/status.hpp"
#include "transports/memory/instance.hpp"

namespace tutti::shm {

// An owned descriptor.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Fd();
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

// What is said about one segment; its descriptor travels with it.
struct SegmentNote {
  std::uint64_t magic = memory::kLayoutMagic;
  memory::Nonce from;  // the sender's instance
  memory::Nonce to;    // proves that the sender was given our address
  std::uint64_t index = 0;
  std::uint64_t bytes = 0;
};

// The listening side. Not thread-safe.
class Mailbox {
 public:
  // Listens under a name made from `nonce`. Errors: unsupported, resource_exhausted.
  static Result<std::unique_ptr<Mailbox>> open(const memory::Nonce& nonce);

  // Takes what has arrived and calls `take` for each valid note. Never waits, allocates nothing.
  void receive(const std::function<void(const SegmentNote&, Fd)>& take);

 private:
  Mailbox(const memory::Nonce& nonce, Fd listener);
  bool receive_from(int connection, const std::function<void(const SegmentNote&, Fd)>& take) const;

  memory::Nonce nonce_;
  Fd listener_;
  std::vector<Fd> connections_;
};

// The sending side towards one peer. It also tells whether the peer lives. Not thread-safe.
class Courier {
 public:
  Courier(const memory::Nonce& self, const memory::Nonce& peer) : self_(self), peer_(peer) {}

  // Sends notes of all segments of `instance` that were not sent yet. Never waits; call again until it is
  // true.
  bool push(const memory::Instance& instance);
  // The peer's process in our numbering; 0 while unknown.
  int pid() const { return pid_; }
  // Whether the peer's process ended, or another user answers under its name. Makes a system call.
  bool is_gone();

 private:
  bool connect();

  memory::Nonce self_;
  memory::Nonce peer_;
  Fd connection_;
  Fd process_;  // pidfd, where the system allows it
  int pid_ = 0;
  bool is_gone_ = false;
  std::uint32_t sent_count_ = 0;
};

}  // namespace tutti::shm
