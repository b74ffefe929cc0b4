// Says from the records of a job which rank did something differently first, and what each rank was doing.
// Knows no file and no process.
#pragma once

#include <string>
#include <vector>

#include "tools/cli/json.hpp"
#include "tools/cli/record/job_records.hpp"

namespace tutti::tool {

struct JobVerdict {
  enum class Kind : std::uint8_t {
    nothing,   // all ranks made the same calls, and completed them
    mismatch,  // ranks made different calls as one operation
    absent,    // a rank has not called what others have
    blocked,   // all have called it, and it is not complete
    message,   // a message has no counterpart
  };
  Kind kind = Kind::nothing;
  std::string sentence;
  std::vector<int> culprits;  // ranks of the world; empty: none can be named
};
std::string_view to_string(JobVerdict::Kind kind);

// The first difference, by the aligned clocks where several groups have one.
JobVerdict judge(const JobRecords& job);

// The operation of a rank that began first of those under way; null: there is none.
struct Underway {
  const GroupView* group = nullptr;
  int rank = 0;  // of the group
  const record::RecordedCall* call = nullptr;
};
Underway operation_under_way(const record::RecordedRank& rank, const std::vector<GroupView>& groups);

// "allreduce of 4 f32, sum", "send of 4 f32 to rank 2"
std::string describe(const record::RecordedCall& call);
// "1.5 s", "340 us"
std::string describe_time(std::uint64_t nanoseconds);

}  // namespace tutti::tool
