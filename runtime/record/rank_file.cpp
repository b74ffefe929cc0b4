// See rank_file.hpp.
#include "runtime/record/rank_file.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

#include "runtime/base/fork_guard.hpp"
#include "runtime/record/folder.hpp"

namespace tutti::record {
namespace {

constexpr std::size_t kMostFiles = 256;  // in a folder, of ranks that have ended

// A folder that somebody else made could hold links, or be emptied under us.
Status make_folder(const std::string& folder) {
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) return file_error(folder, "cannot be made");
  struct stat status {};
  if (::lstat(folder.c_str(), &status) != 0) return file_error(folder, "cannot be read");
  if (!S_ISDIR(status.st_mode) || status.st_uid != ::geteuid() || (status.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    return invalid_argument(fmt::format("'{}' is not a folder that this user alone may write to", folder));
  return {};
}

void remove_oldest(const std::string& folder) {
  std::vector<std::pair<std::int64_t, std::string>> ended;  // by time
  for (const std::string& path : list_files(folder)) {
    struct stat status {};
    if (::lstat(path.c_str(), &status) == 0) ended.emplace_back(status.st_mtim.tv_sec, path);
  }
  if (ended.size() <= kMostFiles) return;
  std::sort(ended.begin(), ended.end());
  ended.resize(ended.size() - kMostFiles);
  for (const auto& [time, path] : ended) {
    if (!is_owner_alive(path)) ::unlink(path.c_str());
  }
}

// Letters and digits of a file's name.
std::string word_of(std::string_view text) {
  constexpr std::size_t kMost = 64;
  std::string word;
  for (const char c : text.substr(0, kMost)) {
    const bool is_plain =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
    word += is_plain ? c : '_';
  }
  return word.empty() ? "job" : word;
}

// For another group. The statistics stay: sums over all groups never decrease.
void clear(GroupSection& section) {
  // Readers drop a section that is unused at the end; acquire: nothing is cleared before.
  section.head.state.exchange(static_cast<std::uint64_t>(GroupState::unused), std::memory_order_acq_rel);
  const auto clear_part = [](auto& part) {
    std::destroy_at(&part);
    new (&part) std::remove_reference_t<decltype(part)>{};
  };
  clear_part(section.head);
  clear_part(section.operations);
  clear_part(section.messages);
}

bool has_failed(const RecordedRank& rank) {
  return std::any_of(rank.groups.begin(), rank.groups.end(),
                     [](const RecordedGroup& group) { return !group.failure.empty(); });
}

std::uint64_t reading_of(clockid_t clock) {
  timespec now{};
  ::clock_gettime(clock, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1000000000U + static_cast<std::uint64_t>(now.tv_nsec);
}

// Memory of the file, backed by space: a store must not fail later because the file system is full.
void* map_part(int fd, std::size_t offset, std::size_t bytes) {
  // Beyond this limit the kernel would end the process.
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < offset + bytes) {
    errno = EFBIG;
    return nullptr;
  }
  int error = EINTR;  // by a signal of the program's
  while (error == EINTR) error = ::posix_fallocate(fd, static_cast<off_t>(offset), static_cast<off_t>(bytes));
  if (error != 0) {
    errno = error;
    return nullptr;
  }
  void* const at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, static_cast<off_t>(offset));
  return at == MAP_FAILED ? nullptr : at;
}

std::string path_of(const std::string& stem, int rank) {
  return fmt::format("{}{}{}", stem, rank, kFileEnding);
}

}  // namespace

std::string default_folder(std::string_view temporary) {
  return fmt::format("{}/tutti-{}", temporary.empty() ? "/tmp" : temporary, ::geteuid());
}

Result<std::unique_ptr<RankFile>> RankFile::open(const std::string& folder, const Description& description) {
  TUTTI_RETURN_IF_ERROR(make_folder(folder));
  if (description.tidies_folder) remove_oldest(folder);
  const std::string stem =
      fmt::format("{}/{}.{}.", folder, word_of(description.job), word_of(description.world));
  const std::string path = path_of(stem, description.rank);
  constexpr int kFlags = O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW;
  int fd = ::open(path.c_str(), kFlags, 0600);
  if (fd < 0 && errno == EEXIST) {
    ::unlink(path.c_str());  // of a rank that has ended: no two worlds share their word
    fd = ::open(path.c_str(), kFlags, 0600);
  }
  if (fd < 0) return file_error(path, "cannot be made");
  std::unique_ptr<RankFile> file(new RankFile(folder, word_of(description.world), stem, path, fd));
  TUTTI_RETURN_IF_ERROR(file->start(description));
  return file;
}

Status RankFile::start(const Description& description) {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  close_on_fork(fd_);  // the lock is to end with this process
  if (::fcntl(fd_, F_OFD_SETLK, &lock) != 0) return file_error(path_, "cannot be locked");
  void* const at = map_part(fd_, 0, sizeof(FileHead));
  if (at == nullptr) return file_error(path_, "has no space");
  head_ = static_cast<FileHead*>(at);  // of zeros, as all of a new file
  set(head().version, kVersion);
  set(head().section_bytes, sizeof(GroupSection));
  set(head().pid, static_cast<std::uint64_t>(::getpid()));
  set(head().rank, static_cast<std::uint64_t>(description.rank));
  set(head().size, static_cast<std::uint64_t>(description.size));
  set(head().node, static_cast<std::uint64_t>(description.node));
  set(head().boot, std::hash<std::string>()(description.clock));
  set(head().wall, reading_of(CLOCK_REALTIME));
  set(head().monotonic, reading_of(CLOCK_MONOTONIC));
  put_text(head().host, description.host);
  put_text(head().job, description.job);
  put_text(head().world, description.world);
  put_text(head().build, description.build);
  head().magic.store(kMagic, std::memory_order_release);
  return {};
}

Result<std::vector<LastCall>> RankFile::read_last_calls(int rank) const {
  return record::read_last_calls(path_of(stem_, rank));
}

RankFile::~RankFile() {
  remove();
  for (GroupSection* const section : sections_) ::munmap(section, sizeof(GroupSection));
  if (head_ != nullptr) ::munmap(head_, sizeof(FileHead));
  forget_on_fork(fd_);
  ::close(fd_);
}

void RankFile::remove() {
  if (!is_kept_.load(std::memory_order_relaxed) && !is_removed_.exchange(true)) ::unlink(path_.c_str());
}

std::vector<RecordedRank> RankFile::end_together() {
  is_removed_.store(true, std::memory_order_relaxed);  // by the last one
  head().has_ended.store(1, std::memory_order_release);
  const auto is_running = [](const RecordedRank& rank) { return rank.is_alive && !rank.has_ended; };
  std::vector<RecordedRank> ranks = read_world(folder_, world_);
  if (std::any_of(ranks.begin(), ranks.end(), is_running)) return {};
  // Of ranks that end at the same time one goes on.
  const std::string claim = fmt::format("{}/{}.ended", folder_, world_);
  const int fd = ::open(claim.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return {};
  ::close(fd);
  ranks = read_world(folder_, world_);
  const bool is_first =
      std::any_of(ranks.begin(), ranks.end(), [&](const auto& r) { return r.path == path_; });
  for (const RecordedRank& rank : ranks) {
    if (rank.has_ended && !has_failed(rank)) ::unlink(rank.path.c_str());
  }
  ::unlink(claim.c_str());
  return is_first ? ranks : std::vector<RecordedRank>();
}

GroupSection* RankFile::find_section() {
  for (GroupSection* const section : sections_) {
    // One that has failed is for `tutti doctor`.
    const bool is_closed = get(section->head.state) == static_cast<std::uint64_t>(GroupState::closed);
    if (!is_closed || section->head.failure[0] != '\0') continue;
    clear(*section);
    return section;
  }
  if (sections_.size() == kMostGroups) return nullptr;
  void* const at =
      map_part(fd_, sizeof(FileHead) + sections_.size() * sizeof(GroupSection), sizeof(GroupSection));
  if (at == nullptr) return nullptr;
  sections_.push_back(static_cast<GroupSection*>(at));
  return sections_.back();
}

std::unique_ptr<GroupRecord> RankFile::add_group(const GroupRecord::Member& member) {
  const std::lock_guard lock(mutex_);
  GroupSection* const section = find_section();
  if (section == nullptr) return std::make_unique<GroupRecord>(member);
  return std::make_unique<GroupRecord>(member, *section);
}

Traffic& RankFile::traffic_of(std::string_view transport) {
  const std::lock_guard lock(mutex_);
  for (Traffic& traffic : head().traffic) {
    if (std::string_view(traffic.transport.data()) == transport) return traffic;
    if (traffic.transport[0] != '\0') continue;
    put_text(traffic.transport, transport);
    return traffic;
  }
  return uncounted_;
}

}  // namespace tutti::record
