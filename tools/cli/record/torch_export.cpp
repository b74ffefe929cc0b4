// See torch_export.hpp.
#include "tools/cli/record/torch_export.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/types.hpp"

namespace tutti::tool {
namespace {

using record::Phase;
using record::RecordedCall;
using record::RecordedGroup;

// Collectives by the analyser's names; "": it has none.
constexpr std::array<std::string_view, kCollectiveCount> kTorchNames = {
    "all_reduce",     "broadcast",  "reduce", "all_gather",
    "reduce_scatter", "all_to_all", "gather", "scatter",
    "barrier",        "",           "",       ""};

std::string_view torch_name(const RecordedCall& call) {
  const std::uint64_t collective = call.kind & 0xFFU;
  return collective < kCollectiveCount ? kTorchNames[collective] : std::string_view();
}

// Elements of a rank's input and output.
std::pair<std::uint64_t, std::uint64_t> sizes_of(const RecordedCall& call, std::uint64_t ranks) {
  switch (static_cast<Collective>(call.kind & 0xFFU)) {
    case Collective::allgather:
    case Collective::gather:
      return {call.count, call.count * ranks};
    case Collective::reduce_scatter:
    case Collective::scatter:
      return {call.count * ranks, call.count};
    case Collective::alltoall:
      return {call.count * ranks, call.count * ranks};
    default:
      return {call.count, call.count};
  }
}

std::string_view state_of(const RecordedCall& call) {
  if (call.state.phase == Phase::complete) return "completed";
  return call.state.phase == Phase::queued ? "scheduled" : "started";
}

Json entry_of(const GroupView& group, const std::string& name, const std::string& description,
              const RecordedCall& call, std::uint64_t wall_offset) {
  const auto [input, output] = sizes_of(call, group.size);
  const std::uint64_t dtype = call.kind >> 8U & 0xFFU;
  const Json dtypes = std::vector<std::string>{
      std::string(dtype < kDtypeCount ? kDtypeNames[dtype] : std::string_view("unknown"))};
  const auto wall = [&](std::uint64_t time) { return time == 0 ? Json(nullptr) : Json(time + wall_offset); };
  const auto size_list = [](std::uint64_t size) {
    Json lists = Json::array();
    lists.push_back(std::vector<std::uint64_t>{size});
    return lists;
  };
  return {{"record_id", 0},
          {"pg_id", 0},
          {"process_group", std::vector<std::string>{name, description}},
          {"collective_seq_id", call.sequence},
          {"p2p_seq_id", 0},
          {"op_id", call.sequence},
          // The analyser accepts the names of a few libraries only.
          {"profiling_name", fmt::format("gloo:{}", torch_name(call))},
          {"time_created_ns", call.times.submitted + wall_offset},
          {"time_discovered_started_ns", wall(call.times.entered)},
          {"time_discovered_completed_ns", wall(call.times.ended)},
          {"input_sizes", size_list(input)},
          {"input_dtypes", dtypes},
          {"output_sizes", size_list(output)},
          {"output_dtypes", dtypes},
          {"state", std::string(state_of(call))},
          {"retired", call.state.phase == Phase::complete},
          {"is_p2p", false},
          {"timeout_ms", 0},
          {"frames", Json::array()}};
}

// The first operation that all ranks with a record remember.
std::uint64_t common_start(const GroupView& group) {
  std::uint64_t start = 1;
  for (const auto& [rank, member] : group.members) {
    if (!member.group->operations.empty()) start = std::max(start, member.group->operations.front().sequence);
  }
  return start;
}

void put_number(std::string& bytes, std::uint64_t number) {
  constexpr char kLong1 = '\x8a';
  bytes += kLong1;
  bytes += static_cast<char>(sizeof number + 1);
  for (unsigned shift = 0; shift < 64; shift += 8) bytes += static_cast<char>(number >> shift & 0xFFU);
  bytes += '\0';  // the sign
}

void put_text(std::string& bytes, const std::string& text) {
  bytes += 'X';
  for (unsigned shift = 0; shift < 32; shift += 8) bytes += static_cast<char>(text.size() >> shift & 0xFFU);
  bytes += text;
}

void put_value(std::string& bytes, const Json& value) {
  if (value.is_object()) {
    bytes += "}(";
    for (std::size_t i = 0; i < value.size(); ++i) {
      put_text(bytes, value.key(i));
      put_value(bytes, value.at(i));
    }
    bytes += 'u';
  } else if (value.is_array()) {
    bytes += "](";
    for (const Json& item : value) put_value(bytes, item);
    bytes += 'e';
  } else if (value.is_text()) {
    put_text(bytes, value.text());
  } else if (value.is_natural()) {
    put_number(bytes, value.natural());
  } else if (value.is_null()) {
    bytes += 'N';
  } else {
    bytes += value.boolean() ? '\x88' : '\x89';
  }
}

}  // namespace

std::map<int, Json> torch_dumps(const JobRecords& job) {
  std::map<int, Json> dumps;
  std::map<int, std::uint64_t> last_ids;
  for (const record::RecordedRank& rank : job.ranks)
    dumps[rank.rank] = {{"version", "2.4"}, {"pg_config", Json::object()}, {"entries", Json::array()}};
  const std::vector<GroupView> groups = groups_of(job);
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const GroupView& group = groups[i];
    std::vector<int> members;
    for (const auto& [number, member] : group.members) members.push_back(member.rank->rank);
    const bool is_world = static_cast<int>(group.size) == job.size();
    if (is_world) {  // also those without a record, which the analyser misses then
      members.clear();
      for (int rank = 0; rank < job.size(); ++rank) members.push_back(rank);
    }
    const std::string name = std::to_string(i);
    const std::string description = is_world && group.stream == 0 ? "default_pg" : group.name;
    const std::uint64_t start = common_start(group);
    for (const auto& [number, member] : group.members) {
      Json& dump = dumps[member.rank->rank];
      dump["pg_config"][name] = {
          {"name", name}, {"desc", description}, {"ranks", fmt::format("[{}]", fmt::join(members, ", "))}};
      const std::uint64_t wall_offset =
          member.rank->wall - std::min(member.rank->wall, member.rank->monotonic);
      for (const RecordedCall& call : member.group->operations) {
        if (call.sequence < start || torch_name(call).empty()) continue;
        Json entry = entry_of(group, name, description, call, wall_offset);
        entry["record_id"] = last_ids[member.rank->rank]++;
        dump["entries"].push_back(std::move(entry));
      }
    }
  }
  return dumps;
}

std::string pickle_of(const Json& value) {
  std::string bytes = "\x80\x02";
  put_value(bytes, value);
  bytes += '.';
  return bytes;
}

Status export_for_torch(const JobRecords& job, const std::string& folder) {
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST)
    return invalid_argument(fmt::format("'{}' cannot be made: {}", folder, std::strerror(errno)));
  for (const auto& [rank, dump] : torch_dumps(job)) {
    const std::string path = fmt::format("{}/tutti_trace_{}", folder, rank);
    const std::string bytes = pickle_of(dump);
    std::ofstream file(path, std::ios::binary);
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    if (!file.flush()) return invalid_argument(fmt::format("'{}' cannot be written", path));
  }
  return {};
}

}  // namespace tutti::tool
