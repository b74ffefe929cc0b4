// Memory that several processes map, without a name in any file system. Knows no layout.
#pragma once

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <string>
#include <system_error>

namespace tutti::bench {

// The descriptor of a new one. Throws std::system_error.
inline int make_memory_file(const char* name, std::size_t bytes) {
  // Beyond this limit the kernel sends SIGXFSZ, which would end the process without a word.
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && bytes > limit.rlim_cur) {
    throw std::system_error(EFBIG, std::generic_category(),
                            std::string(name) + " needs shared memory of " + std::to_string(bytes) +
                                " bytes, and ulimit -f allows files of " + std::to_string(limit.rlim_cur));
  }
  const int fd = static_cast<int>(::syscall(SYS_memfd_create, name, 0U));
  if (fd >= 0 && ::ftruncate(fd, static_cast<off_t>(bytes)) == 0) return fd;
  const int error = errno;
  if (fd >= 0) ::close(fd);
  throw std::system_error(error, std::generic_category(), std::string(name) + ": making shared memory");
}

}  // namespace tutti::bench
