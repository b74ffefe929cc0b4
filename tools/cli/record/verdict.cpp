// See verdict.hpp.
#include "tools/cli/record/verdict.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "runtime/base/rank_lists.hpp"
#include "runtime/base/types.hpp"
#include "runtime/scheduler/call_contract.hpp"
#include "runtime/scheduler/submitted_calls.hpp"

namespace tutti::tool {
namespace {

using record::Phase;
using record::RecordedCall;
using record::RecordedGroup;
using record::RecordedRank;

// A verdict on one group, and when what it is about began.
struct Finding {
  JobVerdict verdict;
  std::int64_t at = 0;
};

class Diagnosis {
 public:
  explicit Diagnosis(const JobRecords& job)
      : job_(job), groups_(groups_of(job)), offsets_(align_clocks(job)) {}

  JobVerdict judge() const {
    std::optional<Finding> first;
    for (const GroupView& group : groups_) {
      for (const auto find : {&Diagnosis::find_mismatch, &Diagnosis::find_absent, &Diagnosis::find_blocked,
                              &Diagnosis::find_message}) {
        std::optional<Finding> found = (this->*find)(group);
        if (!found) continue;
        if (!first || is_before(*found, *first)) first = std::move(found);
        break;
      }
    }
    if (first) return std::move(first->verdict);
    return {JobVerdict::Kind::nothing, describe_success(), {}};
  }

 private:
  // Different calls are an error by themselves; the rest may be its consequence.
  static bool is_before(const Finding& a, const Finding& b) {
    const bool is_a = a.verdict.kind == JobVerdict::Kind::mismatch,
               is_b = b.verdict.kind == JobVerdict::Kind::mismatch;
    return is_a != is_b ? is_a : a.at < b.at;
  }

  std::int64_t aligned(const RecordedRank& rank, std::uint64_t time) const {
    return static_cast<std::int64_t>(time) + offsets_.at(rank.rank);
  }

  // When the group's ranks came to an operation: the first time that is known.
  std::int64_t time_of(const GroupView& group, std::uint64_t sequence) const {
    std::optional<std::int64_t> first;
    for (const auto& [number, member] : group.members) {
      for (const RecordedCall& call : member.group->operations) {
        if (call.sequence < sequence || call.times.submitted == 0) continue;
        const std::int64_t at = aligned(*member.rank, call.times.submitted);
        first = std::min(first.value_or(at), at);
        break;
      }
    }
    return first.value_or(0);
  }

  std::vector<int> world_ranks(const GroupView& group, const std::vector<int>& ranks) const {
    std::vector<int> named;
    for (const int rank : ranks) {
      const auto found = group.members.find(rank);
      if (found != group.members.end()) named.push_back(found->second.rank->rank);
    }
    return named;
  }

  static CallHistory history_of(const RecordedGroup& group) {
    CallHistory history;
    for (const RecordedCall& call : group.operations) {
      // Calls before a gap cannot be compared by position.
      if (!history.empty() && history.back().sequence + 1 != call.sequence) history.clear();
      history.push_back({static_cast<std::uint32_t>(call.sequence), call.digest, call.kind, call.count});
    }
    return history;
  }

  std::optional<Finding> find_mismatch(const GroupView& group) const {
    std::map<int, CallHistory> histories;  // by rank of the world, as the sentence names them
    for (const auto& [number, member] : group.members)
      histories[member.rank->rank] = history_of(*member.group);
    CallDifference difference;
    if (!find_difference(histories, &difference)) return std::nullopt;
    Finding found;
    found.at = time_of(group, difference.sequence);
    found.verdict = {
        JobVerdict::Kind::mismatch,
        fmt::format("{} made different calls as operation {} of {}: {}.", name_ranks({difference.peer}),
                    difference.sequence, group.name, difference.text),
        {difference.peer}};
    return found;
  }

