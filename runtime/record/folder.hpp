// Record files in a folder: their names, and whether their rank still runs. Knows no content.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/owned_fd.hpp"
#include "runtime/base/status.hpp"

namespace tutti::record {

inline constexpr std::string_view kFileEnding = ".record";

// A file that is open for reading.
class OpenFile {
 public:
  // Never waits, whatever has that name. Errors: invalid_argument with path and reason; also where it is no regular
  // file, and where it belongs to another user (root reads those of all users).
  static Result<OpenFile> open(const std::string& path);

  int fd() const { return fd_.get(); }
  // Does the process that writes the file still run?
  bool is_owner_alive() const;

 private:
  explicit OpenFile(int fd) : fd_(fd) {}
  OwnedFd fd_;
};

// invalid_argument: the path, what failed, and errno's text.
Status file_error(const std::string& path, std::string_view what);

// The paths of all record files of a folder, sorted; none if it cannot be read.
std::vector<std::string> list_files(const std::string& folder);
// Of the file with this name; false if it is not there.
bool is_owner_alive(const std::string& path);

}  // namespace tutti::record
