// Files of the elastic folder. Knows no process; see elastic_folder.hpp.
#include "tools/cli/run/elastic_folder.hpp"

#include <fmt/format.h>
#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

namespace tutti {
namespace {

constexpr const char* kStates[] = {"starting", "waiting", "member", "leave"};

std::string file_of(const std::string& folder, const char* state, int slot) {
  return fmt::format("{}/{}.{}", folder, state, slot);
}

}  // namespace

Result<ElasticFolder> ElasticFolder::make() {
  std::error_code error;
  std::string path = (std::filesystem::temp_directory_path(error) / "tutti-elastic-XXXXXX").string();
  if (error || ::mkdtemp(path.data()) == nullptr)
    return internal_error(fmt::format("cannot make the folder {} (TMPDIR): {}", path,
                                      error ? error.message() : std::strerror(errno)));
  ElasticFolder folder;
  folder.path_ = std::move(path);
  return folder;
}

ElasticFolder::ElasticFolder(ElasticFolder&& other) noexcept : path_(std::exchange(other.path_, {})) {}

ElasticFolder& ElasticFolder::operator=(ElasticFolder&& other) noexcept {
  std::swap(path_, other.path_);
  return *this;
}

ElasticFolder::~ElasticFolder() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

bool ElasticFolder::has_invitation() const { return ::access((path_ + "/invitation").c_str(), R_OK) == 0; }

bool ElasticFolder::has(const char* state, int slot) const {
  return ::access(file_of(path_, state, slot).c_str(), F_OK) == 0;
}

void ElasticFolder::set(const char* state, int slot) const {
  forget(slot);
  std::ofstream(file_of(path_, state, slot)).flush();
}

void ElasticFolder::forget(int slot) const {
  for (const char* state : kStates) ::unlink(file_of(path_, state, slot).c_str());
}

}  // namespace tutti
