// Passes descriptors of segments between instances over abstract unix sockets.
// Knows no memory layout. Whatever arrives that is not a note of a peer of the same user is dropped.
//
// A connection lasts as long as it takes to send what is new: at rest, an instance has one socket however
// many peers it has. Peers are watched by a descriptor of their process, which all instances of this one
// share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "runtime/base/owned_fd.hpp"
#include "runtime/base/status.hpp"
#include "transports/memory/instance.hpp"

namespace tutti::shm {

// Describes one segment; its descriptor travels with it.
struct SegmentNote {
  std::uint64_t magic = memory::kLayoutMagic;
  memory::Nonce from;  // the sender's instance
  memory::Nonce to;    // proves that the sender was given our address
  std::uint64_t index = 0;
  std::uint64_t file_offset = 0;
  std::uint64_t bytes = 0;
};

// Takes a note with its descriptor; with none where this process had no room for it (ulimit -n).
using TakeNote = std::function<void(const SegmentNote&, OwnedFd)>;

// "resource exhausted: what: Too many open files (limit: open files, ulimit -n)", from errno.
Status out_of_descriptors(const char* what);

// The listening side. Not thread-safe.
class Mailbox {
 public:
  // Listens under a name made from `socket_name`; takes what is for `nonce`. Errors: unsupported,
  // resource_exhausted.
  static Result<std::unique_ptr<Mailbox>> open(const memory::Nonce& socket_name, const memory::Nonce& nonce);

  // Takes what has arrived and calls `take` for each valid note. Never waits, allocates nothing. Errors:
  // resource_exhausted while connections wait for which there is no descriptor.
  Status receive(const TakeNote& take);

 private:
  Mailbox(const memory::Nonce& nonce, OwnedFd listener);
  bool receive_from(int connection, const TakeNote& take) const;

  memory::Nonce nonce_;
  OwnedFd listener_;
  std::vector<OwnedFd> connections_;
};

// The sending side towards one peer. It also tells whether the peer lives. Not thread-safe.
class SegmentSender {
 public:
  SegmentSender(const memory::Nonce& self, const memory::Nonce& peer, const memory::Nonce& socket_name)
      : self_(self), peer_(peer), socket_name_(socket_name) {}

  // Sends notes of all segments of `instance` that were not sent yet. Never waits; call again until it is
  // true. Errors: resource_exhausted, unsupported (the system keeps us from the peer); calling again may
  // help.
  Result<bool> push(const memory::Instance& instance);
  // The peer's process in our numbering; 0 while unknown.
  int pid() const { return pid_; }
  // Whether the peer's process ended, or another user answers under its name. Makes a system call. A peer
  // that has shown none of its memory yet (`has_memory`) may have closed its transport before it could.
  bool is_gone(bool has_memory);

 private:
  Status connect();
  void disconnect();

  memory::Nonce self_;
  memory::Nonce peer_;
  memory::Nonce socket_name_;
  OwnedFd connection_;                      // until all is sent; for ever where there is no process_
  std::shared_ptr<const OwnedFd> process_;  // pidfd, where the system allows it
  int pid_ = 0;
  bool is_gone_ = false;
  std::uint32_t sent_count_ = 0;
};

}  // namespace tutti::shm
