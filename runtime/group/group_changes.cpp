// Groups that go on with other members: the successor of a group, in a world of its own. Knows of the agreement
// (runtime/job/agreement.hpp) only its result.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runtime/base/log.hpp"
#include "runtime/base/rank_lists.hpp"
#include "runtime/base/version.hpp"
#include "runtime/group/comm_group.hpp"
#include "runtime/job/agreement.hpp"
#include "runtime/job/meeting.hpp"
#include "transports/registry.hpp"

namespace tutti {
namespace {

constexpr std::size_t kInvitingMembers = 8;  // one of them has to live while the invitation is used

// The time for the start of the new world. The last member may have come just before the deadline, and a member
// hears of the commit even later.
std::chrono::milliseconds time_to_start(Clock::time_point deadline, std::chrono::milliseconds timeout) {
  return std::max(std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()), timeout / 3);
}

// A member that is lost meanwhile ends the start of the new world on all: they agree anew.
bool may_begin_again(const Status& status, Clock::time_point deadline, const char* call) {
  if (status.code() != StatusCode::peer_failed || Clock::now() >= deadline) return false;
  log_info("{} begins again: {}", call, status.message());
  return true;
}

ControlOptions control_of_newcomer(const Invitation& invitation, std::chrono::milliseconds timeout) {
  ControlOptions control;
  control.job = invitation.lineage;
  control.secret = invitation.secret;
  control.security = invitation.security;
  control.build_id = std::string(build_id());
  control.rank = kJoining;
  control.size = static_cast<int>(invitation.membership.members.size());
  control.silence = timeout / 3;
  return control;
}

// Before anything is sent: a process that differs would end the start of the new world on all members.
Status check_security(WireSecurity own, WireSecurity invited) {
  if (own == invited) return {};
  return invalid_argument(fmt::format(
      "TUTTI_WIRE_SECURITY must be equal on all ranks but is '{}' in this process and '{}' in the "
      "group of the invitation",
      to_string(own), to_string(invited)));
}

}  // namespace

// The world ranks of the successor's members, by their new rank; -1 for newcomers, which have no transports yet. Empty
// if the successor can't keep the transports of this world.
std::vector<int> CommGroup::Impl::world_ranks_of(const Successor& successor) const {
  RanksPayload newcomers;
  if (!successor.keeps_transports || !decode(successor.newcomers, newcomers)) return {};
  const std::vector<Member> members = lineage().membership.members;
  std::vector<int> ranks;
  for (const Member& stays : successor.membership.members) {
    if (std::find(newcomers.ranks.begin(), newcomers.ranks.end(), stays.id) != newcomers.ranks.end()) {
      ranks.push_back(-1);
      continue;
    }
    const auto at = std::find_if(members.begin(), members.end(),
                                 [&](const Member& member) { return member.id == stays.id; });
    if (at == members.end())
      throw_error(internal_error(fmt::format("member {} of the successor is none of this group", stays.id)));
    ranks.push_back(world_ranks_[static_cast<std::size_t>(at - members.begin())]);
  }
  return ranks;
}

CommGroup::Impl::Lineage CommGroup::Impl::lineage() const {
  if (lineage_) return *lineage_;
  const WorldKeys& keys = world_->keys();
  Lineage made{fmt::format("{}/{:x}", keys.job, context()), rank_, 0, {0, size(), {}}};
  for (std::size_t rank = 0; rank < world_ranks_.size(); ++rank) {
    made.membership.members.push_back(
        {static_cast<std::int32_t>(rank), keys.places[static_cast<std::size_t>(world_ranks_[rank])]});
  }
  return made;
}

std::set<std::int32_t> CommGroup::Impl::ids_left_out(const Change& change) const {
  std::set<std::int32_t> ids;
  const std::vector<Member> members = lineage().membership.members;
  for (const int rank : change.left_out) {
    if (rank < 0 || rank >= size()) {
      throw_error(invalid_argument(fmt::format("{}: left_out: {} is no rank of the group; expected 0 to {}",
                                               change.call, rank, size() - 1)));
    }
    if (rank == rank_) {
      throw_error(invalid_argument(fmt::format(
          "{}: left_out: this rank, {}, is listed; only members that stay call it", change.call, rank)));
    }
    ids.insert(members[static_cast<std::size_t>(rank)].id);
  }
  // Of this machine the kernel knows better: a process that gave up starting a world has only left that world.
  const std::string& scope = world_->keys().listener->place().scope;
  for (const int world_rank : world_->dead_ranks()) {
    const int rank = group_rank_of(world_rank);
    if (rank < 0) continue;
    const Member& member = members[static_cast<std::size_t>(rank)];
    if (member.place.scope != scope) ids.insert(member.id);
  }
  return ids;
}

