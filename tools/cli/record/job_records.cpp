// See job_records.hpp.
#include "tools/cli/record/job_records.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <tuple>
#include <utility>

#include "runtime/base/config.hpp"
#include "runtime/base/rank_lists.hpp"
#include "runtime/base/types.hpp"
#include "runtime/record/folder.hpp"
#include "runtime/record/rank_file.hpp"

namespace tutti::tool {
namespace {

using record::RecordedCall;
using record::RecordedRank;

bool is_folder(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

Result<std::string> default_folder() {
  const Environment environment = Environment::of_process();
  const auto named = get_text(environment, "TUTTI_RECORDER");
  if (!named) return named.status();
  if (*named && **named != "auto" && **named != "off") return **named;
  return record::default_folder(environment.find("TMPDIR").value_or(""));
}

bool is_meant(const RecordedRank& rank, const std::string& what) {
  return what.empty() || rank.job == what || rank.world == what || std::to_string(rank.pid) == what ||
         rank.job.ends_with(":" + what);
}

// Times at which a rank began and ended an operation, by its number.
using Spans = std::map<std::uint64_t, std::pair<std::uint64_t, std::uint64_t>>;

bool waits_for_all(const RecordedCall& call) {
  const std::uint64_t collective = call.kind & 0xFFU;
  return collective < kCollectiveCount && tutti::waits_for_all(static_cast<Collective>(collective));
}

Spans spans_of(const record::RecordedGroup& group) {
  Spans spans;
  for (const RecordedCall& call : group.operations) {
    if (call.state.phase == record::Phase::complete && waits_for_all(call) && call.times.ended != 0)
      spans[call.sequence] = {call.times.submitted, call.times.ended};
  }
  return spans;
}

// The limits of a number that is to be added to the other rank's times.
struct Bounds {
  std::int64_t least = std::numeric_limits<std::int64_t>::min();
  std::int64_t most = std::numeric_limits<std::int64_t>::max();

  void narrow(const Spans& own, const Spans& other) {
    for (const auto& [sequence, span] : own) {
      const auto found = other.find(sequence);
      if (found == other.end()) continue;
      least = std::max(
          least, static_cast<std::int64_t>(span.first) - static_cast<std::int64_t>(found->second.second));
      most = std::min(
          most, static_cast<std::int64_t>(span.second) - static_cast<std::int64_t>(found->second.first));
    }
  }
  bool is_known() const { return least != std::numeric_limits<std::int64_t>::min() && least <= most; }
};

std::int64_t difference(std::uint64_t a, std::uint64_t b) {
  return static_cast<std::int64_t>(a) - static_cast<std::int64_t>(b);
}

// All ranks of both machines know something about their clocks.
Bounds bounds_between(std::uint64_t boot, std::uint64_t other_boot, const std::vector<GroupView>& groups) {
  Bounds bounds;
  for (const GroupView& group : groups) {
    std::vector<Spans> own, others;
    for (const auto& [rank, member] : group.members) {
      if (member.rank->boot == boot) own.push_back(spans_of(*member.group));
      if (member.rank->boot == other_boot) others.push_back(spans_of(*member.group));
    }
    for (const Spans& here : own) {
      for (const Spans& there : others) bounds.narrow(here, there);
    }
  }
  return bounds;
}

std::string describe_worlds(const std::vector<RecordedRank>& ranks) {
  std::map<std::pair<std::string, std::string>, int> counts;
  for (const RecordedRank& rank : ranks) ++counts[{rank.job, rank.world}];
  std::string text;
  for (const auto& [world, count] : counts) {
    text += fmt::format("{}job '{}' (world {}, {} rank{})", text.empty() ? "" : ", ", world.first,
                        world.second, count, count == 1 ? "" : "s");
    constexpr std::size_t kMostText = 400;
    if (text.size() > kMostText) return text + ", ...";
  }
  return text.empty() ? "no record" : text;
}

}  // namespace

const RecordedRank* JobRecords::find(int rank) const {
  const auto found =
      std::find_if(ranks.begin(), ranks.end(), [&](const RecordedRank& r) { return r.rank == rank; });
  return found == ranks.end() ? nullptr : &*found;
}

Result<JobRecords> choose_world(std::vector<RecordedRank> ranks, const std::string& what) {
  std::map<std::string, std::pair<bool, std::uint64_t>> worlds;  // do ranks run, and the last start
  for (const RecordedRank& rank : ranks) {
    if (!is_meant(rank, what)) continue;
    auto& [is_alive, start] = worlds[rank.world];
    is_alive = is_alive || rank.is_alive;
    start = std::max(start, rank.wall);
  }
  if (worlds.empty()) {
    return invalid_argument(
        fmt::format("no rank of '{}' has a record; there is {}", what, describe_worlds(ranks)));
  }
  const auto chosen = std::max_element(worlds.begin(), worlds.end(),
                                       [](const auto& a, const auto& b) { return a.second < b.second; });
  JobRecords job;
  job.world = chosen->first;
  // Foreign bytes may say that a rank is there twice, or in a world of another size.
  std::map<int, RecordedRank> by_rank;
  for (RecordedRank& rank : ranks) {
    if (rank.world == job.world && (by_rank.empty() || by_rank.begin()->second.size == rank.size))
      by_rank.try_emplace(rank.rank, std::move(rank));
  }
  for (auto& [number, rank] : by_rank) job.ranks.push_back(std::move(rank));
  job.job = job.ranks.front().job;
  return job;
}

namespace {

// Only those of a world, if `what` is its word: names tell.
std::vector<std::string> files_of(const std::string& folder, const std::string& what) {
  std::vector<std::string> all = record::list_files(folder), named;
  std::copy_if(all.begin(), all.end(), std::back_inserter(named),
               [&](const std::string& path) { return path.find("." + what + ".") != std::string::npos; });
  return what.empty() || named.empty() ? all : named;
}

}  // namespace

Result<JobRecords> find_job(const std::string& what, const std::string& world) {
  const bool is_path = is_folder(what);
  auto folder = is_path ? Result<std::string>(what) : default_folder();
  if (!folder) return folder.status();
  const std::string wanted = !world.empty() ? world : is_path ? "" : what;
  std::vector<RecordedRank> ranks;
  std::vector<std::string> unreadable;
  for (const std::string& path : files_of(*folder, wanted)) {
    auto rank = record::read_record(path);
    if (rank) {
      ranks.push_back(*std::move(rank));
    } else {
      unreadable.push_back(rank.status().message());
    }
  }
  if (ranks.empty()) {
    return invalid_argument(fmt::format("no record of a rank is in '{}'{}", *folder,
                                        unreadable.empty()
                                            ? "; expected the folder that TUTTI_RECORDER names in the job"
                                            : ": " + unreadable[0]));
  }
  auto job = choose_world(std::move(ranks), wanted);
  if (job) job->unreadable = std::move(unreadable);
  return job;
}

std::vector<GroupView> groups_of(const JobRecords& job) {
  std::map<std::uint64_t, GroupView> by_context;
  std::vector<std::uint64_t> order;
  for (const RecordedRank& rank : job.ranks) {
    for (const record::RecordedGroup& group : rank.groups) {
      const auto [at, is_new] = by_context.try_emplace(group.context);
      GroupView& view = at->second;
      if (is_new) {
        order.push_back(group.context);
        std::tie(view.context, view.size, view.stream) = std::tie(group.context, group.size, group.stream);
      }
      if (group.size == view.size)
        view.members.try_emplace(static_cast<int>(group.rank), GroupView::Member{&rank, &group});
    }
  }
  std::vector<GroupView> groups;
  for (const std::uint64_t context : order) {
    GroupView& view = by_context[context];
    std::vector<int> world_ranks;
    for (const auto& [rank, member] : view.members) world_ranks.push_back(member.rank->rank);
    const bool is_world = static_cast<int>(view.size) == job.size();
    view.name = is_world ? fmt::format("the group of all {} ranks", view.size)
                         : fmt::format("the group of {}", name_ranks(world_ranks));
    if (view.stream != 0) view.name = fmt::format("stream {} of {}", view.stream, view.name);
    groups.push_back(std::move(view));
  }
  return groups;
}

std::map<int, std::int64_t> align_clocks(const JobRecords& job) {
  std::map<int, std::int64_t> offsets;
  std::map<std::uint64_t, std::int64_t> of_machine;  // by boot
  const RecordedRank& first = job.ranks.front();
  const std::vector<GroupView> groups = groups_of(job);
  for (const RecordedRank& rank : job.ranks) {
    if (rank.boot == first.boot) {
      offsets[rank.rank] = 0;
      continue;
    }
    const auto known = of_machine.find(rank.boot);
    if (known != of_machine.end()) {
      offsets[rank.rank] = known->second;
      continue;
    }
    const Bounds bounds = bounds_between(first.boot, rank.boot, groups);
    const std::int64_t by_wall =
        difference(rank.wall, rank.monotonic) - difference(first.wall, first.monotonic);
    offsets[rank.rank] = bounds.is_known() ? bounds.least + (bounds.most - bounds.least) / 2 : by_wall;
    of_machine[rank.boot] = offsets[rank.rank];
  }
  return offsets;
}

}  // namespace tutti::tool
