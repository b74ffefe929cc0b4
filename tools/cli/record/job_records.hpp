// The record files of the ranks of one job: finding them, and their clocks. Knows no question about them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "runtime/base/status.hpp"
#include "runtime/record/reading.hpp"

namespace tutti::tool {

struct JobRecords {
  std::string job, world;
  std::vector<record::RecordedRank> ranks;  // by rank of the world; those without a record are missing
  std::vector<std::string> unreadable;      // why a file was left out

  // By rank of the world; null: it has no record.
  const record::RecordedRank* find(int rank) const;
  int size() const { return ranks.empty() ? 0 : ranks.front().size; }
};

// `what`: a folder with record files; or the id of a job, the word of a world, or the pid of a rank, of files in
// the default folder (empty: any). Of several worlds the one with ranks that run, then the one that began last.
// `world`: the word of the only one that counts; empty: any. Errors: invalid_argument that says what there is.
Result<JobRecords> find_job(const std::string& what, const std::string& world = "");
// The same of these ranks, which may be of several worlds, by id, word or pid.
Result<JobRecords> choose_world(std::vector<record::RecordedRank> ranks, const std::string& what);

// One group or stream over all ranks that have a record of it.
struct GroupView {
  std::uint64_t context = 0;
  std::uint32_t size = 0;
  int stream = 0;
  std::string name;  // "the group of all 4 ranks", "group 2 (ranks 0, 2)"
  struct Member {
    const record::RecordedRank* rank = nullptr;
    const record::RecordedGroup* group = nullptr;
  };
  std::map<int, Member> members;  // by rank of the group
};
// In the order in which they were first used. Valid as long as the job.
std::vector<GroupView> groups_of(const JobRecords& job);

// Offsets from times of a rank to times of the first rank, in nanoseconds; by rank of the world.
//
// Ranks of one machine have one clock. Between machines the readings of both clocks at the start give a first
// estimate. Collectives in which all wait for all narrow it: none ends on one rank before it began on another.
std::map<int, std::int64_t> align_clocks(const JobRecords& job);

}  // namespace tutti::tool
