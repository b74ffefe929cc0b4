// The single steps of a symbolic execution (messages, computations, signals), and the reason where it got
// stuck.
#include <algorithm>

#include <fmt/format.h>

#include "runtime/schedule/check_steps.hpp"
#include "runtime/schedule/symbolic_run.hpp"
#include "runtime/schedule/text.hpp"

namespace tutti::detail {

Status SymbolicRun::fail(StepId id, const std::string& why) const {
  return internal_error(fmt::format("{}: {}", describe_step(schedule_of(id), number_of(id)), why));
}

void SymbolicRun::enter_step(StepId id) {
  if (!is_lowered_) return;
  const std::uint32_t thread = thread_of(id), base = first_step_[rank_of_[id]];
  for (std::uint32_t d : schedule_of(id).dependencies_of(step_of(id))) {
    if (thread_of(base + d) != thread) order_.join(thread, snapshot_[base + d]);
  }
  order_.begin_step(thread);
  depth_[id] = std::max(depth_[id], thread_depth_[thread]);
}

Status SymbolicRun::issue(StepId id, bool& is_blocked) {
  const Verb verb = step_of(id).verb;
  if (verb == Verb::wait && done_[partner_[id]] == 0) {
    waiters_[thread_of(partner_[id])].push_back(thread_of(id));
    is_blocked = true;
    return {};
  }
  issued_[id] = 1;
  enter_step(id);
  switch (verb) {
    case Verb::send:
    case Verb::recv: {
      const StepId other = partner_[id];
      if (issued_[other] == 0) return {};
      TUTTI_RETURN_IF_ERROR(verb == Verb::send ? transfer(id, other) : transfer(other, id));
      const std::uint32_t depth = std::max(depth_[id], depth_[other]) + 1;
      complete(id, depth);
      complete(other, depth);
      return {};
    }
    case Verb::wait:
      order_.join(thread_of(id), snapshot_[partner_[id]]);
      complete(id, std::max(depth_[id], depth_[partner_[id]] + 1));
      return {};
    case Verb::signal:
      snapshot_[id] = order_.snapshot(thread_of(id));
      complete(id, depth_[id]);
      for (std::uint32_t thread : waiters_[thread_of(id)]) wake(thread);
      waiters_[thread_of(id)].clear();
      return {};
    case Verb::copy:
    case Verb::reduce:
      TUTTI_RETURN_IF_ERROR(compute(id));
      complete(id, depth_[id]);
      return {};
  }
  return {};
}

void SymbolicRun::complete(StepId id, std::uint32_t depth) {
  done_[id] = 1;
  depth_[id] = depth;
  rounds_ = std::max<std::uint64_t>(rounds_, depth);
  if (is_lowered_) thread_depth_[thread_of(id)] = depth;
  for (std::uint32_t i = first_dependent_[id]; i < first_dependent_[id + 1]; ++i) {
    const StepId next = dependents_[i];
    depth_[next] = std::max(depth_[next], depth);
    if (is_lowered_ && snapshot_[id] == kNone && thread_of(next) != thread_of(id))
      snapshot_[id] = order_.snapshot(thread_of(id));
    if (--pending_[next] == 0) wake(thread_of(next));
  }
}

Status SymbolicRun::check_access(StepId id, std::uint32_t owner, std::uint32_t where, bool is_write) {
  if (!is_lowered_) return {};
  const std::uint32_t thread = thread_of(id);
  const bool is_scratch = where >= 2 * ranks_[owner].atoms();
  if (ranks_[owner].is_staged && owner != rank_of_[id] && (is_write || !is_scratch))
    return fail(id,
                fmt::format("{} {} of rank {}: staged ranks read each other's scratch and nothing else",
                            is_write ? "writes" : "reads", describe_location(ranks_[owner], where), owner));
  if (owner != rank_of_[id] && !order_.knows_entry(thread, owner))
    return fail(id, fmt::format("touches {} of rank {} before knowing that rank {} has entered the operation",
                                describe_location(ranks_[owner], where), owner, owner));
  HappensBefore::Race race;
  const std::size_t at = memory_base_[owner] + where;
  if (is_write ? order_.write(thread, at, race) : order_.read(thread, at, race)) return {};
  const StepId other = thread_steps_[thread_begin_[race.earlier.thread] + race.earlier.position - 1];
  return fail(id, fmt::format("{} {} of rank {} while {} may still {} it: no signal and wait order them",
                              is_write ? "overwrites" : "reads", describe_location(ranks_[owner], where),
                              owner, describe_step(schedule_of(other), number_of(other)),
                              race.earlier_writes ? "write" : "read"));
}

Status SymbolicRun::load(StepId id, const Slice& slice, std::uint32_t k, Value& value) {
  const Schedule& s = schedule_of(id);
  const std::uint32_t owner = slice.owner == kSelf ? s.rank : static_cast<std::uint32_t>(slice.owner);
  const std::uint32_t where = location(s, slice, k);
  TUTTI_RETURN_IF_ERROR(check_access(id, owner, where, false));
  value = memory_[memory_base_[owner] + where];
  const auto of = [&] { return owner == s.rank ? "" : fmt::format(" of rank {}", owner); };
  if (value == kUnwritten)
    return fail(id, fmt::format("reads {}{}, which nobody has written", describe_location(s, where), of()));
  if (!is_alltoall_ && values_.atom_of(value) != s.atom(slice, k))
    return fail(id, fmt::format("takes {}{} for block {}, but it holds block {}", describe_location(s, where),
                                of(), s.atom(slice, k) / s.segments, values_.atom_of(value) / s.segments));
  return {};
}

Status SymbolicRun::store(StepId id, const Slice& slice, std::uint32_t k, Value value) {
  const Schedule& s = schedule_of(id);
  const std::uint32_t owner = slice.owner == kSelf ? s.rank : static_cast<std::uint32_t>(slice.owner);
  const std::uint32_t where = location(s, slice, k);
  TUTTI_RETURN_IF_ERROR(check_access(id, owner, where, true));
  memory_[memory_base_[owner] + where] = slice.is_wire ? values_.round(value) : value;
  return {};
}

namespace {

// Which of the p x p blocks of an alltoall has the size of atom k of a slice: (sender, receiver, segment).
// Input block d of rank s is (s, d), output block s of rank d is (s, d); scratch takes the shape of the
// output. In place both must hold, so the counts are symmetric and the pair is unordered.
std::uint64_t alltoall_shape(const Schedule& s, const Slice& slice, std::uint32_t k) {
  const std::uint32_t atom = s.atom(slice, k);
  std::uint64_t owner = slice.owner == kSelf ? s.rank : static_cast<std::uint32_t>(slice.owner);
  std::uint64_t block = atom / s.segments;
  if (s.in_place ? block < owner : slice.buffer != Buffer::input) std::swap(owner, block);
  return (owner * s.blocks + block) * s.segments + atom % s.segments;
}

}  // namespace

// A message must be received as the block that it was sent as: only then do uneven counts agree on both
// sides.
Status SymbolicRun::check_shape(StepId id, const Slice& source, StepId to, const Slice& dst) {
  const Schedule &from = schedule_of(id), &into = schedule_of(to);
  for (std::uint32_t k = 0; k < dst.count; ++k) {
    if (is_alltoall_) {
      if (!not_v_safe_.empty() || alltoall_shape(from, source, k) == alltoall_shape(into, dst, k)) continue;
      not_v_safe_ = fmt::format("{}: {} takes the place of a block of another size",
                                describe_step(from, number_of(id)), to_text(source));
    } else if (const std::uint32_t a = from.atom(source, k), b = into.atom(dst, k); a != b) {
      const std::string partner = id == to ? "" : " by " + describe_step(into, number_of(to));
      return fail(
          id, fmt::format("block {} is taken as block {}{}", a / from.segments, b / into.segments, partner));
    }
  }
  return {};
}

Status SymbolicRun::transfer(StepId send, StepId recv) {
  const Slice& source = schedule_of(send).sources_of(step_of(send))[0];
  const Slice& dst = step_of(recv).dst;
  if (source.is_wire != dst.is_wire)
    return fail(send, fmt::format("sends {} the wire dtype, its partner {} does not",
                                  source.is_wire ? "in" : "without",
                                  describe_step(schedule_of(recv), number_of(recv))));
  TUTTI_RETURN_IF_ERROR(check_shape(send, source, recv, dst));
  for (std::uint32_t k = 0; k < dst.count; ++k) {
    Value value = kUnwritten;
    TUTTI_RETURN_IF_ERROR(load(send, source, k, value));
    TUTTI_RETURN_IF_ERROR(store(recv, dst, k, value));
  }
  sent_atoms_[rank_of_[send]] += dst.count;
  return {};
}

Status SymbolicRun::compute(StepId id) {
  const Schedule& s = schedule_of(id);
  const Step& step = step_of(id);
  const auto sources = s.sources_of(step);
  for (const Slice& source : sources) TUTTI_RETURN_IF_ERROR(check_shape(id, source, id, step.dst));
  for (std::uint32_t k = 0; k < step.dst.count; ++k) {
    Value sum = kUnwritten;
    for (const Slice& source : sources) {
      Value value = kUnwritten;
      TUTTI_RETURN_IF_ERROR(load(id, source, k, value));
      if (sum == kUnwritten) {
        sum = value;
        continue;
      }
      std::string why;
      sum = values_.add(sum, value, why);
      if (sum == kUnwritten)
        return fail(id, fmt::format("at block {}: {}", s.atom(step.dst, k) / s.segments, why));
    }
    if (step.dst.is_wire) roundings_.push_back({s.rank, number_of(id), sum});
    TUTTI_RETURN_IF_ERROR(store(id, step.dst, k, sum));
  }
  return {};
}

Value SymbolicRun::value(std::uint32_t rank, Buffer buffer, std::uint32_t atom) const {
  return memory_[memory_base_[rank] + location(ranks_[rank], {buffer, atom}, 0)];
}

VerifyReport SymbolicRun::report() const {
  VerifyReport report;
  report.rounds = rounds_;
  report.messages = messages_;
  report.max_sent_atoms = *std::max_element(sent_atoms_.begin(), sent_atoms_.end());
  report.v_safe = not_v_safe_.empty();
  report.not_v_safe = not_v_safe_;
  return report;
}

// The step for which an incomplete step waits, and the reason.
SymbolicRun::StepId SymbolicRun::blocked_by(StepId id, std::string& reason) const {
  if (issued_[id] != 0) {
    reason = "to be posted";
    return partner_[id];
  }
  const std::uint32_t base = first_step_[rank_of_[id]];
  reason = "which must complete first";
  for (std::uint32_t d : schedule_of(id).dependencies_of(step_of(id)))
    if (done_[base + d] == 0) return base + d;
  const StepId head = thread_steps_[cursor_[thread_of(id)]];
  if (head == id) {
    reason = "to be signalled";
    return partner_[id];
  }
  reason = "which is earlier in its channel";
  return head;
}

Status SymbolicRun::explain_deadlock() const {
  // Every incomplete step waits for another incomplete one, so following them ends in a cycle: show that.
  std::vector<std::uint8_t> seen(done_.size(), 0);
  std::string reason;
  auto at = static_cast<StepId>(std::find(done_.begin(), done_.end(), 0) - done_.begin());
  for (; seen[at] == 0; at = blocked_by(at, reason)) seen[at] = 1;
  constexpr int kShown = 12;
  std::string text = "deadlock: " + describe_step(schedule_of(at), number_of(at));
  StepId next = at;
  int shown = 0;
  do {
    next = blocked_by(next, reason);
    text += fmt::format(" waits for {}, {}", describe_step(schedule_of(next), number_of(next)), reason);
    if (next != at) text += "; that";
  } while (next != at && ++shown < kShown);
  if (next != at) text += " waits on, and so on around a longer cycle";
  std::vector<bool> stuck(ranks_.size());
  for (StepId id = 0; id < done_.size(); ++id)
    if (done_[id] == 0) stuck[rank_of_[id]] = true;
  return internal_error(fmt::format("{}. Ranks that wait for ever: {}", text, describe_ranges(stuck)));
}

}  // namespace tutti::detail
