// Groups that go on with other members: the successor of a group, in a world of its own that uses the engine of the
// old one. Knows of the agreement (runtime/job/agreement.hpp) only its result.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "runtime/base/log.hpp"
#include "runtime/base/rank_lists.hpp"
#include "runtime/base/version.hpp"
#include "runtime/group/comm_group.hpp"
#include "runtime/job/agreement.hpp"
#include "runtime/job/meeting.hpp"

namespace tutti {

CommGroup::Impl::Lineage CommGroup::Impl::lineage() const {
  if (lineage_) return *lineage_;
  const WorldKeys& keys = world_->keys();
  Lineage made{fmt::format("{}/{:x}", keys.job, context()), rank_, {0, size(), {}}};
  for (std::size_t rank = 0; rank < world_ranks_.size(); ++rank) {
    made.membership.members.push_back(
        {static_cast<std::int32_t>(rank), keys.places[static_cast<std::size_t>(world_ranks_[rank])]});
  }
  return made;
}

// Throws for a list that is not one of other members.
std::set<std::int32_t> CommGroup::Impl::ids_left_out(std::span<const int> ranks) const {
  std::set<std::int32_t> ids;
  const Lineage own = lineage();
  for (const int rank : ranks) {
    if (rank < 0 || rank >= size()) {
      throw_error(invalid_argument(
          fmt::format("shrink: left_out: {} is no rank of the group; expected 0 to {}", rank, size() - 1)));
    }
    if (rank == rank_) {
      throw_error(invalid_argument(fmt::format(
          "shrink: left_out: this rank, {}, is listed; only members that stay call shrink", rank)));
    }
    ids.insert(own.membership.members[static_cast<std::size_t>(rank)].id);
  }
  for (const int world_rank : world_->lost_ranks()) {
    if (const int rank = group_rank_of(world_rank); rank >= 0)
      ids.insert(own.membership.members[static_cast<std::size_t>(rank)].id);
  }
  return ids;
}

std::shared_ptr<CommGroup::Impl> CommGroup::Impl::shrink(std::span<const int> left_out) {
  check_may_wait();
  if (owner_ != nullptr) return owner_->shrink(left_out);
  Lineage next = lineage();
  AgreementOptions options;
  options.gone = ids_left_out(left_out);
  options.deadline = Clock::now() + group_->timeout();
  options.listener = world_->keys().listener.get();
  options.control = control_options(next);
  for (;;) {
    options.membership = next.membership;
    Result<Agreed> agreed = agree_on_successor(options);
    if (!agreed) throw_error(agreed.status().with_context("shrink"));
    next.membership = agreed->successor.membership;
    Result<std::shared_ptr<WorldState>> world = WorldState::make_successor(
        *world_, meet_as_successor(world_->keys(), world_->info(), *agreed, next.id),
        std::chrono::ceil<std::chrono::milliseconds>(options.deadline - Clock::now()));
    // A member that is lost meanwhile ends the start of the new world on all: they agree anew.
    if (!world && world.status().code() == StatusCode::peer_failed && Clock::now() < options.deadline) {
      log_info("shrink begins again: {}", world.status().message());
      continue;
    }
    if (!world) throw_error(world.status().with_context("shrink"));
    return succeed(*world, agreed->successor.job, std::move(next));
  }
}

ControlOptions CommGroup::Impl::control_options(const Lineage& of) const {
  const WorldKeys& keys = world_->keys();
  const WorldInfo& info = world_->info();
  ControlOptions control;
  control.job = of.name;
  control.secret = keys.secret;
  control.build_id = std::string(build_id());
  control.host = info.host_of_rank[static_cast<std::size_t>(info.rank)];
  control.rank = of.id;
  control.size = size();
  control.silence = group_->timeout() / 3;
  control.warn = [](const std::string& text) { log_warn("{}", text); };
  control.open_listeners = keys.open_listeners;
  return control;
}

// The new group; ends this rank's part in the old one.
std::shared_ptr<CommGroup::Impl> CommGroup::Impl::succeed(const std::shared_ptr<WorldState>& world,
                                                          std::string_view job, Lineage next) {
  std::vector<int> ranks(world->peers().size());
  std::iota(ranks.begin(), ranks.end(), 0);
  std::shared_ptr<Impl> made =
      make(world, std::move(ranks), context_of("successor", job), group_->timeout(), rules_);
  made->lineage_ = std::move(next);
  const Status why(StatusCode::aborted, "this group has a successor, which its members made by shrink");
  std::vector<std::shared_ptr<Impl>> streams;
  {
    const std::lock_guard lock(streams_mutex_);
    for (const auto& [number, stream] : streams_) streams.push_back(stream);
  }
  for (const auto& stream : streams) stream->group_->leave(why);
  group_->leave(why);
  return made;
}

}  // namespace tutti
