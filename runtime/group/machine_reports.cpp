// See machine_reports.hpp.
#include "runtime/group/machine_reports.hpp"

namespace tutti {

void MachineReports::take(MachineReport report) {
  const std::lock_guard lock(mutex_);
  for (RankReport& rank : report.ranks) {
    for (CompletedCall& call : rank.calls) call.is_report = true;
    calls_[rank.world_rank] = std::move(rank.calls);
  }
}

CompletedCalls MachineReports::of(int world_rank) const {
  const std::lock_guard lock(mutex_);
  const auto found = calls_.find(world_rank);
  return found == calls_.end() ? CompletedCalls() : CompletedCalls{found->second};
}

std::vector<std::pair<std::int32_t, CompletedCall>> MachineReports::in_group(std::uint64_t context) const {
  const std::lock_guard lock(mutex_);
  std::vector<std::pair<std::int32_t, CompletedCall>> found;
  for (const auto& [rank, calls] : calls_) {
    for (const CompletedCall& call : calls) {
      if (call.context == context) found.emplace_back(rank, call);
    }
  }
  return found;
}

bool MachineReports::is_news(int neighbour, const std::string& message) {
  const std::lock_guard lock(mutex_);
  std::string& last = sent_[neighbour];
  if (last == message) return false;
  last = message;
  return true;
}

}  // namespace tutti
