// The symbolic execution: a work list over (rank, channel) threads. Linear in the atoms moved; messages are
// matched up front by sorting. symbolic_steps.cpp executes the single steps.
#include "runtime/schedule/symbolic_run.hpp"

#include <algorithm>
#include <tuple>

#include <fmt/format.h>

#include "runtime/schedule/check_steps.hpp"

namespace tutti::detail {

SymbolicRun::SymbolicRun(std::span<const Schedule> ranks, Algebra algebra)
    : ranks_(ranks),
      is_alltoall_(ranks[0].collective == Collective::alltoall),
      values_(algebra, ranks[0].collective == Collective::barrier, ranks[0].size, ranks[0].atoms()) {
  for (const Schedule& s : ranks) {
    channels_ = std::max(channels_, s.channels);
    is_lowered_ = is_lowered_ || is_lowered(s);
  }
  index_steps();
  start_values();
}

void SymbolicRun::index_steps() {
  const std::size_t threads = ranks_.size() * channels_;
  std::vector<std::uint32_t> in_thread(threads + 1, 0);
  for (const Schedule& s : ranks_) {
    first_step_.push_back(static_cast<StepId>(rank_of_.size()));
    rank_of_.insert(rank_of_.end(), s.steps.size(), s.rank);
    for (const Step& step : s.steps) ++in_thread[s.rank * channels_ + step.channel + 1];
  }
  const std::size_t count = rank_of_.size();
  first_step_.push_back(static_cast<StepId>(count));
  for (std::size_t t = 0; t < threads; ++t) in_thread[t + 1] += in_thread[t];
  thread_begin_ = in_thread;
  cursor_.assign(in_thread.begin(), in_thread.end() - 1);
  thread_steps_.resize(count);
  std::vector<std::uint32_t> at = cursor_;
  first_dependent_.assign(count + 1, 0);
  pending_.assign(count, 0);
  for (StepId id = 0; id < count; ++id) {
    thread_steps_[at[thread_of(id)]++] = id;
    const auto dependencies = schedule_of(id).dependencies_of(step_of(id));
    pending_[id] = static_cast<std::uint32_t>(dependencies.size());
    for (std::uint32_t d : dependencies) ++first_dependent_[first_step_[rank_of_[id]] + d + 1];
  }
  for (std::size_t i = 0; i < count; ++i) first_dependent_[i + 1] += first_dependent_[i];
  dependents_.resize(first_dependent_[count]);
  at.assign(first_dependent_.begin(), first_dependent_.end() - 1);
  for (StepId id = 0; id < count; ++id) {
    for (std::uint32_t d : schedule_of(id).dependencies_of(step_of(id)))
      dependents_[at[first_step_[rank_of_[id]] + d]++] = id;
  }
  depth_.assign(count, 0);
  issued_.assign(count, 0);
  done_.assign(count, 0);
  partner_.assign(count, kNone);
  is_awake_.assign(threads, 0);
  if (is_lowered_) {
    waiters_.resize(threads);
    thread_depth_.assign(threads, 0);
    snapshot_.assign(count, kNone);
  }
  sent_atoms_.assign(ranks_.size(), 0);
}

void SymbolicRun::start_values() {
  std::size_t base = 0;
  for (const Schedule& s : ranks_) {
    memory_base_.push_back(base);
    base += location_count(s);
  }
  memory_.assign(base, kUnwritten);
  for (const Schedule& s : ranks_) {
    const Window holds = contribution_window(s);
    const std::size_t first = memory_base_[s.rank] + (s.in_place ? s.atoms() : 0) + holds.first;
    for (std::uint32_t a = 0; a < holds.count; ++a)
      memory_[first + a] = values_.contribution(s.rank, holds.first + a);
  }
  if (is_lowered_) order_.start(static_cast<std::uint32_t>(ranks_.size()), channels_, base);
}

// FIFO per (sender, receiver, channel): sorts both ends by that key and program order and pairs them off.
Status SymbolicRun::match_messages() {
  struct End {
    std::uint32_t from, to, channel;
    StepId id;
    auto key() const { return std::tuple(from, to, channel, id); }
  };
  std::vector<End> sends, recvs;
  for (StepId id = 0; id < rank_of_.size(); ++id) {
    const Step& step = step_of(id);
    if (step.verb == Verb::send) sends.push_back({rank_of_[id], step.peer, step.channel, id});
    if (step.verb == Verb::recv) recvs.push_back({step.peer, rank_of_[id], step.channel, id});
  }
  if (is_lowered_ && !(sends.empty() && recvs.empty()))
    return internal_error("a lowered schedule still sends or receives: lower all of it or nothing");
  const auto less = [](const End& a, const End& b) { return a.key() < b.key(); };
  std::sort(sends.begin(), sends.end(), less);
  std::sort(recvs.begin(), recvs.end(), less);
  const auto edge = [](const End& e) { return std::tuple(e.from, e.to, e.channel); };
  const auto count = [&](const std::vector<End>& ends, const End& like) {
    return std::count_if(ends.begin(), ends.end(), [&](const End& e) { return edge(e) == edge(like); });
  };
  for (std::size_t i = 0; i < std::max(sends.size(), recvs.size()); ++i) {
    const bool has_send = i < sends.size(), has_recv = i < recvs.size();
    if (!has_send || !has_recv || edge(sends[i]) != edge(recvs[i])) {
      const bool extra_send = has_send && (!has_recv || edge(sends[i]) < edge(recvs[i]));
      const End& odd = extra_send ? sends[i] : recvs[i];
      return internal_error(
          fmt::format("channel {}: rank {} sends {} messages to rank {}, which receives {} from it; without "
                      "a partner: {}",
                      odd.channel, odd.from, count(sends, odd), odd.to, count(recvs, odd),
                      describe_step(schedule_of(odd.id), number_of(odd.id))));
    }
    const StepId s = sends[i].id, r = recvs[i].id;
    const std::uint32_t sent = schedule_of(s).sources_of(step_of(s))[0].count, taken = step_of(r).dst.count;
    if (sent != taken)
      return fail(s, fmt::format("sends {} blocks, its partner {} takes {}", sent,
                                 describe_step(schedule_of(r), number_of(r)), taken));
    partner_[s] = r;
    partner_[r] = s;
  }
  messages_ = sends.size();
  return {};
}

// Sequences of a line count 1, 2, 3, ...; every wait names one that exists.
Status SymbolicRun::match_signals() {
  std::vector<std::vector<StepId>> lines(ranks_.size() * channels_);
  for (StepId id : thread_steps_) {
    const Step& step = step_of(id);
    if (step.verb != Verb::signal) continue;
    auto& line = lines[thread_of(id)];
    line.push_back(id);
    if (step.sequence != line.size())
      return fail(id, fmt::format("signal {} where signal {} is next", step.sequence, line.size()));
  }
  for (StepId id : thread_steps_) {
    const Step& step = step_of(id);
    if (step.verb != Verb::wait) continue;
    const auto& line = lines[step.peer * channels_ + step.channel];
    if (step.sequence == 0 || step.sequence > line.size())
      return fail(id, fmt::format("waits for signal {} of rank {}, which sets {} on channel {}",
                                  step.sequence, step.peer, line.size(), step.channel));
    partner_[id] = line[step.sequence - 1];
  }
  for (const auto& line : lines) messages_ += line.size();
  return {};
}

Status SymbolicRun::run() {
  TUTTI_RETURN_IF_ERROR(match_messages());
  if (is_lowered_) TUTTI_RETURN_IF_ERROR(match_signals());
  for (std::uint32_t t = static_cast<std::uint32_t>(cursor_.size()); t-- > 0;) wake(t);
  while (!awake_.empty()) {
    const std::uint32_t thread = awake_.back();
    awake_.pop_back();
    is_awake_[thread] = 0;
    TUTTI_RETURN_IF_ERROR(advance(thread));
  }
  if (std::find(done_.begin(), done_.end(), 0) != done_.end()) return explain_deadlock();
  if (!is_lowered_) return {};
  for (const Schedule& s : ranks_) {
    for (const Schedule& other : ranks_) {
      if (!s.hears_from_all || other.rank == s.rank || order_.knows_entry_at_end(s.rank, other.rank))
        continue;
      return internal_error(
          fmt::format("rank {} claims to hear from all ranks, but may end before rank {} has entered", s.rank,
                      other.rank));
    }
    // Staged scratch outlives the operation: whoever runs the schedule keeps it until nobody reads it.
    const std::uint32_t locations = s.is_staged ? 2 * s.atoms() : location_count(s);
    for (std::uint32_t where = 0; where < locations; ++where) {
      HappensBefore::Race race;
      if (!order_.outlives_owner(s.rank, memory_base_[s.rank] + where, race)) continue;
      return fail(
          thread_steps_[thread_begin_[race.earlier.thread] + race.earlier.position - 1],
          fmt::format("may still {} {} of rank {} after rank {} has left the operation",
                      race.earlier_writes ? "write" : "read", describe_location(s, where), s.rank, s.rank));
    }
  }
  return {};
}

void SymbolicRun::wake(std::uint32_t thread) {
  if (is_awake_[thread] != 0) return;
  is_awake_[thread] = 1;
  awake_.push_back(thread);
}

Status SymbolicRun::advance(std::uint32_t thread) {
  while (cursor_[thread] < thread_begin_[thread + 1]) {
    const StepId id = thread_steps_[cursor_[thread]];
    if (pending_[id] != 0) return {};
    bool is_blocked = false;
    TUTTI_RETURN_IF_ERROR(issue(id, is_blocked));
    if (is_blocked) return {};
    ++cursor_[thread];
  }
  return {};
}

}  // namespace tutti::detail
