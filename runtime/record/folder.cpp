// See folder.hpp.
#include "runtime/record/folder.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

namespace tutti::record {

Status file_error(const std::string& path, std::string_view what) {
  return invalid_argument(fmt::format("'{}' {}: {}", path, what, std::strerror(errno)));
}

std::vector<std::string> list_files(const std::string& folder) {
  std::vector<std::string> paths;
  std::error_code error;
  std::filesystem::directory_iterator entry(folder, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.size() > kFileEnding.size() && name.ends_with(kFileEnding))
      paths.push_back(entry->path().string());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

Result<OpenFile> OpenFile::open(const std::string& path) {
  // Without O_NONBLOCK a pipe would wait for its writer.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return file_error(path, "cannot be read");
  OpenFile file(fd);
  struct stat status {};
  if (::fstat(fd, &status) != 0 || !S_ISREG(status.st_mode))
    return invalid_argument(fmt::format("'{}' is no record of a rank: it is no file", path));
  // Its owner could cut it while it is mapped, which would end this process.
  if (status.st_uid != ::geteuid() && ::geteuid() != 0)
    return invalid_argument(fmt::format("'{}' is a file of another user (number {})", path, status.st_uid));
  return file;
}

bool OpenFile::is_owner_alive() const {
  struct flock lock {};
  lock.l_type = F_RDLCK;
  lock.l_whence = SEEK_SET;
  return ::fcntl(fd_.get(), F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

bool is_owner_alive(const std::string& path) {
  const auto file = OpenFile::open(path);
  return file && file->is_owner_alive();
}

}  // namespace tutti::record
