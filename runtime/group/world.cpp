// Construction and end of a world, and the registry of its groups. Knows no public API.
#include "runtime/group/world.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <system_error>
#include <thread>

#include "runtime/base/fork_guard.hpp"
#include "runtime/base/log.hpp"
#include "runtime/base/rank_lists.hpp"
#include "runtime/base/rank_path.hpp"
#include "runtime/base/thread.hpp"
#include "runtime/base/trace_merge.hpp"
#include "runtime/base/version.hpp"
#include "runtime/group/error_file.hpp"
#include "runtime/group/open_worlds.hpp"
#include "runtime/group/pinning.hpp"
#include "runtime/job/meeting.hpp"
#include "runtime/record/statistics.hpp"
#include "transports/registry.hpp"

namespace tutti {
namespace {

// Of the ranks' files. Merging takes some ten times as much memory, which a job may not have to spare.
constexpr std::uintmax_t kMostTraceBytes = std::uintmax_t{256} << 20U;

}  // namespace

void WorldState::delete_on_another_thread(WorldState* state) {
  Result<std::thread> thread = start_thread("tutti-closing", [state] { delete state; });
  if (thread) return thread->detach();
  log_warn("a world is not closed: {}", thread.status().message());
}

WorldState::WorldState(World world, WorldSettings settings, Inheritance taken)
    : world_(std::move(world)),
      settings_(std::move(settings)),
      fork_generation_(tutti::fork_generation()),
      records_(std::move(taken.records)),
      has_newcomers_(taken.has_newcomers),
      peers_(std::move(taken.peers)),
      paths_(std::move(taken.paths)),
      engine_(std::move(taken.engine)),
      is_successor_(engine_ != nullptr) {}

std::shared_ptr<const PeerList> WorldState::peers_of(const std::vector<int>& world_ranks) {
  const std::lock_guard lock(last_peers_.mutex);
  std::shared_ptr<const PeerList> last = last_peers_.list.lock();
  if (last != nullptr && last_peers_.world_ranks == world_ranks) return last;
  PeerList made;
  made.reserve(world_ranks.size());
  for (const int rank : world_ranks) made.push_back(peers_[static_cast<std::size_t>(rank)]);
  last = std::make_shared<const PeerList>(std::move(made));
  last_peers_.list = last;
  last_peers_.world_ranks = world_ranks;
  return last;
}

Result<std::shared_ptr<WorldState>> WorldState::make(const BootstrapOptions& options,
                                                     WorldSettings settings) {
  prepare_process();
  Result<Meeting> meeting = arrange_meeting(options);
  if (!meeting) return meeting.status();
  return make(options, *std::move(meeting), std::move(settings));
}

Result<std::shared_ptr<WorldState>> WorldState::make(const BootstrapOptions& options, Meeting meeting,
                                                     WorldSettings settings) {
  const Clock::time_point deadline = Clock::now() + settings.timeout;
  Result<World> joined = bootstrap(options, std::move(meeting));
  if (!joined) return joined.status();
  settings.contract.emplace_back("the build", options.build_id);
  return start(*std::move(joined), std::move(settings), {}, deadline);
}

Result<std::shared_ptr<WorldState>> WorldState::make_successor(WorldState& old, Meeting meeting,
                                                               const std::vector<int>& ranks_before,
                                                               std::chrono::milliseconds timeout) {
  const Clock::time_point deadline = Clock::now() + timeout;
  BootstrapOptions options;
  options.build_id = std::string(build_id());
  options.timeout = timeout;
  options.silence = old.settings_.timeout;
  options.warn = [](const std::string& text) { log_warn("{}", text); };
  Result<World> joined = bootstrap(options, std::move(meeting));
  if (!joined) return joined.status();
  old.metrics_.reset();  // the new world serves at the same path
  WorldSettings settings = old.settings_;
  settings.needs_metrics = false;  // a rank of the old world that is not in the new one may still serve
  if (!ranks_before.empty()) {
    Inheritance kept{old.engine_, {}, {}, {}, false};
    kept.has_newcomers = std::find(ranks_before.begin(), ranks_before.end(), -1) != ranks_before.end();
    // Ranks that are to be bound get places anew, for which they exchange where they may run.
    const bool keeps_records = settings.pin.policy == PinPolicy::off && !kept.has_newcomers;
    for (const int rank : ranks_before) {
      if (rank < 0) {
        kept.peers.emplace_back();
        kept.paths.emplace_back();
        continue;
      }
      if (keeps_records) kept.records.push_back(old.records_[static_cast<std::size_t>(rank)]);
      kept.peers.push_back(old.peers_[static_cast<std::size_t>(rank)]);
      kept.paths.push_back(old.paths_[static_cast<std::size_t>(rank)]);
    }
    return start(*std::move(joined), std::move(settings), std::move(kept), deadline);
  }
  settings.trace_path.clear();  // the old engine has the file
  return start(*std::move(joined), std::move(settings), {}, deadline);
}

Result<std::shared_ptr<WorldState>> WorldState::start(World joined, WorldSettings settings, Inheritance taken,
                                                      Clock::time_point deadline) {
  set_log_rank(joined.info.size > 1 ? joined.info.rank : -1);
  // A child of fork() has no control thread and no peers: it must not tear down objects of the parent.
  std::shared_ptr<WorldState> world(new WorldState(std::move(joined), std::move(settings), std::move(taken)),
                                    [](WorldState* state) {
                                      if (state->fork_generation_ != tutti::fork_generation()) return;
                                      // A progress thread cannot wait for its own end.
                                      if (is_in_callback()) {
                                        delete_on_another_thread(state);
                                      } else {
                                        delete state;
                                      }
                                    });
  world->start_deadline_ = deadline;
  if (Status started = world->start(); !started) {
    world->start_error_ = started.message();  // ranks that wait for this one get it
    return started;
  }
  world->engine_->add(*world);
  world->control().set_observer(world.get());
  leave_at_exit(world);
  return world;
}

Status WorldState::start() {
  const bool needs_transports = engine_ == nullptr || has_newcomers_;
  if (engine_ == nullptr) TUTTI_RETURN_IF_ERROR(open_trace());
  TUTTI_RETURN_IF_ERROR(agree());
  TUTTI_RETURN_IF_ERROR(open_record());
  if (needs_transports) TUTTI_RETURN_IF_ERROR(open_transports());
  return judge_tuning();
}

WorldState::~WorldState() {
  world_.control->set_observer(nullptr);
  world_.control->announce_departure(start_error_);
  if (engine_ != nullptr) engine_->remove(*this);
  const bool is_last = engine_.use_count() == 1;
  engine_.reset();  // closes the transports while peers still count this rank as alive
  end_record(is_last);
}

Status WorldState::open_trace() {
  if (settings_.trace_path.empty()) return {};
  auto opened = Trace::open(settings_.trace_path, info().rank, info().size);
  if (!opened) return opened.status().with_context("TUTTI_TRACE");
  trace_ = *std::move(opened);
  return {};
}

// A job without its record is better than none.
Status WorldState::open_record() {
  if (settings_.record_folder.empty()) return {};
  record::RankFile::Description rank;
  rank.rank = info().rank;
  rank.size = info().size;
  const auto own = static_cast<std::size_t>(info().rank);
  rank.node = info().node_of_rank[own];
  rank.host = info().host_of_rank[own];
  rank.job = info().job;
  rank.build = version_text();
  rank.clock = std::to_string(info().machine_of_rank[own]);
  for (const char byte : identity_.substr(0, 6))
    rank.world += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  rank.tidies_folder = info().local_rank == 0 && engine_ == nullptr;  // a successor has others wait for it
  auto opened = record::RankFile::open(settings_.record_folder, rank);
  if (opened) {
    record_ = *std::move(opened);
    if (settings_.metrics_path.empty() || info().local_rank != 0) return {};
    auto served = record::MetricsServer::open(settings_.metrics_path, settings_.record_folder, rank.world);
    if (served) {
      metrics_ = *std::move(served);
      return {};
    }
    Status refused = served.status().with_context("TUTTI_METRICS");
    if (settings_.needs_metrics) return refused;
    log_warn("{}; nobody serves the statistics of the new group's ranks", refused.message());
    return {};
  }
  const std::string text =
      fmt::format("TUTTI_RECORDER: operations are recorded in memory only, and lost with this process: {}",
                  opened.status().message());
  const bool is_wanted =
      settings_.is_record_folder_named || settings_.prints_statistics || !settings_.metrics_path.empty();
  is_wanted ? log_warn("{}", text) : log_info("{}", text);
  return {};
}

// A trace is complete with the last world that writes it.
void WorldState::end_record(bool has_whole_trace) {
  if (record_ == nullptr || is_record_ended_.exchange(true)) return;
  metrics_.reset();
  const bool merges = has_whole_trace && !settings_.trace_path.empty();
  if (!settings_.prints_statistics && !merges) return record_->remove();
  const std::vector<record::RecordedRank> ranks = record_->end_together();
  if (ranks.empty()) return;
  if (settings_.prints_statistics) std::fputs(record::describe_statistics(ranks).c_str(), stderr);
  if (merges) merge_traces(ranks.size());
}

// Where all files are on this machine. Those of several machines are for `tutti trace`.
void WorldState::merge_traces(std::size_t ranks_here) const {
  if (is_successor_)  // files have the names of ranks of the first world
    return log_warn(
        "TUTTI_TRACE: members have changed, so the files of the ranks stay apart; tutti trace merges them");
  if (info().size == 1 || ranks_here != static_cast<std::size_t>(info().size)) return;
  std::vector<std::string> paths;
  paths.reserve(ranks_here);
  std::uintmax_t bytes = 0;
  for (int rank = 0; rank < info().size; ++rank) {
    paths.push_back(path_of_rank(settings_.trace_path, rank, info().size));
    std::error_code error;
    // A pipe has no end for us, and would keep this process from its own.
    if (!std::filesystem::is_regular_file(paths.back(), error)) return;
    bytes += std::filesystem::file_size(paths.back(), error);
  }
  if (bytes > kMostTraceBytes)
    return log_warn("TUTTI_TRACE: the files of the ranks are large, and stay apart; tutti trace merges them");
  const Status merged = merge_trace_files(paths, path_of_all_ranks(settings_.trace_path));
  if (!merged) log_warn("TUTTI_TRACE: the files of the ranks are not merged: {}", merged.message());
}

// -- groups -------------------------------------------------------------------------------------------------

void WorldState::add(GroupMember& group) {
  {
    const std::lock_guard lock(groups_mutex_);
    groups_[group.context()] = &group;
    if (const auto early = early_failures_.find(group.context()); early != early_failures_.end()) {
      group.on_failure(early->second);
      early_failures_.erase(early);
    }
    for (const auto& [rank, cause] : deaths_) {
      if (group.group_rank_of(rank) >= 0) group.on_failure(group.count_death(rank, cause));
    }
    for (const int rank : departures_) {
      if (group.group_rank_of(rank) >= 0) group.on_departure(rank);
    }
  }
  if (const Status failure = group.local_failure(); !failure) note_failure(group.context(), failure);
}

void WorldState::remove(GroupMember& group) {
  {
    std::unique_lock lock(groups_mutex_);
    groups_.erase(group.context());
    group_released_.wait(lock, [&] { return groups_in_use_.count(group.context()) == 0; });
  }
  const std::lock_guard lock(talk_mutex_);
  reports_.erase(group.context());
  arrivals_.erase(group.context());
  warned_.erase(group.context());
}

void WorldState::leave() {
  constexpr std::chrono::seconds kPatience{1};  // for threads that hold the progress engine
  control().announce_departure({});             // before anything closes and looks like a death
  std::vector<GroupMember*> leaving;
  {
    const std::lock_guard lock(groups_mutex_);
    for (const auto& [context, group] : groups_) {
      leaving.push_back(group);
      ++groups_in_use_[context];
    }
  }
  for (GroupMember* group : leaving) group->leave();
  const bool is_last = engine_->leave(*this, kPatience);
  control().leave();  // last: until then it forwards frames of other ranks
  const std::lock_guard lock(groups_mutex_);
  for (const GroupMember* group : leaving) {
    const auto found = groups_in_use_.find(group->context());
    if (--found->second == 0) groups_in_use_.erase(found);
  }
  group_released_.notify_all();
  end_record(is_last);
}

std::vector<int> WorldState::dead_ranks() {
  const std::lock_guard lock(groups_mutex_);
  std::vector<int> ranks;
  for (const auto& [rank, cause] : deaths_) ranks.push_back(rank);
  return ranks;
}

bool WorldState::has_group(std::uint64_t context) {
  const std::lock_guard lock(groups_mutex_);
  return find(context) != nullptr;
}

bool WorldState::is_sound() {
  if (fork_generation_ != tutti::fork_generation() || !has_root()) return false;
  const std::lock_guard lock(groups_mutex_);
  return deaths_.empty() && departures_.empty();
}

void WorldState::on_arrival(int source, const MemberArrival& arrival) {
  const std::lock_guard lock(talk_mutex_);
  arrivals_[arrival.context][arrival.step].insert(source);
  answered_.notify_all();
}

Status WorldState::meet(const GroupMember& group, std::uint32_t step, Clock::time_point deadline) {
  constexpr std::chrono::milliseconds kPollPause{20};  // at the group's failure
  const std::vector<int>& ranks = group.world_ranks();
  const std::string arrival = encode_diagnosis(MemberArrival{group.context(), step});
  const bool is_first = ranks.front() == info().rank;
  const std::set<int> awaited =
      is_first ? std::set<int>(ranks.begin() + 1, ranks.end()) : std::set<int>{ranks[0]};
  if (!is_first) control().tell(ranks[0], arrival);
  {
    std::unique_lock lock(talk_mutex_);
    const std::set<int>& arrived = arrivals_[group.context()][step];
    while (!std::includes(arrived.begin(), arrived.end(), awaited.begin(), awaited.end())) {
      answered_.wait_for(lock, kPollPause);
      TUTTI_RETURN_IF_ERROR(group.local_failure());
      if (Clock::now() < deadline) continue;
      std::vector<int> missing;
      for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
        if (awaited.contains(ranks[rank]) && !arrived.contains(ranks[rank]))
          missing.push_back(static_cast<int>(rank));
      }
      return Status(StatusCode::timeout,
                    fmt::format("{} did not come to the new group in time",
                                name_ranks(missing, static_cast<int>(ranks.size()))),
                    missing.front());
    }
  }
  if (is_first) {
    for (const int rank : awaited) control().tell(rank, arrival);
  }
  return {};
}

