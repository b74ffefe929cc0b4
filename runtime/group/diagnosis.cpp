// Diagnosis of operations that do not end: ranks compare their calls and ask each other for their progress.
// Part of WorldState; knows no transport.
//
// A stalled rank sends its last calls to the awaited rank and to one other member (rank = sequence mod p,
// later the next one). That member compares them with other reports and with its own calls, which may be
// complete. With different roots of a broadcast, for example, all ranks but one can be done.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>

#include "runtime/base/log.hpp"
#include "runtime/group/world.hpp"

namespace tutti {
namespace {

constexpr std::chrono::milliseconds kStateAnswerTime{300};  // control threads answer at once unless frozen
constexpr std::chrono::milliseconds kInspectTime{600};  // a rank of another node that is just timing out, too
// Ranks that wait for each other reach their deadlines one after the other.
constexpr std::chrono::seconds kDeadlineTime{5};
constexpr std::chrono::milliseconds kTraceTime{200};
constexpr std::chrono::milliseconds kEngineTime{20};  // to inspect the operations under way
constexpr std::chrono::seconds kResumeTime{1};        // a process that was stopped may go on

}  // namespace

void WorldState::on_stall(const Stall& stall) {
  if (!stall.is_attended && stall.lasted >= stall.timeout) return end_unattended(stall);
  if (stall.is_message) {
    if (settings_.stall_warning.count() > 0 && stall.lasted >= settings_.stall_warning)
      warn_of_stall(stall, {});
    return;
  }
  std::vector<int> targets;
  std::string operation;
  CallHistory calls;
  {
    const std::lock_guard lock(groups_mutex_);
    if (GroupMember* group = find(stall.context)) {
      const std::vector<int>& ranks = group->world_ranks();
      targets.push_back(ranks[(stall.sequence + stall.number) % ranks.size()]);
      if (stall.awaited_rank < ranks.size() && ranks[stall.awaited_rank] != targets[0])
        targets.push_back(ranks[stall.awaited_rank]);
      operation = group->name_operation(stall.sequence);
      calls = group->submitted_calls(kReportedCalls);
    }
  }
  if (targets.empty()) return;
  const std::string report =
      encode_diagnosis(StallReport{stall.context, std::move(calls), note_lasting_wait(stall), {}});
  for (const int target : targets) control().tell(target, report);
  if (settings_.stall_warning.count() > 0 && stall.lasted >= settings_.stall_warning)
    warn_of_stall(stall, operation);
}

// No thread waits for the operation, so only this check sees that its deadline has passed.
void WorldState::end_unattended(const Stall& stall) {
  GroupMember* group = nullptr;
  {
    const std::lock_guard lock(groups_mutex_);
    group = find(stall.context);
    if (group == nullptr) return;
    ++groups_in_use_[stall.context];
  }
  group->on_deadline(stall.is_message ? 0 : stall.sequence, stall.call);
  const std::lock_guard lock(groups_mutex_);
  if (--groups_in_use_[stall.context] == 0) groups_in_use_.erase(stall.context);
  group_released_.notify_all();
}

void WorldState::warn_of_stall(const Stall& stall, const std::string& operation) {
  const std::uint64_t context = stall.context;
  {
    const std::lock_guard lock(talk_mutex_);
    std::uint32_t& warned = warned_[context];
    if (warned == stall.sequence) return;
    warned = stall.sequence;
  }
  const auto seconds = format_seconds(stall.lasted);
  if (stall.is_message) {
    const bool is_known = stall.awaited_rank != stall.rank;
    log_warn("{} has waited {}{}", stall.call, seconds,
             is_known ? fmt::format(" for rank {}", stall.awaited_rank) : "");
    return;
  }
  const std::string missing =
      to_text(find_missing(context, ask_members(context, kStateAnswerTime), stall.sequence));
  log_warn("{} ({}) has waited {}; {}", stall.call, operation, seconds,
           missing.empty()
               ? fmt::format("all ranks have called it, and it waits for rank {}", stall.awaited_rank)
               : "not there: " + missing);
}

void WorldState::on_message(int source, std::string_view bytes) {
  std::optional<DiagnosisMessage> message = decode_diagnosis(bytes);
  if (!message) return;
  if (auto* const report = std::get_if<StallReport>(&*message)) return on_report(source, *report);
  if (const auto* const question = std::get_if<StateQuestion>(&*message))
    return on_question(source, *question);
  if (const auto* const arrival = std::get_if<MemberArrival>(&*message)) return on_arrival(source, *arrival);
  if (auto* const report = std::get_if<MachineReport>(&*message))
    return on_machine_report(source, std::move(*report));
  on_answer(source, std::get<StateAnswer>(*message));
}

void WorldState::on_report(int source, StallReport& report) {
  int rank = -1, own_rank = -1;
  CallHistory own;
  {
    const std::lock_guard lock(groups_mutex_);
    const GroupMember* group = find(report.context);
    if (group == nullptr) return;
    rank = group->group_rank_of(source);
    own_rank = group->group_rank_of(info().rank);
    own = group->submitted_calls(SubmittedCalls::kRemembered);
  }
  if (rank < 0) return;
  compare_orders(source, report);
  CallDifference difference;
  {
    const std::lock_guard lock(talk_mutex_);
    MemberReports& reports = reports_[report.context];
    reports.take(rank, std::move(report.calls), own);
    if (!reports.find_difference(own_rank, own, &difference)) return;
  }
  const std::lock_guard lock(groups_mutex_);
  GroupMember* group = find(report.context);
  if (group == nullptr) return;
  control().abort(group->failure_context(),
                  Status(StatusCode::mismatch,
                         fmt::format("ranks of one group made different calls: as {} {}",
                                     group->name_operation(difference.sequence), difference.text),
                         difference.peer));
}

void WorldState::on_question(int source, const StateQuestion& question) {
  StateAnswer answer;
  answer.inquiry = question.inquiry;
  {
    const std::lock_guard lock(groups_mutex_);
    if (const GroupMember* group = find(question.context)) {
      answer.state.has_group = true;
      answer.state.failure = group->local_failure();
      answer.state.calls = group->submitted_calls(question.calls);
    }
  }
  answer.state.waiting = list_waiting();
  if (question.inspected >= 0) {
    answer.state.process = control().inspect(question.inspected);
    for (CompletedCall& call : read_completed(question.inspected).calls) {
      if (call.context == question.context) answer.state.recorded = std::move(call);
    }
    answer.state.reported = machine_reports_.in_group(question.context);
  }
  control().tell(source, encode_diagnosis(answer));
}

std::vector<WaitingCall> WorldState::list_waiting() {
  std::vector<WaitingCall> waiting = list_under_way();
  const std::lock_guard lock(talk_mutex_);
  for (const auto& past : past_deadline_) {
    const WaitingCall& call = past.second;
    const bool is_listed =
        std::ranges::any_of(waiting, [&](const WaitingCall& other) { return other.context == call.context; });
    if (!is_listed && Clock::now() - past.first < kDeadlineTime && waiting.size() < kMaxWaitingCalls)
      waiting.push_back(call);
  }
  return waiting;
}

void WorldState::note_deadline(std::uint64_t context) {
  for (WaitingCall& call : list_under_way()) {
    if (call.context != context) continue;
    const std::lock_guard lock(talk_mutex_);
    if (past_deadline_.size() >= kMaxWaitingCalls) past_deadline_.erase(past_deadline_.begin());
    past_deadline_.emplace_back(Clock::now(), std::move(call));
    return;
  }
}

// The operations under way, of this rank's groups.
std::vector<WaitingCall> WorldState::list_under_way() {
  const std::vector<Stall> under_way = engine().list_under_way(kMaxWaitingCalls, kEngineTime);
  std::vector<WaitingCall> waiting;
  const std::lock_guard lock(groups_mutex_);
  for (const Stall& stall : under_way) {
    const GroupMember* group = find(stall.context);
    if (group == nullptr) continue;
    std::string text = stall.call;
    if (!stall.is_message) text += ", " + group->name_operation(stall.sequence);
    const std::vector<int>& ranks = group->world_ranks();
    const bool is_known = stall.awaited_rank != stall.rank && stall.awaited_rank < ranks.size();
    waiting.push_back({stall.context, ranks, is_known ? ranks[stall.awaited_rank] : -1,
                       stall.is_message ? 0 : stall.sequence, std::move(text)});
  }
  return waiting;
}

void WorldState::on_answer(int source, StateAnswer& answer) {
  const std::lock_guard lock(talk_mutex_);
  const auto found = inquiries_.find(answer.inquiry);
  if (found == inquiries_.end()) return;
  answer.state.has_answered = true;
  found->second.answers[source] = std::move(answer.state);
  answered_.notify_all();
}

std::map<int, RankState> WorldState::ask_members(std::uint64_t context, std::chrono::milliseconds at_most,
                                                 const std::vector<int>& group_ranks, std::uint32_t calls) {
  std::map<int, int> asked;  // group ranks by world rank
  {
    const std::lock_guard lock(groups_mutex_);
    const GroupMember* group = find(context);
    if (group == nullptr) return {};
    const std::vector<int>& ranks = group->world_ranks();
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      const int group_rank = static_cast<int>(rank);
      if (group_ranks.empty() || std::ranges::find(group_ranks, group_rank) != group_ranks.end())
        asked[ranks[rank]] = group_rank;
    }
  }
  std::vector<int> world_ranks;
  world_ranks.reserve(asked.size());
  for (const auto& [rank, group_rank] : asked) world_ranks.push_back(rank);
  std::map<int, RankState> states;
  for (auto& [rank, state] : ask(world_ranks, {0, context, calls, -1}, at_most))
    states[asked[rank]] = std::move(state);
  if (states.size() < asked.size()) find_obstacles(context, asked, states);
  return states;
}

