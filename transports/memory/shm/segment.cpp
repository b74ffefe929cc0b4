// memfd segments; see segment.hpp.
#include "transports/memory/shm/segment.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/owned_fd.hpp"

namespace tutti::shm {

namespace {

using memory::Segment;
using memory::SegmentSource;

Status exhausted(const std::string& what, int error = errno) {
  std::string limit;
  if (error == EMFILE) limit = " (limit: open files, ulimit -n)";
  if (error == ENFILE) limit = " (limit: open files of the machine)";
  if (error == ENOMEM) limit = " (limit: address space, ulimit -v, or memory of the control group)";
  if (error == EFBIG) limit = " (limit: file size, ulimit -f)";
  if (error == ENOSPC) limit = " (limit: memory of the machine or control group)";
  return {StatusCode::resource_exhausted, what + ": " + std::strerror(error) + limit};
}

std::string name_segment(const char* what, std::uint64_t bytes) {
  return std::string(what) + " a shared memory segment of " + std::to_string(bytes) + " bytes";
}

Result<Segment> map(int fd, std::uint64_t file_offset, std::size_t bytes) {
  void* base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd,
                      static_cast<off_t>(file_offset));
  if (base == MAP_FAILED) return exhausted(name_segment("cannot map", bytes));
  return Segment{static_cast<std::byte*>(base), bytes, fd, file_offset};
}

// Beyond it the kernel does not only refuse: it sends SIGXFSZ, which ends the process.
std::uint64_t largest_file_bytes() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return ~std::uint64_t{0};
  return limit.rlim_cur;
}

class MemfdSource final : public SegmentSource {
 public:
  Result<Segment> create(std::size_t bytes) override {
    const std::uint64_t largest = largest_file_bytes();
    if (bytes > largest) return exhausted(name_segment("cannot make", bytes), EFBIG);
    if (files_.empty() || file_bytes_ > largest - bytes) TUTTI_RETURN_IF_ERROR(add_file());
    const int fd = files_.back().get();
    if (::ftruncate(fd, static_cast<off_t>(file_bytes_ + bytes)) != 0)
      return exhausted(name_segment("cannot make", bytes));
    const std::uint64_t offset = file_bytes_;
    file_bytes_ += bytes;
    Result<Segment> segment = map(fd, offset, bytes);
    if (!segment) file_bytes_ = offset;  // nobody was told: the next segment lies here
    return segment;
  }

  std::size_t largest_bytes() const override { return largest_file_bytes(); }

  // Memory is taken here, with an error code; touching it can then no longer end in SIGBUS.
  Status back(const Segment& segment, std::uint64_t offset, std::uint64_t bytes) override {
    constexpr std::uint64_t kStep = std::uint64_t{4} << 20U;  // a signal makes the call start over
    for (std::uint64_t at = offset; at < offset + bytes;) {
      const std::uint64_t n = std::min(kStep, offset + bytes - at);
      if (::fallocate(segment.fd, 0, static_cast<off_t>(at), static_cast<off_t>(n)) == 0) {
        at += n;
      } else if (errno != EINTR) {
        return exhausted("cannot take " + std::to_string(n) + " bytes of shared memory");
      }
    }
    return {};
  }

  void destroy(const Segment& segment) override { unmap_segment(segment); }

 private:
  Status add_file() {
    OwnedFd fd(::memfd_create("tutti", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!fd.is_open() && (errno == EMFILE || errno == ENFILE || errno == ENOMEM))
      return exhausted("cannot make a file of shared memory");
    if (!fd.is_open()) return unsupported(std::string("memfd_create: ") + std::strerror(errno));
    // Peers rely on it: a file that cannot shrink cannot give them SIGBUS.
    if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_SEAL) != 0)
      return unsupported(std::string("sealing a memfd: ") + std::strerror(errno));
    files_.push_back(std::move(fd));
    file_bytes_ = 0;
    return {};
  }

  std::vector<OwnedFd> files_;
  std::uint64_t file_bytes_ = 0;  // of the last one that segments take
};

}  // namespace

std::unique_ptr<SegmentSource> make_memfd_source() { return std::make_unique<MemfdSource>(); }

Result<Segment> map_foreign_segment(int fd, std::uint64_t file_offset, std::size_t bytes) {
  struct stat info {};
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || ::fstat(fd, &info) != 0 || info.st_size < 0 ||
      file_offset > static_cast<std::uint64_t>(info.st_size) ||
      bytes > static_cast<std::uint64_t>(info.st_size) - file_offset) {
    return Status(StatusCode::refused,
                  "a peer passed a file that is not a sealed segment of the stated size");
  }
  return map(fd, file_offset, bytes);
}

void unmap_segment(const Segment& segment) { ::munmap(segment.base, segment.bytes); }

}  // namespace tutti::shm
