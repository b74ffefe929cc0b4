// The text of verdicts.
#include "runtime/base/verdict.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <map>
#include <utility>

#include "runtime/base/byte_fields.hpp"
#include "runtime/base/rank_lists.hpp"

namespace tutti {
namespace {

std::string_view word_of(VerdictKind kind) {
  switch (kind) {
    case VerdictKind::late:
      return "is late";
    case VerdictKind::elsewhere:
      return "is in another operation";
    case VerdictKind::frozen:
      return "is frozen";
    case VerdictKind::dead:
      return "is gone";
    case VerdictKind::unreachable:
      return "is unreachable";
  }
  return "is in an unknown state";
}

int shown_rank(const RankVerdict& verdict) {
  return verdict.group_rank >= 0 ? verdict.group_rank : verdict.world_rank;
}

// A rank that could not be asked because of another one.
bool is_hidden(const RankVerdict& verdict) {
  return verdict.kind == VerdictKind::unreachable && verdict.cause_rank >= 0;
}

// It is no member of the group that the others are ranks of.
bool is_outside(const RankVerdict& verdict, const std::vector<RankVerdict>& verdicts) {
  return verdict.group_rank < 0 &&
         std::any_of(verdicts.begin(), verdicts.end(),
                     [](const RankVerdict& other) { return other.group_rank >= 0; });
}

std::string describe_hidden(const std::vector<int>& ranks, const std::vector<RankVerdict>& verdicts,
                            int cause_rank) {
  const auto cause = std::find_if(verdicts.begin(), verdicts.end(), [&](const RankVerdict& verdict) {
    return verdict.world_rank == cause_rank && !is_hidden(verdict);
  });
  std::string name = fmt::format("rank {} of the world", cause_rank);
  if (cause != verdicts.end() && !is_outside(*cause, verdicts))
    name = fmt::format("rank {}", shown_rank(*cause));
  if (cause != verdicts.end() && is_outside(*cause, verdicts))
    name +=
        fmt::format(", which {}{}{}", word_of(cause->kind), cause->reason.empty() ? "" : ": ", cause->reason);
  return fmt::format("{} cannot be reached, because the way there leads through {}", name_ranks(ranks), name);
}

}  // namespace

std::string_view to_string(VerdictKind kind) {
  switch (kind) {
    case VerdictKind::late:
      return "late";
    case VerdictKind::elsewhere:
      return "elsewhere";
    case VerdictKind::frozen:
      return "frozen";
    case VerdictKind::dead:
      return "dead";
    case VerdictKind::unreachable:
      return "unreachable";
  }
  return "unknown";
}

void set_completed(const CompletedCall& call, RankVerdict& verdict) {
  verdict.completed_sequence = call.sequence;
  verdict.completed_is_report = call.is_report;
  verdict.completed_call = call.call;
}

void count_completed(std::uint64_t context, RankVerdict& verdict) {
  CompletedCalls completed;
  if (!decode(std::exchange(verdict.completed, {}), completed)) return;
  for (const CompletedCall& call : completed.calls) {
    if (call.context == context) set_completed(call, verdict);
  }
}

std::string name_signal(int signal) {
  const char* const name = ::sigabbrev_np(signal);
  return name == nullptr ? fmt::format("signal {}", signal) : fmt::format("signal {} (SIG{})", signal, name);
}

std::string name_rank(const RankVerdict& verdict) {
  std::string process;
  if (verdict.group_rank >= 0 && verdict.world_rank >= 0 && verdict.group_rank != verdict.world_rank)
    process = fmt::format("rank {} of the world", verdict.world_rank);
  if (verdict.pid != 0) process += fmt::format("{}pid {}", process.empty() ? "" : ", ", verdict.pid);
  if (!verdict.host.empty()) process += fmt::format("{}on {}", process.empty() ? "" : " ", verdict.host);
  return process.empty() ? fmt::format("rank {}", shown_rank(verdict))
                         : fmt::format("rank {} ({})", shown_rank(verdict), process);
}

std::string to_text(const RankVerdict& verdict) {
  std::string text = fmt::format("{} {}", name_rank(verdict), word_of(verdict.kind));
  const char* separator = ": ";
  for (const std::string* const part : {&verdict.operation, &verdict.reason}) {
    if (part->empty()) continue;
    text += separator + *part;
    separator = "; ";
  }
  if (verdict.completed_sequence != 0) {
    text += fmt::format("; {} was {}{}operation {}",
                        verdict.completed_is_report ? "the last completed call that it has reported"
                                                    : "its last completed call",
                        verdict.completed_call, verdict.completed_call.empty() ? "" : ", ",
                        verdict.completed_sequence);
  }
  return text;
}

std::string to_text(const std::vector<RankVerdict>& verdicts) {
  std::string text;
  std::map<int, std::vector<int>> hidden;  // by the rank on the route
  for (const RankVerdict& verdict : verdicts) {
    if (is_hidden(verdict)) {
      hidden[verdict.cause_rank].push_back(shown_rank(verdict));
    } else if (!is_outside(verdict, verdicts)) {
      text += (text.empty() ? "" : "; ") + to_text(verdict);
    }
  }
  for (const auto& [cause, ranks] : hidden)
    text += (text.empty() ? "" : "; ") + describe_hidden(ranks, verdicts, cause);
  return text;
}

}  // namespace tutti
