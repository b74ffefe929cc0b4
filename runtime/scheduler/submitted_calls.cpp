// Reading the last calls of this rank, and comparing them with those of others.
#include "runtime/scheduler/submitted_calls.hpp"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

#include "runtime/base/rank_lists.hpp"

namespace tutti {

CallHistory SubmittedCalls::recent(std::uint32_t last, std::size_t at_most) const {
  CallHistory calls;
  const record::GroupSection& section = record_.section();
  const std::uint64_t before = last > kRemembered ? last - kRemembered : 0;
  for (std::uint64_t number = before + 1; number <= last; ++number) {
    const record::CallPart& part = section.operations[number % record::kOperations].call;
    const std::uint64_t sequence = part.sequence.load(std::memory_order_acquire);
    SubmittedCall call;
    call.sequence = static_cast<std::uint32_t>(sequence);
    call.digest = part.digest.load(std::memory_order_acquire);
    call.kind = part.kind.load(std::memory_order_acquire);
    call.count = part.count.load(std::memory_order_acquire);
    if (sequence == number && part.end.load(std::memory_order_relaxed) == sequence) calls.push_back(call);
  }
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

// Lists the call of each rank as that operation, ranks with equal calls together.
void list_callers(const std::map<int, CallHistory>& histories, bool has_equal_past, CallDifference* found) {
  std::vector<const SubmittedCall*> calls;            // that differ, in the order of their first ranks
  std::map<std::uint64_t, std::vector<int>> callers;  // by digest
  for (const auto& [rank, history] : histories) {
    const SubmittedCall* const call = find(history, found->sequence);
    if (call == nullptr) continue;
    std::vector<int>& ranks = callers[call->digest];
    if (ranks.empty()) calls.push_back(call);
    ranks.push_back(rank);
  }
  std::string& text = found->text;
  text.clear();
  const SubmittedCall& first = *calls.front();
  for (const SubmittedCall* const call : calls) {
    text += fmt::format("{}{} called {}", text.empty() ? "" : "; ", name_ranks(callers[call->digest]),
                        describe_contract(call->kind, call->count));
    const bool looks_equal = call != &first && call->kind == first.kind && call->count == first.count;
    if (looks_equal)
      text += has_equal_past ? " by another algorithm or with other counts" : " after other calls before it";
  }
  found->peer = first_of_fewest(callers);
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
