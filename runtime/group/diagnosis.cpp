// Why an operation does not end: ranks compare the calls they are stuck in and ask each other how far they
// have come. Part of WorldState; knows no transport.
//
// A stalled rank tells one other member (rank = sequence mod p, later the next one) the fingerprint of its
// call. That member compares it with what others told it and with its own call of that number, which may be
// complete: ranks that broadcast from different roots can all be done but one.
#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/log.hpp"
#include "runtime/group/world.hpp"
#include "runtime/scheduler/fingerprint.hpp"

namespace tutti {
namespace {

enum class Kind : std::uint8_t { report = 1, question, answer };

constexpr std::size_t kMaxReports = 1024;
constexpr std::chrono::milliseconds kAnswerTime{300};  // control threads answer at once unless frozen
constexpr std::chrono::milliseconds kTraceTime{200};

bool is_message(std::uint32_t fingerprint) {
  // Point-to-point messages are numbered per pair, so their numbers say nothing about other ranks' calls.
  return fingerprint >> 28U == static_cast<std::uint32_t>(Collective::send_recv);
}

}  // namespace

void WorldState::on_stall(const Stall& stall) {
  if (!stall.is_attended && stall.lasted >= settings_.timeout) return end_unattended(stall);
  if (is_message(stall.fingerprint)) {
    if (settings_.stall_warning.count() > 0 && stall.lasted >= settings_.stall_warning)
      warn_of_stall(stall, {});
    return;
  }
  int target = -1;
  std::string operation;
  {
    const std::lock_guard lock(groups_mutex_);
    if (GroupMember* group = find(stall.context)) {
      const std::vector<int>& ranks = group->world_ranks();
      target = ranks[(stall.sequence + stall.number) % ranks.size()];
      operation = group->name_operation(stall.sequence);
    }
  }
  if (target < 0) return;
  ByteWriter writer;
  writer.put(Kind::report);
  writer.put(stall.context);
  writer.put(stall.sequence);
  writer.put(stall.fingerprint);
  writer.put_text(stall.call);
  control().tell(target, writer.take());
  if (settings_.stall_warning.count() > 0 && stall.lasted >= settings_.stall_warning)
    warn_of_stall(stall, operation);
}

// Nobody waits for the operation, so nobody else sees that its deadline has passed.
void WorldState::end_unattended(const Stall& stall) {
  GroupMember* group = nullptr;
  {
    const std::lock_guard lock(groups_mutex_);
    group = find(stall.context);
    if (group == nullptr) return;
    ++groups_in_use_[stall.context];
  }
  group->on_deadline(is_message(stall.fingerprint) ? 0 : stall.sequence, stall.call);
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
  if (is_message(stall.fingerprint)) {
    const bool is_known = stall.awaited_rank != stall.rank;
    log_warn("{} has waited {}{}", stall.call, seconds,
             is_known ? fmt::format(" for rank {}", stall.awaited_rank) : "");
    return;
  }
  const std::string missing = describe_missing(ask_members(context, kAnswerTime), stall.sequence);
  log_warn("{} ({}) has waited {}; {}", stall.call, operation, seconds,
           missing.empty()
               ? fmt::format("all ranks have called it, and it waits for rank {}", stall.awaited_rank)
               : "not there: " + missing);
}

void WorldState::on_message(int source, std::string_view bytes) {
  ByteReader reader(bytes);
  Kind kind{};
  if (!reader.get(kind)) return;
  switch (kind) {
    case Kind::report:
      return on_report(source, reader);
    case Kind::question:
      return on_question(source, reader);
    case Kind::answer:
      return on_answer(source, reader);
  }
}

void WorldState::on_report(int source, ByteReader& reader) {
  std::uint64_t context = 0;
  std::uint32_t sequence = 0;
  Report report;
  if (!reader.get(context) || !reader.get(sequence) || !reader.get(report.fingerprint) ||
      !reader.get_text(report.call)) {
    return;
  }
  int other = -1;
  std::string other_call;
  {
    const std::lock_guard lock(talk_mutex_);
    if (reports_.size() >= kMaxReports) reports_.erase(reports_.begin());
    auto& reports = reports_[{context, sequence}];
    for (const auto& [rank, known] : reports) {
      if (known.fingerprint == report.fingerprint) continue;
      other = rank;
      other_call = known.call;
      break;
    }
    reports[source] = report;
  }
  const std::lock_guard lock(groups_mutex_);
  GroupMember* group = find(context);
  if (group == nullptr) return;
  if (other < 0) {
    const std::uint64_t word = group->submitted_word(sequence);
    if (word == 0 || static_cast<std::uint32_t>(word) == report.fingerprint) return;
    other = info().rank;
    other_call = describe_word(word);
  }
  int first = group->group_rank_of(other), second = group->group_rank_of(source);
  std::string first_call = other_call, second_call = report.call;
  if (second < first) {
    std::swap(first, second);
    std::swap(first_call, second_call);
  }
  if (first_call == second_call) second_call += " with other counts or settings";
  control().abort(group->failure_context(),
                  Status(StatusCode::mismatch,
                         fmt::format("ranks of one group made different calls: as {} rank {} called {}, "
                                     "rank {} called {}",
                                     group->name_operation(sequence), first, first_call, second, second_call),
                         second));
}

void WorldState::on_question(int source, ByteReader& reader) {
  std::uint64_t inquiry = 0, context = 0;
  if (!reader.get(inquiry) || !reader.get(context)) return;
  ByteWriter writer;
  writer.put(Kind::answer);
  writer.put(inquiry);
  {
    const std::lock_guard lock(groups_mutex_);
    const GroupMember* group = find(context);
    writer.put(static_cast<std::uint8_t>(group != nullptr));
    writer.put(group == nullptr ? std::uint32_t{0} : group->submitted_sequence());
    writer.put_text(group == nullptr ? "" : group->describe_submitted());
    const Status failure = group == nullptr ? Status() : group->local_failure();
    writer.put(failure.code());
    writer.put(static_cast<std::int32_t>(failure.peer()));
    writer.put_text(failure.message());
  }
  control().tell(source, writer.take());
}

void WorldState::on_answer(int source, ByteReader& reader) {
  std::uint64_t inquiry = 0;
  std::uint8_t has_group = 0;
  RankState state;
  StatusCode code{};
  std::int32_t peer = 0;
  std::string failure;
  if (!reader.get(inquiry) || !reader.get(has_group) || !reader.get(state.sequence) ||
      !reader.get_text(state.call) || !reader.get(code) || !reader.get(peer) || !reader.get_text(failure))
    return;
  state.has_group = has_group != 0;
  if (code != StatusCode::ok) state.failure = Status(code, std::move(failure), peer);
  const std::lock_guard lock(talk_mutex_);
  const auto found = inquiries_.find(inquiry);
  if (found == inquiries_.end()) return;
  found->second.answers[source] = std::move(state);
  answered_.notify_all();
}

std::vector<std::optional<RankState>> WorldState::ask_members(std::uint64_t context,
                                                              std::chrono::milliseconds at_most) {
  std::vector<int> ranks;
  {
    const std::lock_guard lock(groups_mutex_);
    if (const GroupMember* group = find(context)) ranks = group->world_ranks();
  }
  std::unique_lock lock(talk_mutex_);
  const std::uint64_t number = next_inquiry_++;
  inquiries_[number];
  lock.unlock();
  for (const int rank : ranks) {
    ByteWriter writer;
    writer.put(Kind::question);
    writer.put(number);
    writer.put(context);
    control().tell(rank, writer.take());
  }
  lock.lock();
  answered_.wait_for(lock, at_most, [&] { return inquiries_[number].answers.size() == ranks.size(); });
  const Inquiry inquiry = std::move(inquiries_[number]);
  inquiries_.erase(number);
  lock.unlock();
  std::vector<std::optional<RankState>> states;
  std::vector<int> silent;
  for (const int rank : ranks) {
    const auto found = inquiry.answers.find(rank);
    states.push_back(found == inquiry.answers.end() ? std::nullopt : std::optional<RankState>(found->second));
    if (!states.back()) silent.push_back(rank);
  }
  if (!silent.empty()) find_obstacles(context, ranks, std::move(silent), states);
  return states;
}

bool WorldState::find_root() {
  const bool is_there = control().find_silent({0}, kTraceTime).front() < 0;
  has_root_.store(is_there, std::memory_order_relaxed);
  return is_there;
}

// Who does not answer may only be behind somebody who does not pass the question on.
void WorldState::find_obstacles(std::uint64_t context, const std::vector<int>& ranks, std::vector<int> silent,
                                std::vector<std::optional<RankState>>& states) {
  silent.push_back(0);  // who stamps causes
  const std::vector<int> ends = control().find_silent(silent, kTraceTime);
  has_root_.store(ends.back() < 0, std::memory_order_relaxed);
  const std::lock_guard lock(groups_mutex_);
  const GroupMember* group = find(context);
  if (group == nullptr) return;
  for (std::size_t i = 0; i + 1 < silent.size(); ++i) {
    const int rank = silent[i], end = ends[i];
    if (end < 0 || end == rank) continue;
    const int member = group->group_rank_of(end);
    const auto at = std::find(ranks.begin(), ranks.end(), rank) - ranks.begin();
    RankState& state = states[static_cast<std::size_t>(at)].emplace();
    state.behind = member < 0 ? fmt::format("rank {} of the world", end) : fmt::format("rank {}", member);
  }
}

std::string describe_missing(const std::vector<std::optional<RankState>>& states, std::uint32_t sequence) {
  std::string text;
  std::map<std::string, std::vector<std::size_t>> unknown;  // by who is in the way
  for (std::size_t rank = 0; rank < states.size(); ++rank) {
    const std::optional<RankState>& state = states[rank];
    if (state && state->has_group && state->sequence >= sequence) continue;
    if (state && !state->behind.empty()) {
      unknown[state->behind].push_back(rank);
      continue;
    }
    std::string why = "does not answer: frozen, or its node is unreachable";
    if (state && !state->has_group) why = "is alive but has left the group or not made it yet";
    if (state && state->has_group) {
      why = state->sequence == 0 ? "is alive but has called nothing yet"
                                 : "is alive; its last call was " + state->call;
    }
    text += fmt::format("{}rank {} ({})", text.empty() ? "" : ", ", rank, why);
  }
  for (const auto& [obstacle, ranks] : unknown) {
    text += fmt::format(
        "{}rank{} {} could not be asked, because the way there leads through {}, which does not answer",
        text.empty() ? "" : "; ", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "), obstacle);
  }
  return text;
}

}  // namespace tutti
