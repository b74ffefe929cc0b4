// Reports of ranks of other machines about their last completed operations, and those of this rank to them. Pure; knows no
// connection.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "runtime/group/diagnosis_frame.hpp"

namespace tutti {

// Threading: any thread.
class MachineReports {
 public:
  // Replaces what is known of the ranks that it names.
  void take(MachineReport report);
  CompletedCalls of(int world_rank) const;
  // In the group of `context`, by rank of the world.
  std::vector<std::pair<std::int32_t, CompletedCall>> in_group(std::uint64_t context) const;
  // Is it to be sent to `neighbour`? Not if it is what that rank got last. True: it counts as sent.
  bool is_news(int neighbour, const std::string& message);

 private:
  mutable std::mutex mutex_;
  std::map<int, std::vector<CompletedCall>> calls_;  // by rank of the world
  std::map<int, std::string> sent_;                  // by neighbour
};

}  // namespace tutti
