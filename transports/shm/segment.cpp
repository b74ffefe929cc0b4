// memfd segments; see segment.hpp.
#include "transports/shm/segment.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

namespace tutti::shm {

namespace {

using memory::Segment;
using memory::SegmentSource;

Status exhausted(const std::string& what, std::uint64_t bytes) {
  const int error = errno;
  std::string limit;
  if (error == EMFILE) limit = " (limit: open files, ulimit -n)";
  if (error == ENFILE) limit = " (limit: open files of the machine)";
  if (error == ENOMEM) limit = " (limit: address space, ulimit -v, or memory of the control group)";
  if (error == ENOSPC) limit = " (limit: memory of the machine or control group)";
  return {StatusCode::resource_exhausted,
          what + " of " + std::to_string(bytes) + " bytes: " + std::strerror(error) + limit};
}

Result<Segment> map(int fd, std::size_t bytes) {
  void* base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (base == MAP_FAILED) return exhausted("cannot map a shared memory segment", bytes);
  return Segment{static_cast<std::byte*>(base), bytes, fd};
}

class MemfdSource final : public SegmentSource {
 public:
  Result<Segment> create(std::size_t bytes) override {
    const int fd = ::memfd_create("tutti", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0 && (errno == ENOSYS || errno == EPERM)) {
      return unsupported(std::string("memfd_create: ") + std::strerror(errno));
    }
    if (fd < 0) return exhausted("cannot make a shared memory segment", bytes);
    Result<Segment> segment = Status(StatusCode::internal, "");
    // Peers rely on the seals: a file that cannot shrink cannot give them SIGBUS.
    if (::ftruncate(fd, static_cast<off_t>(bytes)) != 0 ||
        ::fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
      segment = exhausted("cannot size a shared memory segment", bytes);
    } else {
      segment = map(fd, bytes);
    }
    if (!segment) ::close(fd);
    return segment;
  }

  // Memory is taken here, with an error code; touching it can then no longer end in SIGBUS.
  Status back(const Segment& segment, std::uint64_t offset, std::uint64_t bytes) override {
    constexpr std::uint64_t kStep = std::uint64_t{4} << 20U;  // a signal makes the call start over
    for (std::uint64_t at = offset; at < offset + bytes;) {
      const std::uint64_t n = std::min(kStep, offset + bytes - at);
      if (::fallocate(segment.fd, 0, static_cast<off_t>(at), static_cast<off_t>(n)) == 0) {
        at += n;
      } else if (errno != EINTR) {
        return exhausted("cannot take shared memory", n);
      }
    }
    return {};
  }

  void destroy(const Segment& segment) override {
    ::munmap(segment.base, segment.bytes);
    ::close(segment.fd);
  }
};

}  // namespace

std::unique_ptr<SegmentSource> make_memfd_source() { return std::make_unique<MemfdSource>(); }

Result<Segment> map_foreign_segment(int fd, std::size_t bytes) {
  struct stat info {};
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || ::fstat(fd, &info) != 0 ||
      static_cast<std::uint64_t>(info.st_size) != bytes) {
    return Status(StatusCode::refused,
                  "a peer passed a file that is not a sealed segment of the stated size");
  }
  return map(fd, bytes);
}

void unmap_segment(const Segment& segment) { ::munmap(segment.base, segment.bytes); }

}  // namespace tutti::shm