std::shared_ptr<CommGroup::Impl> CommGroup::Impl::change(const Change& change) {
  check_may_wait();
  if (owner_ != nullptr) return owner_->change(change);
  Lineage next = lineage();
  AgreementOptions options;
  options.gone = ids_left_out(change);
  options.new_size = change.new_size;
  options.engine_epoch = next.engine_epoch;
  options.deadline = Clock::now() + group_->timeout();
  options.listener = world_->keys().listener.get();
  options.control = control_options(next);
  for (;;) {
    options.membership = next.membership;
    Result<Agreed> agreed = agree_on_successor(options);
    if (!agreed) throw_error(agreed.status().with_context(change.call));
    const Successor& successor = agreed->successor;
    next.membership = successor.membership;
    const std::vector<int> ranks_before = world_ranks_of(successor);
    auto world = WorldState::make_successor(
        *world_, meet_as_successor(world_->keys(), world_->info(), *agreed, next.id), ranks_before,
        time_to_start(options.deadline, group_->timeout()));
    if (!world && may_begin_again(world.status(), options.deadline, change.call)) continue;
    if (!world) throw_error(world.status().with_context(change.call));
    if (ranks_before.empty() || std::count(ranks_before.begin(), ranks_before.end(), -1) > 0)
      next.engine_epoch = next.membership.epoch;
    std::shared_ptr<Impl> made = make(*world, first_ranks(next.membership.members.size()),
                                      context_of("successor", successor.job), group_->timeout(), rules_);
    made->lineage_ = std::move(next);
    retire();
    return made;
  }
}

ControlOptions CommGroup::Impl::control_options(const Lineage& of) const {
  const WorldKeys& keys = world_->keys();
  const WorldInfo& info = world_->info();
  ControlOptions control;
  control.job = of.name;
  control.secret = keys.secret;
  control.security = keys.security;
  control.build_id = std::string(build_id());
  control.host = info.host_of_rank[static_cast<std::size_t>(info.rank)];
  control.rank = of.id;
  control.size = size();
  control.silence = group_->timeout() / 3;
  control.warn = [](const std::string& text) { log_warn("{}", text); };
  control.open_listeners = keys.open_listeners;
  return control;
}

void CommGroup::Impl::retire() {
  const Status why(StatusCode::aborted, "this group has a successor");
  std::vector<std::shared_ptr<Impl>> streams;
  {
    const std::lock_guard lock(streams_mutex_);
    for (const auto& [number, stream] : streams_) streams.push_back(stream);
  }
  for (const auto& stream : streams) stream->group_->leave(why);
  group_->leave(why);
}

std::vector<int> CommGroup::Impl::member_ids() const {
  std::vector<int> ids;
  for (const Member& member : owner().lineage().membership.members) ids.push_back(member.id);
  return ids;
}

// -- processes that join ------------------------------------------------------------------------------------

std::string CommGroup::Impl::invitation() const {
  Lineage own = owner().lineage();
  std::vector<Member>& members = own.membership.members;
  members.resize(std::min(members.size(), kInvitingMembers));
  const WorldKeys& keys = world_->keys();
  return to_text(Invitation{own.name, keys.secret, keys.security, std::move(own.membership)});
}

std::shared_ptr<CommGroup::Impl> CommGroup::Impl::join(std::string_view invitation,
                                                       std::chrono::milliseconds timeout) {
  constexpr const char* kCall = "join";
  prepare_process();
  const Result<Invitation> parsed = parse_invitation(invitation);
  throw_if_error(parsed.status().with_context(kCall));
  BootstrapOptions bootstrap;
  bootstrap.build_id = std::string(build_id());
  bootstrap.warn = [](const std::string& text) { log_warn("{}", text); };
  Result<WorldSettings> settings = read_settings(bootstrap.environment);
  throw_if_error(settings.status());
  settings->trace_path.clear();  // the files of all ranks belong to processes of the first world
  const WireSecurity security = settings->transport.security;
  throw_if_error(check_security(security, parsed->security).with_context(kCall));
  if (timeout.count() > 0) settings->timeout = timeout;
  auto listener = MemberListener::open();
  throw_if_error(listener.status());
  auto open_listeners = find_open_listeners(bootstrap.environment);
  throw_if_error(open_listeners.status());
  const std::vector<Member>& members = parsed->membership.members;
  const bool is_local = std::all_of(members.begin(), members.end(), [&](const Member& member) {
    return member.place.scope == (*listener)->place().scope && member.place.addresses.empty();
  });
  if (!is_local) throw_if_error((*listener)->open_network(*open_listeners));

  Lineage next{parsed->lineage, kJoining, kNoEngine, parsed->membership};
  AgreementOptions options;
  options.deadline = Clock::now() + settings->timeout;
  options.listener = listener->get();
  options.control = control_of_newcomer(*parsed, settings->timeout);
  options.control.open_listeners = *open_listeners;
  const WorldKeys keys{*listener, {}, parsed->lineage, parsed->secret, *open_listeners, security};
  WorldInfo info;
  info.launcher = kCall;
  info.node_id = node_identity(bootstrap.environment);
  for (;;) {
    options.membership = next.membership;
    const Result<Agreed> agreed = next.id == kJoining ? ask_to_join(options) : agree_on_successor(options);
    throw_if_error(agreed.status().with_context(kCall));
    next.membership = agreed->successor.membership;
    for (const Member& member : next.membership.members) {
      if (member.place == (*listener)->place()) next.id = member.id;
    }
    options.control.rank = next.id;
    bootstrap.timeout = time_to_start(options.deadline, settings->timeout);
    bootstrap.silence = settings->timeout;
    auto world = WorldState::make(bootstrap, meet_as_successor(keys, info, *agreed, next.id), *settings);
    if (!world && may_begin_again(world.status(), options.deadline, kCall)) continue;
    throw_if_error(world.status().with_context(kCall));
    next.engine_epoch = next.membership.epoch;
    std::shared_ptr<Impl> made = make(*world, first_ranks(next.membership.members.size()),
                                      context_of("successor", agreed->successor.job), settings->timeout);
    made->lineage_ = std::move(next);
    return made;
  }
}

}  // namespace tutti