  static std::uint64_t last_sequence(const RecordedGroup& group) {
    return group.operations.empty() ? 0 : group.operations.back().sequence;
  }
  static const RecordedCall* find_call(const RecordedGroup& group, std::uint64_t sequence) {
    const auto found = std::find_if(group.operations.begin(), group.operations.end(),
                                    [&](const RecordedCall& call) { return call.sequence == sequence; });
    return found == group.operations.end() ? nullptr : &*found;
  }

  std::optional<Finding> find_absent(const GroupView& group) const {
    std::uint64_t least = ~std::uint64_t{0}, most = 0;
    for (const auto& [number, member] : group.members) {
      least = std::min(least, last_sequence(*member.group));
      most = std::max(most, last_sequence(*member.group));
    }
    // While ranks run, one may just be ahead. A short call that nobody has completed looks complete for some microseconds.
    const bool may_be_ahead =
        std::any_of(job_.ranks.begin(), job_.ranks.end(), [](const RecordedRank& r) { return r.is_alive; });
    if (least >= most || (may_be_ahead && !is_anyone_blocked(group))) return std::nullopt;
    std::vector<int> absent, present;
    const RecordedCall* call = nullptr;
    for (const auto& [number, member] : group.members) {
      const RecordedCall* const made = find_call(*member.group, least + 1);
      (last_sequence(*member.group) == least ? absent : present).push_back(number);
      if (made != nullptr) call = made;
    }
    if (call == nullptr) return std::nullopt;
    // Ranks that were told of the death of one of them could not call any more.
    const auto is_victim = [&](int number) { return !has_died(*group.members.at(number).rank); };
    if (!std::all_of(absent.begin(), absent.end(), is_victim)) std::erase_if(absent, is_victim);
    Finding found;
    found.at = time_of(group, least + 1);
    found.verdict.kind = JobVerdict::Kind::absent;
    found.verdict.culprits = world_ranks(group, absent);
    found.verdict.sentence =
        fmt::format("{} {} not called {} (operation {} of {}), which {} {} called: {}.",
                    name_ranks(found.verdict.culprits), absent.size() == 1 ? "has" : "have", describe(*call),
                    least + 1, group.name, name_ranks(world_ranks(group, present)),
                    present.size() == 1 ? "has" : "have", describe_rank(group, absent.front(), found.at));
    return found;
  }

  // A broadcast's root may be far ahead of the others, and all is well.
  bool is_anyone_blocked(const GroupView& group) const {
    return std::any_of(group.members.begin(), group.members.end(), [](const auto& entry) {
      const RecordedGroup& record = *entry.second.group;
      return std::any_of(record.operations.begin(), record.operations.end(), [](const RecordedCall& call) {
        return call.is_under_way() || call.state.phase == Phase::failed;
      });
    });
  }

  // The last call of a rank, and whether it still runs.
  std::string describe_rank(const GroupView& group, int number, std::int64_t since) const {
    const GroupView::Member& member = group.members.at(number);
    const std::string name = fmt::format("rank {}", member.rank->rank);
    if (has_died(*member.rank)) return describe_death(*member.rank);
    const Underway other = operation_under_way(*member.rank, groups_);
    if (other.call != nullptr && other.group->context != group.context)
      return fmt::format("{} is in {} (operation {} of {})", name, describe(*other.call),
                         other.call->sequence, other.group->name);
    if (other.call != nullptr)
      return fmt::format("{} is still in {} (operation {})", name, describe(*other.call),
                         other.call->sequence);
    if (member.group->operations.empty()) return fmt::format("{} has called nothing in this group", name);
    const RecordedCall& last = member.group->operations.back();
    std::string text =
        fmt::format("the last call of {} was {} (operation {})", name, describe(last), last.sequence);
    if (last.times.ended == 0) return text + ", which is complete";
    const std::int64_t gap = since - aligned(*member.rank, last.times.ended);
    if (gap <= 0) return text + ", which is complete";
    return fmt::format("{}, complete {} before the others called", text,
                       describe_time(static_cast<std::uint64_t>(gap)));
  }

