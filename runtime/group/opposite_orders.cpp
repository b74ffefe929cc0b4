// Finds ranks that use their groups in different orders, long before their deadlines. Part of WorldState; knows no
// transport.
//
// Rank r waits in call X, which needs data of rank s. Rank s waits in call Y of another group, which needs data of r.
// Neither has called the other's. No later call can help if one thread makes all calls of each rank: r waits as long
// as s has not called X, and s as long as r has not called Y. A stalled rank reports the call that it waits in; the
// receiver answers with its own, if the report fits. The reporter compares again, and knows both halves then.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runtime/base/rank_lists.hpp"
#include "runtime/base/work.hpp"
#include "runtime/group/world.hpp"

namespace tutti {
namespace {

const SubmittedCall* find_call(const CallHistory& calls, std::uint32_t sequence) {
  const auto found = std::ranges::find(calls, sequence, &SubmittedCall::sequence);
  return found == calls.end() ? nullptr : &*found;
}

bool needs(const GroupMember& group, const SubmittedCall* call, int waiting, int other) {
  const int waiting_rank = group.group_rank_of(waiting), other_rank = group.group_rank_of(other);
  return call != nullptr && waiting_rank >= 0 && other_rank >= 0 &&
         needs_data_of(call->kind, call->count, static_cast<std::uint32_t>(waiting_rank),
                       static_cast<std::uint32_t>(other_rank));
}

std::string describe_wait(const GroupMember& group, const SubmittedCall& call, int waiting, int other) {
  return fmt::format("world rank {} waits for world rank {} in {}, {} of {}", waiting, other,
                     describe_contract(call.kind, call.count), group.name_operation(call.sequence),
                     name_group(group.world_ranks()));
}

}  // namespace

std::uint32_t WorldState::note_lasting_wait(const Stall& stall) {
  LastingWait* const wait = LastingWait::current();
  const bool is_lasting = wait != nullptr && wait->call() == CallId{stall.context, stall.sequence};
  // A hook or a callback may call, too.
  if (!is_lasting || !callers_.is_this_thread() || current_wait_hook() != nullptr) return 0;
  wait->tell();
  return lasting_wait() ? stall.sequence : 0;
}

std::optional<CallId> WorldState::lasting_wait() {
  return engine().owes_callbacks() ? std::nullopt : callers_.awaited();
}

void WorldState::compare_orders(int source, const StallReport& report) {
  const std::optional<CallId> own = lasting_wait();
  if (!own || report.awaited == 0 || own->context == report.context) return;
  const int self = info().rank;
  const std::lock_guard lock(groups_mutex_);
  const GroupMember* const there = find(report.context);
  const GroupMember* const here = find(own->context);
  if (there == nullptr || here == nullptr) return;
  // The wait with the shorter deadline is meant to end there, and its rank may then call what the other waits for.
  if (there->timeout() != here->timeout()) return;
  // A failed group ends all waits in it soon.
  if (!there->local_failure() || !here->local_failure()) return;
  const CallHistory called_there = there->submitted_calls(1);
  if (!called_there.empty() && called_there.back().sequence >= report.awaited) return;
  CallHistory calls = here->submitted_calls(kReportedCalls);
  const SubmittedCall* const theirs = find_call(report.calls, report.awaited);
  const SubmittedCall* const ours = find_call(calls, own->sequence);
  if (!needs(*there, theirs, source, self) || !needs(*here, ours, self, source)) return;
  if (report.uncalled.sequence == 0) {
    const StallReport answer{own->context, std::move(calls), own->sequence, {report.context, report.awaited}};
    return control().tell(source, encode_diagnosis(answer));
  }
  if (report.uncalled != *own) return;
  std::string first = describe_wait(*here, *ours, self, source);
  std::string second = describe_wait(*there, *theirs, source, self);
  if (source < self) std::swap(first, second);  // the same text on both
  const std::string text =
      fmt::format("the ranks use their groups in different orders: {}; {}", first, second);
  control().abort(here->failure_context(), Status(StatusCode::mismatch, text, here->group_rank_of(source)));
  control().abort(there->failure_context(), Status(StatusCode::mismatch, text, there->group_rank_of(self)));
}

}  // namespace tutti