std::map<int, RankState> WorldState::ask(const std::vector<int>& world_ranks, StateQuestion question,
                                         std::chrono::milliseconds at_most) {
  std::unique_lock lock(talk_mutex_);
  question.inquiry = next_inquiry_++;
  inquiries_[question.inquiry];
  lock.unlock();
  for (const int rank : world_ranks) control().tell(rank, encode_diagnosis(question));
  lock.lock();
  wait_for(answered_, lock, at_most,
           [&] { return inquiries_[question.inquiry].answers.size() == world_ranks.size(); });
  std::map<int, RankState> answers = std::move(inquiries_[question.inquiry].answers);
  inquiries_.erase(question.inquiry);
  return answers;
}

bool WorldState::find_root() {
  const bool is_there = control().find_silent({0}, kTraceTime).front().rank < 0;
  note_root(is_there);
  return is_there;
}

void WorldState::note_root(bool is_there) {
  root_missed_.store(is_there ? 0 : Clock::now().time_since_epoch().count(), std::memory_order_relaxed);
}

bool WorldState::has_root() const {
  const Clock::rep missed = root_missed_.load(std::memory_order_relaxed);
  return missed == 0 || Clock::now() - Clock::time_point(Clock::duration(missed)) > kResumeTime;
}

// A member may be silent only because a rank on the route does not forward the query. `asked`: group ranks by
// world rank.
void WorldState::find_obstacles(std::uint64_t context, const std::map<int, int>& asked,
                                std::map<int, RankState>& states) {
  std::vector<int> silent;
  for (const auto& [rank, group_rank] : asked) {
    if (!states.contains(group_rank)) silent.push_back(rank);
  }
  silent.push_back(0);  // the rank that decides causes of failure
  const auto ends = control().find_silent(silent, kTraceTime);
  note_root(ends.back().rank < 0);
  std::map<int, RankState> inspected;  // by world rank
  for (std::size_t i = 0; i + 1 < silent.size(); ++i) {
    const int rank = ends[i].rank < 0 ? silent[i] : ends[i].rank;
    if (!inspected.contains(rank)) inspected[rank] = inspect(context, rank, ends[i].before);
  }
  const std::lock_guard lock(groups_mutex_);
  const GroupMember* group = find(context);
  if (group == nullptr) return;
  for (std::size_t i = 0; i + 1 < silent.size(); ++i) {
    const int rank = silent[i], end = ends[i].rank;
    RankState& state = states[asked.at(rank)];
    const RankState& seen = inspected[end < 0 ? rank : end];
    state.process = seen.process;
    state.recorded = seen.recorded;
    if (end < 0 || end == rank) continue;
    const int member = group->group_rank_of(end);
    state.behind = member < 0 ? fmt::format("rank {} of the world", end) : fmt::format("rank {}", member);
    state.behind_rank = member;
    std::ranges::copy_if(seen.reported, std::back_inserter(state.reported),
                         [rank](const auto& report) { return report.first == rank; });
    state.behind_world_rank = end;
  }
}

RankState WorldState::inspect(std::uint64_t context, int world_rank, int before) {
  const auto rank = static_cast<std::size_t>(world_rank);
  RankState state;
  if (info().shares_pids[rank]) {
    state.process = inspect_process(info().pid_of_rank[rank]);
    return state;
  }
  if (before < 0) return state;
  StateQuestion question;
  question.inspected = world_rank;
  question.context = context;
  auto answers = ask({before}, question, kInspectTime);
  return answers.empty() ? state : std::move(answers.begin()->second);
}

std::optional<CallDifference> WorldState::compare_calls(std::uint64_t context,
                                                        const std::vector<int>& group_ranks,
                                                        std::chrono::milliseconds at_most) {
  std::map<int, CallHistory> histories;
  for (auto& [rank, state] : ask_members(context, at_most, group_ranks, SubmittedCalls::kRemembered))
    histories[rank] = std::move(state.calls);
  CallDifference difference;
  if (!find_difference(histories, &difference)) return std::nullopt;
  return difference;
}

}  // namespace tutti