  // Its process has ended, and knew of no failure: it was killed, or crashed.
  bool has_died(const RecordedRank& rank) const {
    const auto knows_failure = [](const RecordedRank& r) {
      return std::any_of(r.groups.begin(), r.groups.end(),
                         [](const RecordedGroup& g) { return !g.failure.empty(); });
    };
    const bool is_alone = std::any_of(job_.ranks.begin(), job_.ranks.end(), [&](const RecordedRank& other) {
      return other.is_alive || knows_failure(other);
    });
    return !rank.is_alive && !knows_failure(rank) && is_alone;
  }
  static std::string describe_death(const RecordedRank& rank) {
    return fmt::format("the process of rank {} (pid {} on {}) was killed, or crashed", rank.rank, rank.pid,
                       rank.host);
  }

  std::optional<Finding> find_blocked(const GroupView& group) const {
    // The first operation that some rank has not completed.
    const RecordedCall* first = nullptr;
    for (const auto& [number, member] : group.members) {
      for (const RecordedCall& call : member.group->operations) {
        if (call.state.phase == Phase::complete) continue;
        if (first == nullptr || call.sequence < first->sequence) first = &call;
        break;
      }
    }
    if (first == nullptr) return std::nullopt;
    Finding found;
    found.at = time_of(group, first->sequence);
    found.verdict.kind = JobVerdict::Kind::blocked;
    std::string ranks;
    for (const auto& [number, member] : group.members) {
      const RecordedCall* const call = find_call(*member.group, first->sequence);
      if (call == nullptr || call->state.phase == Phase::complete) continue;
      ranks += fmt::format("{}{}", ranks.empty() ? "" : "; ", describe_blocked(group, member, *call));
    }
    for (const int number : find_ends(group, first->sequence)) found.verdict.culprits.push_back(number);
    for (const int rank : found.verdict.culprits) {
      const RecordedRank* const ended = job_.find(rank);
      if (ended != nullptr && has_died(*ended)) ranks += "; " + describe_death(*ended);
    }
    found.verdict.sentence = fmt::format(
        "All ranks with a record have called {} (operation {} of {}), and it is "
        "not complete: {}.",
        describe(*first), first->sequence, group.name, ranks);
    return found;
  }

  static std::string describe_blocked(const GroupView& group, const GroupView::Member& member,
                                      const RecordedCall& call) {
    const std::string name = fmt::format("rank {}", member.rank->rank);
    if (call.state.phase == Phase::queued) return name + " has queued it behind earlier operations";
    if (call.state.peer == record::kNoPeer) return name + " moves data";
    const auto peer = group.members.find(static_cast<int>(call.state.peer));
    const std::string awaited =
        peer != group.members.end()
            ? fmt::format("rank {}", peer->second.rank->rank)
            : fmt::format("rank {} of the group, which has no record", call.state.peer);
    const char* const how = call.state.phase == Phase::failed ? "gave up waiting for" : "waits for";
    return fmt::format("{} {} {}", name, how, awaited);
  }

  // Ranks at the ends of chains "waits for": those that are awaited and await nobody.
  std::vector<int> find_ends(const GroupView& group, std::uint64_t sequence) const {
    std::vector<int> ends;
    for (const auto& [number, member] : group.members) {
      int at = number;
      for (std::size_t hops = 0; hops < group.members.size(); ++hops) {
        const RecordedCall* const call = find_call(*group.members.at(at).group, sequence);
        const bool is_blocked =
            call != nullptr && call->state.phase != Phase::complete && call->state.peer != record::kNoPeer;
        const auto peer =
            is_blocked ? group.members.find(static_cast<int>(call->state.peer)) : group.members.end();
        if (peer == group.members.end()) break;
        at = peer->first;
        if (has_died(*group.members.at(at).rank)) break;
      }
      const int rank = group.members.at(at).rank->rank;
      if (at != number && std::find(ends.begin(), ends.end(), rank) == ends.end()) ends.push_back(rank);
    }
    return ends;
  }

