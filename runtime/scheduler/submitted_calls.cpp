// Reading the last calls of this rank, and comparing them with those of others.
#include "runtime/scheduler/submitted_calls.hpp"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

namespace tutti {

CallHistory SubmittedCalls::recent(std::size_t at_most) const {
  CallHistory calls;
  for (const Entry& entry : entries_) {
    const std::uint64_t sequence = entry.sequence.load(std::memory_order_acquire);
    SubmittedCall call;
    call.sequence = static_cast<std::uint32_t>(sequence);
    call.digest = entry.digest.load(std::memory_order_acquire);
    call.kind = entry.kind.load(std::memory_order_acquire);
    call.count = entry.count.load(std::memory_order_acquire);
    if (sequence != 0 && entry.sequence.load(std::memory_order_relaxed) == sequence) calls.push_back(call);
  }
  std::ranges::sort(calls, {}, &SubmittedCall::sequence);
  // An entry that was being written is missing: what lies before it is of no use.
  std::size_t first = calls.empty() ? 0 : calls.size() - 1;
  while (first > 0 && calls[first - 1].sequence + 1 == calls[first].sequence &&
         calls.size() - first < at_most)
    --first;
  calls.erase(calls.begin(), calls.begin() + static_cast<std::ptrdiff_t>(first));
  return calls;
}

namespace {

const SubmittedCall* find(const CallHistory& history, std::uint32_t sequence) {
  if (history.empty() || sequence < history.front().sequence || sequence > history.back().sequence)
    return nullptr;
  return &history[sequence - history.front().sequence];
}

std::string name(const std::vector<int>& ranks) {
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "));
}

// Lists the call of each rank as that operation, ranks with equal calls together.
void list_callers(const std::map<int, CallHistory>& histories, bool has_equal_past, CallDifference* found) {
  std::vector<std::pair<const SubmittedCall*, std::vector<int>>> callers;
  for (const auto& [rank, history] : histories) {
    const SubmittedCall* const call = find(history, found->sequence);
    if (call == nullptr) continue;
    const auto known =
        std::ranges::find_if(callers, [&](const auto& other) { return other.first->digest == call->digest; });
    if (known != callers.end()) {
      known->second.push_back(rank);
    } else {
      callers.emplace_back(call, std::vector<int>{rank});
    }
  }
  std::string& text = found->text;
  text.clear();
  std::size_t fewest = histories.size();
  const SubmittedCall& first = *callers.front().first;
  for (const auto& [call, ranks] : callers) {
    text += fmt::format("{}{} called {}", text.empty() ? "" : "; ", name(ranks),
                        describe_contract(call->kind, call->count));
    const bool looks_equal = call != &first && call->kind == first.kind && call->count == first.count;
    if (looks_equal)
      text += has_equal_past ? " by another algorithm or with other counts" : " after other calls before it";
    if (ranks.size() > fewest) continue;
    fewest = ranks.size();
    found->peer = ranks.front();
  }
}

}  // namespace

bool find_difference(const std::map<int, CallHistory>& histories, CallDifference* found) {
  bool is_found = false;
  for (auto first = histories.begin(); first != histories.end(); ++first) {
    for (auto second = std::next(first); second != histories.end(); ++second) {
      for (const SubmittedCall& call : first->second) {
        const SubmittedCall* const other = find(second->second, call.sequence);
        if (other == nullptr || other->digest == call.digest) continue;
        if (is_found && found->sequence <= call.sequence) break;
        is_found = true;
        found->sequence = call.sequence;
        const bool has_equal_past =
            call.sequence == 1 || (find(first->second, call.sequence - 1) != nullptr &&
                                   find(second->second, call.sequence - 1) != nullptr);
        list_callers(histories, has_equal_past, found);
        break;
      }
    }
  }
  return is_found;
}

}  // namespace tutti
