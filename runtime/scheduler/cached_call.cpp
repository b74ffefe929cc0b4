// One epoch without an operation: how it polls, fetches ahead, and becomes an operation.
#include "runtime/scheduler/cached_call.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstring>
#include <utility>

#include <sched.h>

#include "runtime/base/relax.hpp"
#include "runtime/scheduler/group_context.hpp"

namespace tutti {
namespace {

// How much staging behind a flag line is prefetched: while the line is polled, and once it has come.
struct Fetching {
  std::size_t early_bytes = 0, owned_bytes = 0;
};

// Between cores of one last-level cache a prefetch of the peer's lines costs nothing, and lines that it has
// written by then arrive with the flag. More than a few lines would delay the peer's stores, between caches more
// than two. Between caches, up to 4 KiB that this rank writes next are prefetched for ownership; beyond that the
// copy loop overtakes the prefetch.
Fetching fetching_of(const ResolvedStep& step, bool takes_ownership) {
  constexpr std::size_t kMostEarlyBytes = 512, kMostEarlyCrossBytes = 128, kMostOwnedBytes = 4096;
  if (!takes_ownership) return {std::min(step.ahead_bytes, kMostEarlyBytes), 0};
  return {step.ahead_bytes <= kMostEarlyCrossBytes ? step.ahead_bytes : 0,
          std::min(step.ahead_bytes, kMostOwnedBytes)};
}

// Leaves the execution units to a peer that is a thread of the same core.
void back_off(double ns, double pauses_per_ns) {
  for (long left = std::lround(ns * pauses_per_ns); left > 0; --left) relax();
}

// The time that reading the clock adds.
double measure_clock_ns() {
  double least_ns = 1000;
  for (int i = 0; i < 16; ++i) {
    const SteadyClock::time_point begun = SteadyClock::now();
    const std::chrono::duration<double, std::nano> took = SteadyClock::now() - begun;
    least_ns = std::min(least_ns, took.count());
  }
  return least_ns;
}

// Times a poll that finds the flag of `peer`; one that fails says nothing.
bool is_here_timed(const FlagLine& line, std::uint64_t epoch, std::uint64_t digest, std::uint32_t peer,
                   const WaitPolicy& waiting, PeerDistances& distances) {
  static const double kClockNs = measure_clock_ns();
  const SteadyClock::time_point begun = SteadyClock::now();
  const bool is_here = line.is_of(epoch, digest);
  const std::chrono::duration<double, std::nano> took = SteadyClock::now() - begun;
  if (is_here) distances.note(peer, took.count() - kClockNs, waiting.cross_llc_ns);
  return is_here;
}

// Unset: the call is not timed, because the clock takes longer than a poll.
SteadyClock::time_point begin_sample(std::uint32_t sequence, bool are_all_timed) {
  return are_all_timed || sequence % record::kSamplingInterval == 0 ? SteadyClock::now()
                                                                    : SteadyClock::time_point{};
}

// Any other sequence in the flag line is for the operation to judge.
template <class Poll>
bool poll(const ResolvedStep& step, const std::uintptr_t* origins, std::uint32_t polls, bool takes_ownership,
          Poll is_here) {
  // A rank that only receives leaves the execution units to the peer that has to signal.
  const std::uint32_t without_pause = step.is_receive_only ? 0 : kPollsWithoutPause;
  const std::byte* const ahead = step.ahead.in(origins);
  const Fetching fetching = fetching_of(step, takes_ownership);
  for (std::uint32_t i = 0; i < polls; ++i) {
    if (is_here()) {
      for (std::size_t at = 0; at < fetching.owned_bytes; at += sizeof(FlagLine))
        fetch_for_writing(ahead + at);
      return true;
    }
    for (std::size_t at = 0; at < fetching.early_bytes; at += sizeof(FlagLine))
      __builtin_prefetch(ahead + at);
    if (i >= without_pause) relax();
  }
  return false;
}

}  // namespace

CachedEpoch::CachedEpoch(GroupContext& group, const Prepared& prepared)
    : group_(group),
      prepared_(prepared),
      resolved_(*prepared.lowered),
      control_blocks_(resolved_.control_blocks()),
      epoch_(resolved_.whole()),
      row_(group.record().row(prepared.row)),
      is_announced_(resolved_.is_announced()),
      hears_from_all_(resolved_.shape().hears_from_all) {}

std::unique_ptr<CachedEpoch> CachedEpoch::make(GroupContext& group, const Prepared& prepared,
                                               const Call& call) {
  const bool is_scaled =
      is_reducing(call.collective) && (scales_before(call.op.op) || scales_after(call.op.op));
  // Longer ones would keep the progress lock from others, and would save little of what they take.
  constexpr std::size_t kMostBytes = std::size_t{64} << 10U;
  if (prepared.lowered == nullptr || is_scaled || prepared.vector_bytes > kMostBytes ||
      !prepared.lowered->is_one_epoch())
    return nullptr;
  Prepared kept = prepared;
  kept.messages = nullptr;  // a way back that is not needed any more
  return std::unique_ptr<CachedEpoch>(new CachedEpoch(group, kept));
}

void CachedEpoch::resolve() {
  group_.engine().lock().acquire();
  static_cast<void>(resolved_.staged());
  group_.engine().lock().release();
}

bool CachedEpoch::run(const Call& call, Completion completion, WorkRef* unfinished) {
  ProgressLock& lock = group_.engine().lock();
  // submit() handles a contended lock.
  if (!lock.try_acquire()) return false;
  group_.set_submitting(true);
  const bool has_run = !group_.has_failed() && run_with_lock(call, completion, unfinished);
  group_.set_submitting(false);
  lock.release();
  if (completion == Completion::asynchronous && *unfinished) group_.leave_to_others();
  return has_run;
}

// The steps of an epoch without an operation.
struct CachedEpoch::Driver {
  const CachedEpoch& call;
  ControlBlocks& control_blocks;
  const WaitPolicy& waiting;
  PeerDistances& distances;
  const ControlBlocks::Area& area;
  const std::uintptr_t* origins;
  const std::uint64_t epoch, digest;
  const bool may_yield;
  std::uint32_t waits_to_timed;  // the wait that is timed comes after so many; 0: no further one is timed