  std::optional<Finding> find_message(const GroupView& group) const {
    for (const auto& [number, member] : group.members) {
      for (const RecordedCall& call : member.group->messages) {
        if (call.state.phase == Phase::complete) continue;
        Finding found;
        found.at = aligned(*member.rank, call.times.submitted);
        const auto peer = group.members.find(static_cast<int>(call.kind >> 32U));
        const std::string who =
            peer == group.members.end() ? "" : fmt::format(" (rank {} of the job)", peer->second.rank->rank);
        found.verdict = {JobVerdict::Kind::message,
                         fmt::format("Rank {} has not completed {}{} in {}.", member.rank->rank,
                                     describe(call), who, group.name),
                         {}};
        if (peer != group.members.end()) found.verdict.culprits = {peer->second.rank->rank};
        return found;
      }
    }
    return std::nullopt;
  }

  std::string describe_success() const {
    std::size_t calls = 0;
    for (const GroupView& group : groups_) {
      std::uint64_t last = 0;
      for (const auto& [number, member] : group.members) last = std::max(last, last_sequence(*member.group));
      calls += last;
    }
    return fmt::format(
        "Nothing differs: {} with a record made the same {} calls in {} group{}, and completed them.",
        name_all(), calls, groups_.size(), groups_.size() == 1 ? "" : "s");
  }
  std::string name_all() const {
    return job_.ranks.size() == 1 ? "the one rank" : fmt::format("all {} ranks", job_.ranks.size());
  }

  const JobRecords& job_;
  const std::vector<GroupView> groups_;
  const std::map<int, std::int64_t> offsets_;
};

}  // namespace

std::string_view to_string(JobVerdict::Kind kind) {
  constexpr std::array<std::string_view, 5> kNames = {"nothing", "mismatch", "absent", "blocked", "message"};
  return kNames[static_cast<std::size_t>(kind)];
}

JobVerdict judge(const JobRecords& job) { return Diagnosis(job).judge(); }

Underway operation_under_way(const RecordedRank& rank, const std::vector<GroupView>& groups) {
  Underway found;
  for (const GroupView& group : groups) {
    for (const auto& [number, member] : group.members) {
      if (member.rank != &rank) continue;
      for (const auto* const calls : {&member.group->operations, &member.group->messages}) {
        for (const RecordedCall& call : *calls) {
          if (!call.is_under_way()) continue;
          if (found.call == nullptr || call.times.submitted < found.call->times.submitted)
            found = {&group, number, &call};
          break;
        }
      }
    }
  }
  return found;
}

std::string describe(const RecordedCall& call) {
  const std::uint64_t collective = call.kind & 0xFFU, dtype = call.kind >> 8U & 0xFFU;
  if (collective != static_cast<std::uint64_t>(Collective::send_recv) || dtype >= kDtypeCount)
    return describe_contract(call.kind, call.count);
  const bool is_send = (call.digest & 1U) != 0;
  return fmt::format("{} of {} {} {} rank {}", is_send ? "a send" : "a receive", call.count,
                     to_string(static_cast<Dtype>(dtype)), is_send ? "to" : "from", call.kind >> 32U);
}

std::string describe_time(std::uint64_t nanoseconds) {
  const auto ns = static_cast<double>(nanoseconds);
  if (ns < 1e3) return fmt::format("{} ns", nanoseconds);
  if (ns < 1e6) return fmt::format("{:.1f} us", ns / 1e3);
  if (ns < 1e9) return fmt::format("{:.1f} ms", ns / 1e6);
  return fmt::format("{:.2f} s", ns / 1e9);
}

}  // namespace tutti::tool
