// Files of the elastic folder. Knows no process; see elastic_folder.hpp.
#include "tools/cli/run/elastic_folder.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>
#include <utility>

#include "tools/cli/run/output.hpp"

namespace tutti {
namespace {

constexpr std::string_view kPrefix = "tutti-elastic-";
constexpr const char* kStates[] = {"starting", "waiting", "member", "leave"};

std::string file_of(const std::string& folder, const char* state, int slot) {
  return fmt::format("{}/{}.{}", folder, state, slot);
}

// A lock on the folder, which ends with the process; none if another one has it.
OwnedFd lock_folder(const std::string& path) {
  OwnedFd folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (folder.is_open() && ::flock(folder.get(), LOCK_EX | LOCK_NB) != 0) folder.reset();
  return folder;
}

// Removes the folders of this user's launchers that were killed.
void remove_left_folders(const std::filesystem::path& below) {
  constexpr std::time_t kYoung = 60;  // seconds, in which a launcher locks its own
  std::error_code ignored;
  for (std::filesystem::directory_iterator at(below, ignored), end; at != end; at.increment(ignored)) {
    if (!at->path().filename().string().starts_with(kPrefix)) continue;
    const OwnedFd locked = lock_folder(at->path().string());
    struct stat status {};
    if (!locked.is_open() || ::fstat(locked.get(), &status) != 0 || status.st_uid != ::geteuid()) continue;
    if (std::time(nullptr) - status.st_mtime > kYoung) std::filesystem::remove_all(at->path(), ignored);
  }
}

}  // namespace

Result<ElasticFolder> ElasticFolder::make() {
  std::error_code error;
  const std::filesystem::path below = std::filesystem::temp_directory_path(error);
  if (!error) remove_left_folders(below);
  std::string path = (below / fmt::format("{}XXXXXX", kPrefix)).string();
  if (error || ::mkdtemp(path.data()) == nullptr)
    return internal_error(fmt::format("cannot make the folder {} (TMPDIR): {}", path,
                                      error ? error.message() : std::strerror(errno)));
  ElasticFolder folder;
  folder.lock_ = lock_folder(path);
  folder.path_ = std::move(path);
  return folder;
}

ElasticFolder::ElasticFolder(ElasticFolder&& other) noexcept
    : path_(std::exchange(other.path_, {})), lock_(std::move(other.lock_)) {}

ElasticFolder& ElasticFolder::operator=(ElasticFolder&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(lock_, other.lock_);
  return *this;
}

ElasticFolder::~ElasticFolder() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

bool ElasticFolder::has_invitation() const { return ::access((path_ + "/invitation").c_str(), R_OK) == 0; }

std::string ElasticFolder::invitation() const {
  std::string text;
  std::getline(std::ifstream(path_ + "/invitation"), text, '\0');
  return text;
}

void ElasticFolder::invite(const std::string& text) const {
  const std::string written = path_ + "/invitation.new";
  const OwnedFd file(::open(written.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (write_all(file.get(), text)) ::rename(written.c_str(), (path_ + "/invitation").c_str());
}

void ElasticFolder::note_waiting_elsewhere(const std::string& process) const {
  const std::string written = path_ + "/elsewhere.new";
  (std::ofstream(written) << process).flush();
  ::rename(written.c_str(), (path_ + "/waiting.elsewhere").c_str());
}

std::string ElasticFolder::read(const char* state, int slot) const {
  std::string text;
  std::getline(std::ifstream(file_of(path_, state, slot)), text);
  return text;
}

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
