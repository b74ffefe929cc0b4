// Mapping and reading another process; see remote_peer.hpp.
#include "transports/memory/shm/remote_peer.hpp"

#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "transports/memory/shm/segment.hpp"

namespace tutti::shm {

using memory::Peer;

Peer::Copied copy_from_process(int pid, std::span<const iovec> local, std::span<const iovec> remote) {
  std::size_t wanted = 0;
  for (const iovec& part : local) wanted += part.iov_len;
  const ssize_t n = ::process_vm_readv(pid, local.data(), local.size(), remote.data(), remote.size(), 0);
  if (n == static_cast<ssize_t>(wanted)) return Peer::Copied::ok;
  // A short answer means that a page could not be read; the sender can still copy it itself.
  return n < 0 && (errno == EPERM || errno == EACCES || errno == ENOSYS) ? Peer::Copied::denied
                                                                         : Peer::Copied::failed;
}

std::string probe_single_copy() {
  std::uint64_t from = 42;
  std::uint64_t to = 0;
  const iovec local{&to, sizeof(to)};
  const iovec remote{&from, sizeof(from)};
  if (::process_vm_readv(::getpid(), &local, 1, &remote, 1, 0) == sizeof(to) && to == from) return {};
  return std::string("process_vm_readv: ") + std::strerror(errno);
}

RemotePeer::~RemotePeer() {
  const auto unmap = [](const Part& part) {
    for (const Mapped& mapped : part) {
      std::byte* base = mapped.base.load(std::memory_order_relaxed);
      if (base != nullptr) unmap_segment({base, mapped.bytes, -1});
    }
  };
  unmap(first_part_);
  for (const std::atomic<Part*>& each : parts_behind_) {
    const std::unique_ptr<Part> part(each.load(std::memory_order_relaxed));
    if (part != nullptr) unmap(*part);
  }
}

ByteRange RemotePeer::segment(std::uint32_t index) {
  if (index >= memory::Instance::kMaxSegments) return {};
  const Part* const part = part_of(index);
  if (part == nullptr) return {};
  const Mapped& mapped = (*part)[index % kPartSegments];
  std::byte* const base = mapped.base.load(std::memory_order_acquire);
  return base == nullptr ? ByteRange() : ByteRange(base, mapped.bytes);
}

Status RemotePeer::trouble() {
  const std::lock_guard lock(mutex_);
  if (!refusal_) return refusal_;
  return delay_ ? silence_ : delay_;
}

bool RemotePeer::is_gone() {
  const bool has_memory = !segment(0).empty();
  const std::lock_guard lock(mutex_);
  return sender_.is_gone(has_memory);
}

bool RemotePeer::is_cut_off() {
  const std::lock_guard lock(mutex_);
  return !silence_;
}

bool RemotePeer::is_told() {
  const std::lock_guard lock(mutex_);
  return is_told_;
}

void RemotePeer::set_delay(const Status& status) {
  const std::lock_guard lock(mutex_);
  delay_ = status;
}

Peer::Access RemotePeer::access() const {
  return may_copy_.load(std::memory_order_relaxed) ? Access::copied : Access::none;
}

Peer::Copied RemotePeer::copy(std::span<const iovec> local, std::span<const iovec> remote) {
  const int pid = pid_.load(std::memory_order_relaxed);
  if (pid <= 0) return Copied::failed;  // not connected yet, or a process that our numbering does not know
  const Copied copied = copy_from_process(pid, local, remote);
  if (copied == Copied::denied) may_copy_.store(false, std::memory_order_relaxed);
  return copied;
}

void RemotePeer::take(const SegmentNote& note, const OwnedFd& fd) {
  const std::lock_guard lock(mutex_);
  if (part_of(note.index) == nullptr)
    part_behind(note.index).store(std::make_unique<Part>().release(), std::memory_order_release);
  Mapped& mapped = (*part_of(note.index))[note.index % kPartSegments];
  if (mapped.base.load(std::memory_order_relaxed) != nullptr) return;
  if (!fd.is_open()) {
    errno = EMFILE;
    refusal_ = out_of_descriptors("cannot take the memory of a peer");
    return;
  }
  Result<memory::Segment> made = map_foreign_segment(fd.get(), note.file_offset, note.bytes);
  if (!made) {
    refusal_ = made.status().with_context("memory of a peer");
    return;
  }
  mapped.bytes = note.bytes;
  mapped.base.store(made->base, std::memory_order_release);
}

Result<bool> RemotePeer::push(const memory::Instance& instance) {
  const std::lock_guard lock(mutex_);
  Result<bool> is_done = sender_.push(instance);
  silence_ = is_done.status();
  is_told_ = is_done && *is_done;
  pid_.store(sender_.pid(), std::memory_order_relaxed);
  return is_done;
}

Peer::Copied SameProcessPeer::copy(std::span<const iovec> local, std::span<const iovec> remote) {
  return copy_from_process(::getpid(), local, remote);
}

}  // namespace tutti::shm
