// See member_reports.hpp.
#include "runtime/group/member_reports.hpp"

#include <algorithm>
#include <utility>

namespace tutti {
namespace {

constexpr std::size_t kMost = 256;  // histories that are kept

// A digest is of all calls up to its own.
bool includes(const CallHistory& history, const CallHistory& calls) {
  return std::ranges::any_of(history, [&](const SubmittedCall& call) {
    return call.sequence == calls.back().sequence && call.digest == calls.back().digest;
  });
}

}  // namespace

void MemberReports::take(int group_rank, CallHistory calls, const CallHistory& own) {
  if (calls_.size() >= kMost) calls_.clear();
  calls_[group_rank] = std::move(calls);
  std::erase_if(calls_, [&](const auto& member) {
    const auto& [rank, history] = member;
    if (history.empty()) return true;
    if (!includes(own, history)) return false;
    last_equal_.resize(std::max(last_equal_.size(), static_cast<std::size_t>(rank) + 1));
    last_equal_[static_cast<std::size_t>(rank)] = history.back().sequence;
    return true;
  });
}

bool MemberReports::find_difference(int own_rank, const CallHistory& own, CallDifference* found) {
  if (calls_.empty() || has_found_) return false;
  std::map<int, CallHistory> histories = calls_;
  histories[own_rank] = own;
  if (!tutti::find_difference(histories, found)) return false;
  has_found_ = true;
  // Once more, to name those with equal calls, too.
  for (std::size_t rank = 0; rank < last_equal_.size(); ++rank) {
    CallHistory same = own;
    std::erase_if(same, [&](const SubmittedCall& call) { return call.sequence > last_equal_[rank]; });
    if (!same.empty()) histories.emplace(static_cast<int>(rank), std::move(same));
  }
  return tutti::find_difference(histories, found);
}

}  // namespace tutti