GroupMember* WorldState::find(std::uint64_t context) {
  const auto found = groups_.find(context);
  return found == groups_.end() ? nullptr : found->second;
}

void WorldState::on_failure(std::uint64_t group, int dead_rank, const Status& cause) {
  // The file first: a caller that gets the error may end the process.
  group != 0 ? note_failure(group, cause) : note_death(dead_rank, cause);
  const std::lock_guard lock(groups_mutex_);
  if (group != 0) {
    if (GroupMember* member = find(group)) {
      member->on_failure(cause);
    } else {
      early_failures_.emplace(group, cause);  // bounded by rank 0 (kMaxFailedGroups)
    }
    return;
  }
  deaths_.emplace_back(dead_rank, cause);
  for (const auto& [context, member] : groups_) {
    if (member->group_rank_of(dead_rank) >= 0) member->on_failure(member->count_death(dead_rank, cause));
  }
}

// The file tells of one group: the largest of those that this rank has used.
void WorldState::note_death(int dead_rank, const Status& cause) {
  if (has_noted_failure_.load(std::memory_order_relaxed)) return;
  std::uint64_t context = 0;
  Status death;
  {
    const std::lock_guard lock(groups_mutex_);
    std::pair<bool, std::size_t> most;
    for (const auto& [number, member] : groups_) {
      const std::pair use(!member->submitted_calls(1).empty(), member->world_ranks().size());
      if (member->group_rank_of(dead_rank) < 0 || (context != 0 && use <= most)) continue;
      context = number;
      most = use;
      death = member->count_death(dead_rank, cause);
    }
  }
  if (context == 0) return;
  std::vector<RankVerdict> verdicts = death.verdicts();
  for (RankVerdict& verdict : verdicts) note_recorded(context, verdict);
  note_failure(context, death.with_verdicts(std::move(verdicts)));
}

