// The record file of this rank: where it lies, its end, and room in it for groups. Knows no content of groups.
//
// The file lies in a folder of this user alone, and has mode 0600. Its owner holds a write lock on it, which
// ends with the process: so a reader tells whether the rank still runs. A clean end removes the file.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.hpp"
#include "runtime/record/group_record.hpp"
#include "runtime/record/last_calls.hpp"
#include "runtime/record/layout.hpp"
#include "runtime/record/reading.hpp"

namespace tutti::record {

// Where records lie unless TUTTI_RECORDER names a folder: tutti-<user id> in the folder for temporary files.
// `temporary`: of TMPDIR; empty: /tmp.
std::string default_folder(std::string_view temporary);

class RankFile {
 public:
  struct Description {
    int rank = 0, size = 1, node = 0;
    std::string host, job, build;
    std::string world;          // a word that is equal on all ranks of the world, and on no others
    std::string clock;          // equal on ranks whose CLOCK_MONOTONIC is the same clock
    bool tidies_folder = true;  // one rank of a machine is enough
  };
  // Makes the folder and the file. `tidies_folder`: removes the oldest files of ranks that have ended if there are too
  // many. Errors: invalid_argument with path and reason: the folder belongs to somebody else, or has no space left.
  static Result<std::unique_ptr<RankFile>> open(const std::string& folder, const Description& description);
  // Removes the file unless it is kept.
  ~RankFile();
  RankFile(const RankFile&) = delete;
  RankFile& operator=(const RankFile&) = delete;

  const std::string& path() const { return path_; }
  // Of any rank of the world, whether it runs or not, the last completed collective of each open group. Errors:
  // invalid_argument; it has no file on this machine.
  Result<std::vector<LastCall>> read_last_calls(int rank) const;
  // Room for a group; in memory of this process where the file can have no more. The file outlives it. Any thread.
  std::unique_ptr<GroupRecord> add_group(const GroupRecord::Member& member);
  // The counters of a transport, made if there are none; of no use to readers if there are too many. Any thread.
  Traffic& traffic_of(std::string_view transport);
  // The job does not end cleanly: the file stays. Any thread.
  void keep() { is_kept_.store(true, std::memory_order_relaxed); }
  // Removes the file unless it is kept; its memory stays. Once. Any thread.
  void remove();
  // Instead of remove(): the last rank of this machine to call it gets the records of all of them, and removes
  // those of ranks that have not failed. The others get none.
  std::vector<RecordedRank> end_together();

 private:
  RankFile(std::string folder, std::string world, std::string stem, std::string path, int fd)
      : folder_(std::move(folder)),
        world_(std::move(world)),
        stem_(std::move(stem)),
        path_(std::move(path)),
        fd_(fd) {}
  Status start(const Description& description);
  GroupSection* find_section();  // null: there is no room
  FileHead& head() { return *head_; }

  const std::string folder_, world_;
  const std::string stem_;  // of the files of all ranks of the world on this machine
  const std::string path_;
  const int fd_;
  std::atomic<bool> is_kept_{false}, is_removed_{false};
  std::mutex mutex_;  // the following
  FileHead* head_ = nullptr;
  std::vector<GroupSection*> sections_;
  Traffic uncounted_{};
};

}  // namespace tutti::record
