// See activity.hpp.
#include "tools/cli/record/activity.hpp"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <string_view>

#include "runtime/base/types.hpp"
#include "tools/cli/record/verdict.hpp"

namespace tutti::tool {
namespace {

using record::Phase;
using record::RecordedCall;
using record::RecordedGroup;

struct Totals {
  std::uint64_t calls = 0, bytes = 0, waited = 0;
};

Totals totals_of(const RecordedGroup* group) {
  Totals totals;
  for (const record::RecordedRow& row : group->rows) {
    totals.calls += row.calls;
    totals.bytes += row.bytes;
    totals.waited += row.waited;
  }
  return totals;
}

const RecordedGroup* find_group(const record::RecordedRank* rank, std::uint64_t context) {
  if (rank == nullptr) return nullptr;
  const auto found = std::find_if(rank->groups.begin(), rank->groups.end(),
                                  [&](const RecordedGroup& group) { return group.context == context; });
  return found == rank->groups.end() ? nullptr : &*found;
}

double rate(std::uint64_t before, std::uint64_t after, double seconds) {
  return after < before || seconds <= 0 ? 0 : static_cast<double>(after - before) / seconds;
}

std::string phase_of(const RecordedCall& call) {
  switch (call.state.phase) {
    case Phase::queued:
      return "queued";
    case Phase::waiting:
      return "waits";
    case Phase::reducing:
      return "reduces";
    default:
      return "moves";
  }
}

std::optional<GroupActivity::Operation> operation_of(const GroupView& view, const RecordedGroup& group,
                                                     std::optional<std::uint64_t> now) {
  const RecordedCall* first = nullptr;
  for (const auto* const calls : {&group.operations, &group.messages}) {
    for (const RecordedCall& call : *calls) {
      if (!call.is_under_way()) continue;
      if (first == nullptr || call.times.submitted < first->times.submitted) first = &call;
      break;
    }
  }
  if (first == nullptr) return std::nullopt;
  GroupActivity::Operation operation;
  operation.call = describe(*first);
  operation.number = first->sequence;
  operation.phase = phase_of(*first);
  if (const auto peer = view.members.find(static_cast<int>(first->state.peer)); peer != view.members.end())
    operation.awaited = peer->second.rank->rank;
  if (now && first->times.submitted != 0 && *now >= first->times.submitted)
    operation.age_ns = *now - first->times.submitted;
  return operation;
}

}  // namespace

std::vector<RankActivity> activity_of(const Reading& before, const Reading& after) {
  const double seconds = static_cast<double>(after.at - before.at) / 1e9;
  const std::vector<GroupView> groups = groups_of(after.job);
  std::vector<RankActivity> ranks;
  for (const record::RecordedRank& rank : after.job.ranks) {
    const record::RecordedRank* const earlier = before.job.find(rank.rank);
    RankActivity found;
    found.rank = rank.rank;
    found.pid = rank.pid;
    found.host = rank.host;
    found.is_alive = rank.is_alive;
    const auto cpu_before = before.cpu.find(rank.pid), cpu_after = after.cpu.find(rank.pid);
    if (cpu_before != before.cpu.end() && cpu_after != after.cpu.end())
      found.cpus = rate(cpu_before->second, cpu_after->second, seconds) / 1e9;
    for (const record::RecordedTraffic& traffic : rank.traffic) {
      std::uint64_t earlier_bytes = 0;
      for (const record::RecordedTraffic& other : earlier == nullptr ? rank.traffic : earlier->traffic) {
        if (other.transport == traffic.transport) earlier_bytes = other.sent_bytes + other.received_bytes;
      }
      found.transports[traffic.transport] =
          rate(earlier_bytes, traffic.sent_bytes + traffic.received_bytes, seconds);
    }
    for (const GroupView& view : groups) {
      const RecordedGroup* const group = find_group(&rank, view.context);
      if (group == nullptr || !group->is_open) continue;
      // A new group goes on with the counters of the one whose section it took, and has no rate yet.
      const RecordedGroup* const group_before = find_group(earlier, view.context);
      const Totals now = totals_of(group), then = totals_of(group_before == nullptr ? group : group_before);
      GroupActivity in_group;
      in_group.name = view.name;
      in_group.calls = rate(then.calls, now.calls, seconds);
      in_group.bytes = rate(then.bytes, now.bytes, seconds);
      in_group.waiting = std::min(1.0, rate(then.waited, now.waited, seconds) / 1e9);
      const bool has_this_clock = rank.is_alive && rank.boot == after.boot;
      in_group.operation =
          operation_of(view, *group, has_this_clock ? std::optional(after.at) : std::nullopt);
      found.groups.push_back(std::move(in_group));
    }
    ranks.push_back(std::move(found));
  }
  return ranks;
}

std::optional<std::uint64_t> cpu_time_of(int pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  // The name of the program, in brackets, may hold anything.
  const std::size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  std::string_view rest = std::string_view(line).substr(name_end + 1);
  std::uint64_t sum = 0;                             // of the user's and the system's time
  constexpr int kUserField = 11, kSystemField = 12;  // behind the name
  for (int field = 0; field <= kSystemField; ++field) {
    rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
    const std::string_view word = rest.substr(0, rest.find(' '));
    rest.remove_prefix(word.size());
    std::uint64_t ticks = 0;
    if (field < kUserField) continue;
    if (std::from_chars(word.data(), word.data() + word.size(), ticks).ec != std::errc()) return std::nullopt;
    sum += ticks;
  }
  return sum * (1000000000U / static_cast<std::uint64_t>(std::max(1L, ::sysconf(_SC_CLK_TCK))));
}

Json to_json(const RankActivity& rank) {
  Json groups = Json::array();
  for (const GroupActivity& group : rank.groups) {
    Json operation;
    if (group.operation) {
      const GroupActivity::Operation& now = *group.operation;
      operation = {{"call", now.call},
                   {"number", now.number},
                   {"phase", now.phase},
                   {"awaited_rank", now.awaited ? Json(*now.awaited) : Json(nullptr)},
                   {"age_us", now.age_ns ? Json(static_cast<double>(*now.age_ns) / 1e3) : Json(nullptr)}};
    }
    groups.push_back({{"group", group.name},
                      {"calls_per_s", group.calls},
                      {"bytes_per_s", group.bytes},
                      {"waiting", group.waiting},
                      {"operation", std::move(operation)}});
  }
  Json transports = Json::object();
  for (const auto& [name, bytes] : rank.transports) transports[name] = bytes;
  return {{"rank", rank.rank},
          {"pid", rank.pid},
          {"host", rank.host},
          {"alive", rank.is_alive},
          {"cpus", rank.cpus ? Json(*rank.cpus) : Json(nullptr)},
          {"transport_bytes_per_s", std::move(transports)},
          {"groups", std::move(groups)}};
}

}  // namespace tutti::tool
