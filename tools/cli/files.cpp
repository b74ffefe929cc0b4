// Finds files beside the tool. Knows the layouts of a build folder and of an installation.
#include "tools/cli/files.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <system_error>

namespace tutti::tool {

std::string own_path() {
  std::error_code error;
  const auto path = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? "tutti" : path.string();
}

std::string own_folder() { return std::filesystem::path(own_path()).parent_path().string(); }

Result<std::string> find_data_file(const std::string& in_build, const std::string& in_data) {
  const std::array candidates = {own_folder() + "/" + in_build, own_folder() + "/../share/tutti/" + in_data};
  for (const std::string& candidate : candidates) {
    std::error_code error;
    if (std::filesystem::exists(candidate, error))
      return std::filesystem::path(candidate).lexically_normal().string();
  }
  return invalid_argument(fmt::format("a file of tutti's is missing; it was looked for as {} and as {}",
                                      candidates[0], candidates[1]));
}

}  // namespace tutti::tool