void WorldState::note_failure(std::uint64_t context, const Status& cause) {
  FailedGroup failed;
  {
    const std::lock_guard lock(groups_mutex_);
    const GroupMember* const group = find(context);
    if (group == nullptr) return;
    failed = {group->world_ranks(), group->group_rank_of(info().rank), group->submitted_calls(1)};
  }
  if (has_noted_failure_.exchange(true, std::memory_order_relaxed)) return;
  print_root_cause(failed.world_ranks, cause);
  if (settings_.error_path.empty()) return;
  const Status written =
      write_error_file(settings_.error_path, info(), failure_to_json(info(), failed, cause));
  if (!written) log_warn("{}", written.message());
}

// One line for the job: by the first member that the verdicts do not name.
void WorldState::print_root_cause(const std::vector<int>& world_ranks, const Status& cause) const {
  if (cause.verdicts().empty()) return;
  int first = std::numeric_limits<int>::max();
  for (const int rank : world_ranks) {
    const bool is_named = std::ranges::any_of(
        cause.verdicts(), [rank](const RankVerdict& verdict) { return verdict.world_rank == rank; });
    if (!is_named) first = std::min(first, rank);
  }
  if (first != info().rank) return;
  RankVerdict root = cause.verdicts().front();
  root.group_rank = -1;  // other groups number it otherwise
  log_warn("ROOT CAUSE: {}{}", to_text(root), root.awaited.empty() ? "" : "; missed in " + root.awaited);
}

void WorldState::on_departure(int rank) {
  const std::lock_guard lock(groups_mutex_);
  departures_.push_back(rank);
  for (const auto& [context, member] : groups_) {
    if (member->group_rank_of(rank) >= 0) member->on_departure(rank);
  }
}

}  // namespace tutti
