// Reports of a group's members about their calls, to be compared with those of this rank. Pure; knows no connection.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "runtime/scheduler/submitted_calls.hpp"

namespace tutti {

// Most members have made the same calls as this rank: of these only the last call's number is kept.
class MemberReports {
 public:
  // Replaces what that member has reported before. `own`: the calls of this rank.
  void take(int group_rank, CallHistory calls, const CallHistory& own);
  // The first difference between members; false: none, or it has been found before.
  bool find_difference(int own_rank, const CallHistory& own, CallDifference* found);

 private:
  std::map<int, CallHistory> calls_;       // of members that had made others, or more
  std::vector<std::uint32_t> last_equal_;  // by group rank; 0: not known
  bool has_found_ = false;
};

}  // namespace tutti