  static constexpr bool may_go_on() { return true; }

  FlagLine& line_at(const ResolvedStep& step) const {
    return *reinterpret_cast<FlagLine*>(step.at.in(origins));
  }
  void signal(const ResolvedStep& step) const { signal(line_at(step)); }
  void signal(FlagLine& line) const {
    line.signal(epoch, digest);
    control_blocks.wake_sleepers();
  }

  bool work(const ResolvedStep& step) const {
    if (!step.is_plain) return call.run_pass(step, origins);
    run_plain(call.epoch_, origins, step, call.prepared_.kernel);
    return true;
  }
  bool wait(const ResolvedStep& step) {
    const bool is_here = has_come(step) || (may_yield && call.has_come_after_yields(line_at(step), step.line,
                                                                                    area, epoch, digest));
    if (is_here && step.next_wait != 0) fetch_next((&step)[step.next_wait]);
    return is_here;
  }
  // Prefetches what the next wait of a fan-in polls and reads, so that it crosses while the data of this peer are read.
  // A line that is to be timed is left alone.
  void fetch_next(const ResolvedStep& next) const {
    if (waits_to_timed == 1) return;
    __builtin_prefetch(&line_at(next));
    const std::byte* const ahead = next.ahead.in(origins);
    const std::size_t bytes = fetching_of(next, distances.of(next.peer).is_cross_llc()).early_bytes;
    for (std::size_t at = 0; at < bytes; at += sizeof(FlagLine)) __builtin_prefetch(ahead + at);
  }
  bool has_come(const ResolvedStep& step) {
    const PeerDistance& distance = distances.of(step.peer);
    if (step.is_after_signal) back_off(distance.backoff_ns(step.ahead_bytes), waiting.pauses_per_ns);
    const FlagLine& line = line_at(step);
    // A rank that only receives does not write there next.
    const bool takes_ownership =
        distance.is_cross_llc() && control_blocks.alternates_owner() && !step.is_receive_only;
    if (waits_to_timed == 0 || --waits_to_timed != 0)
      return poll(step, origins, waiting.line_polls, takes_ownership,
                  [&] { return line.is_of(epoch, digest); });
    return poll(step, origins, waiting.line_polls, takes_ownership,
                [&] { return is_here_timed(line, epoch, digest, step.peer, waiting, distances); });
  }
};

bool CachedEpoch::run_pass(const ResolvedStep& step, const std::uintptr_t* origins) const {
  PassSettings settings;
  settings.epoch = &epoch_;
  settings.origins = origins;
  settings.kernel = prepared_.kernel;
  settings.stores = &control_blocks_.stores();
  settings.limits = &resolved_.limits();
  settings.element_bytes = resolved_.element_bytes();
  std::size_t offset = 0;
  return tutti::run_pass(stores_of(step), settings, &offset);
}

// Where ranks share CPUs the peer most likely waits for this one's: yield it, and poll again. Not if all ranks of
// this CPU have signaled that line, too: they wait for the same peer, and yielding would only switch there and
// back. Cheaper than becoming an operation, but nothing else of this engine gets on meanwhile, so not for long.
bool CachedEpoch::has_come_after_yields(const FlagLine& flag, std::uint32_t line,
                                        const ControlBlocks::Area& area, std::uint64_t epoch,
                                        std::uint64_t digest) const {
  constexpr std::uint32_t kMostYields = 32;
  constexpr std::uint32_t kPollsAsLast = 128;  // longer than a switch: 3.4 us where that is 2.2
  for (std::uint32_t i = 0; i < kMostYields && !group_.has_failed(); ++i) {
    if (control_blocks_.have_signaled_on(control_blocks_.tell_cpu(), area, line, epoch)) {
      for (std::uint32_t n = 0; n < kPollsAsLast; ++n) {
        if (flag.is_of(epoch, digest)) return true;
        relax();
      }
    }
    ::sched_yield();
    if (flag.is_of(epoch, digest)) return true;
  }
  return false;
}

// The next call is like this one, most likely.
void CachedEpoch::fetch_lines_of_next(std::uint32_t sequence) const {
  const std::uint32_t slot = GroupContext::control_slot(prepared_.slots.of(sequence + 1));
  const std::uint64_t epoch = control_blocks_.epoch(slot) + 1;
  std::array<std::uintptr_t, ResolvedPlace::peer_buffers> origins;
  resolved_.set_origins(origins.data(), control_blocks_.area(slot, epoch), epoch, epoch_, {});
  for (const ResolvedPlace& line : epoch_.written) fetch_for_writing(line.in(origins.data()));
}

void CachedEpoch::record_end(std::uint32_t sequence, SteadyClock::time_point begun) const {
  record::GroupRecord& group = group_.record();
  record::add(row_.calls, 1);
  record::add(row_.bytes, prepared_.vector_bytes);
  fetch_for_writing(&group.operation(sequence + 1).call);  // the next call writes it
  if (begun == SteadyClock::time_point{}) return;
  const bool are_all_timed = group_.engine().trace() != nullptr;
  group.add_sample(group.operation(sequence), sequence, begun, prepared_.row,
                   are_all_timed ? 1 : record::kSamplingInterval);
}

bool CachedEpoch::run_with_lock(const Call& call, Completion completion, WorkRef* unfinished) {
  Trace* const trace = group_.engine().trace();
  const std::uint32_t sequence = group_.next_sequence();
  const SteadyClock::time_point begun = begin_sample(sequence, trace != nullptr);
  const std::uint32_t slot = prepared_.slots.of(sequence), control_slot = GroupContext::control_slot(slot);
  ControlBlocks& control_blocks = control_blocks_;
  std::uint32_t behind = 0;
  if (group_.is_busy(slot) ||
      !control_blocks.may_write(control_slot, control_blocks.epoch(control_slot) + 1, &behind))
    return false;
  const LoweredBuffers buffers = lowered_buffers(call, resolved_.shape());
  // With shared buffers it depends on the others which form runs.
  if (is_announced_ && resolved_.announcement(buffers).is_shared()) return false;
  const std::uint64_t digest = group_.digest_with(prepared_.contract);
  // Most likely it does not block. If it does, the operation says so.
  group_.remember(sequence, digest, prepared_.contract, {record::Phase::complete, false, prepared_.row});
  const std::uint64_t epoch = control_blocks.next_epoch(control_slot);
  const ControlBlocks::Area area = control_blocks.area(control_slot, epoch);
  std::array<std::uintptr_t, ResolvedPlace::peer_buffers> origins;
  resolved_.set_origins(origins.data(), area, epoch, epoch_, buffers);
  const WaitPolicy& waiting = group_.engine().wait_policy();
  PeerDistances& distances = group_.distances();
  Driver driver{*this,
                control_blocks,
                waiting,
                distances,
                area,
                origins.data(),
                epoch,
                digest,
                waiting.shares_cpus() && completion == Completion::blocking,
                waiting.shares_cpus() ? 0 : distances.next_timed(epoch_.wait_count)};
  if (is_announced_) {
    const Announcement said;  // not shared
    FlagLine& line = control_blocks.lines_at(control_blocks.rank(), area)[0];
    std::memcpy(line.payload.data(), &said, sizeof said);
    driver.signal(line);
  }
  const ResolvedStep* const stopped = run_steps(epoch_, epoch_.steps.data(), driver);
  if (stopped != epoch_.steps.data() + epoch_.steps.size()) {
    *unfinished = group_.resume(prepared_, call, {sequence, digest}, slot, stopped, begun);
    return true;
  }
  control_blocks.end_epoch(control_slot, hears_from_all_, resolved_.readers());
  // A peer that waits for this rank compares CPUs, also if this rank itself never waits. Not at each call,
  // since it takes 5 ns.
  constexpr std::uint32_t kCallsPerCpu = 16;
  if (waiting.watches_cpus && sequence % kCallsPerCpu == 0) control_blocks.tell_cpu();
  // Two ranks that have heard from each other own the lines already.
  if (distances.has_cross_llc() && !(control_blocks.alternates_owner() && hears_from_all_))
    fetch_lines_of_next(sequence);
  record_end(sequence, begun);
  if (trace != nullptr) {
    Trace::Span span = group_.span_of(call, sequence, prepared_.choice);
    span.submitted = span.started = begun;
    trace->add(span);
  }
  return true;
}

}  // namespace tutti
