// Persistent calls: one epoch without an operation.
#include "runtime/scheduler/persistent_call.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <utility>

#include <sched.h>

#include "runtime/base/relax.hpp"
#include "runtime/scheduler/group_context.hpp"

namespace tutti {
namespace {

// How much of what a line stands for is fetched while the line is awaited, and when it is here.
struct Fetching {
  std::size_t early_bytes = 0, taken_bytes = 0;
};

// What is fetched before the peer has written it costs nothing between neighbours, since it lay in this
// core's cache anyway; what the peer has written by then is here when the line is. More than a few lines
// would be in the way of the peer's stores, and from afar more than two. What a far rank writes next it takes
// over at once, for writing; behind that the pass over the data has come as far by itself.
Fetching fetching_of(const ResolvedStep& step, bool is_taken_over) {
  constexpr std::size_t kMostEarlyBytes = 512, kMostEarlyFarBytes = 128, kMostTakenBytes = 4096;
  if (!is_taken_over) return {std::min(step.ahead_bytes, kMostEarlyBytes), 0};
  return {step.ahead_bytes <= kMostEarlyFarBytes ? step.ahead_bytes : 0,
          std::min(step.ahead_bytes, kMostTakenBytes)};
}

// Leaves the execution units to a peer that is a thread of the same core.
void let_pass(double ns, double pauses_per_ns) {
  for (long left = std::lround(ns * pauses_per_ns); left > 0; --left) relax();
}

// What reading the clock adds to what is timed.
double measure_clock_ns() {
  double least_ns = 1000;
  for (int i = 0; i < 16; ++i) {
    const SteadyClock::time_point begun = SteadyClock::now();
    const std::chrono::duration<double, std::nano> took = SteadyClock::now() - begun;
    least_ns = std::min(least_ns, took.count());
  }
  return least_ns;
}

// What a look takes that finds the line; nothing of one that does not.
bool is_here_timed(const FlagLine& line, std::uint64_t epoch, std::uint64_t digest, const WaitPolicy& waiting,
                   PeerDistance& distance) {
  static const double kClockNs = measure_clock_ns();
  const SteadyClock::time_point begun = SteadyClock::now();
  const bool is_here = line.is_of(epoch, digest);
  const std::chrono::duration<double, std::nano> took = SteadyClock::now() - begun;
  if (is_here) distance.note(took.count() - kClockNs, waiting.far_line_ns);
  return is_here;
}

// Anything else that is found there is for the operation to judge.
template <class Look>
bool await(const ResolvedStep& step, const ResolvedPlace::Origins& origins, std::uint32_t polls,
           bool is_taken_over, Look is_here) {
  // Who only listens leaves the execution units to the peer that has to publish.
  const std::uint32_t without_pause = step.is_receive_only ? 0 : kPollsWithoutPause;
  const std::byte* const ahead = step.ahead.in(origins);
  const Fetching fetching = fetching_of(step, is_taken_over);
  for (std::uint32_t i = 0; i < polls; ++i) {
    if (is_here()) {
      for (std::size_t at = 0; at < fetching.taken_bytes; at += sizeof(FlagLine))
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

LoweredCall::LoweredCall(GroupContext& group, const Prepared& prepared, Dtype dtype)
    : group_(group),
      prepared_(prepared),
      shape_(prepared_.lowered->staged->shape),
      hears_from_all_(shape_.hears_from_all),
      keeps_slot_(GroupContext::keeps_slot(prepared)),
      piece_bytes_(group.lowered_limits().piece_bytes),
      element_bytes_(size_of(dtype)) {}

std::unique_ptr<LoweredCall> LoweredCall::make(GroupContext& group, const Prepared& prepared,
                                               const Call& call) {
  const bool is_scaled =
      is_reducing(call.collective) && (scales_before(call.op.op) || scales_after(call.op.op));
  // Longer ones would keep the lane from others, and what they would save is little of what they take.
  constexpr std::size_t kMostBytes = std::size_t{64} << 10U;
  const bool is_long = prepared.vector_bytes > kMostBytes;
  if (prepared.lowered == nullptr || is_scaled || is_long || !group.has_control_blocks(prepared.is_bulk))
    return nullptr;
  std::unique_ptr<LoweredCall> made(new LoweredCall(group, prepared, call.dtype));
  made->prepared_.messages = made->prepared_.exchange = nullptr;  // ways back that are not needed any more
  LoweredRun run;
  LoweredRun::Work& work = run.work();
  work.call = &call;
  work.kernel = prepared.kernel;
  work.element_bytes = size_of(call.dtype);
  work.vector_bytes = prepared.vector_bytes;
  if (!run.resolve(*prepared.lowered, group.control_blocks(prepared.is_bulk), group.lowered_limits(),
                   &made->epoch_))
    return nullptr;
  return made;
}

bool LoweredCall::run(const Call& call, WorkRef* unfinished) {
  Engine& engine = group_.engine_;
  // Whoever is in the way is dealt with by submit().
  if (!engine.try_acquire()) return false;
  group_.is_submitting_.store(true, std::memory_order_relaxed);
  const bool has_run = !group_.has_failed() && run_with_lane(call, unfinished);
  group_.is_submitting_.store(false, std::memory_order_relaxed);
  engine.release();
  return has_run;
}

ControlBlocks& LoweredCall::control_blocks() const { return group_.control_blocks(prepared_.is_bulk); }

ResolvedPlace::Origins LoweredCall::origins(const ControlBlocks::Area& area, std::uint64_t epoch,
                                            const LoweredBuffers& buffers) const {
  const std::size_t place =
      control_blocks().place_of(epoch, epoch_.staged_bytes, waits_for_all(shape_.collective));
  return {reinterpret_cast<std::uintptr_t>(buffers.input),
          reinterpret_cast<std::uintptr_t>(buffers.output),
          area.own,
          area.others,
          area.own + place,
          area.others + place};
}

std::uint32_t LoweredCall::slot_of(std::uint32_t sequence) const {
  if (prepared_.is_bulk) return GroupContext::kBulkSlot;
  return keeps_slot_ ? 0 : sequence % GroupContext::kSlots;
}

bool LoweredCall::may_enter(std::uint32_t control_slot) const {
  ControlBlocks& all = control_blocks();
  return all.heard_from_all(control_slot) ||
         all.first_behind(control_slot, all.epoch(control_slot) + 1, 0) == all.size();
}

// Are the own buffers shared, so that it depends on the others' which plan is carried out?
bool LoweredCall::may_be_mapped(const LoweredBuffers& buffers) const {
  const SharedHeap& heap = *control_blocks().heap();
  const auto is_shared = [&](const std::byte* buffer, std::size_t bytes) {
    SharedHeap::Location place;
    return buffer == nullptr || bytes == 0 || heap.locate(buffer, bytes, &place);
  };
  return is_shared(buffers.input, epoch_.input_bytes) && is_shared(buffers.output, epoch_.output_bytes);
}

// Where ranks share CPUs the peer most likely waits for this one's: let it have it, and look again. Ranks of
// this CPU that have published that line, too, could only wait for the same peer: if all have, giving way
// would cost a switch there and one back. Cheaper than becoming an operation, but nothing else of this engine
// gets on meanwhile, so not for long.
bool LoweredCall::await_others_turn(const LoweredStep& step, const ControlBlocks::Area& area,
                                    std::uint64_t epoch, std::uint64_t digest) {
  constexpr std::uint32_t kMostTurns = 32;
  constexpr std::uint32_t kLooksAsLast = 128;  // longer than a switch: 3.4 us where that is 2.2
  if (!group_.engine_.options_.waiting.shares_cpus()) return false;
  ControlBlocks& control_blocks = this->control_blocks();
  const FlagLine& line = control_blocks.lines_at(step.peer, area)[step.line];
  for (std::uint32_t i = 0; i < kMostTurns && !group_.has_failed(); ++i) {
    if (control_blocks.have_published_on(control_blocks.tell_cpu(), area, step.line, epoch)) {
      for (std::uint32_t look = 0; look < kLooksAsLast; ++look) {
        if (line.is_of(epoch, digest)) return true;
        relax();
      }
    }
    ::sched_yield();
    if (line.is_of(epoch, digest)) return true;
  }
  return false;
}

void LoweredCall::compute(const ResolvedStep* step, const ResolvedPlace::Origins& origins) const {
  StagingStores& stores = control_blocks().stores();
  const std::uint32_t sources = step->source_count, places = 1U + step->more_stores;
  const bool is_sum = step->kind == LoweredStep::Kind::reduce;
  // A sum is computed in the first place that is written through the caches.
  std::uint32_t sum_at = 0;
  while (is_sum && sum_at < places && step[sum_at].is_by_stores && stores.is_streaming()) ++sum_at;
  std::array<const std::byte*, 256> first;
  std::array<const void*, 256> from;
  for (std::uint32_t i = 0; i < sources; ++i) first[i] = epoch_.sources[step->first_source + i].in(origins);
  alignas(64) std::array<std::byte, LoweredLimits::kMostPieceBytes> piece;
  // Piece by piece, so that what was computed is stored everywhere while it is in the first cache.
  for (std::size_t offset = 0; offset < step->bytes; offset += piece_bytes_) {
    const std::size_t bytes = std::min(piece_bytes_, step->bytes - offset);
    const std::byte* value = first[0] + offset;
    if (is_sum) {
      for (std::uint32_t i = 0; i < sources; ++i) from[i] = first[i] + offset;
      std::byte* const sum = sum_at == places ? piece.data() : step[sum_at].at.in(origins) + offset;
      prepared_.kernel(nullptr, sum, from.data(), sources, bytes / element_bytes_);
      value = sum;
    }
    for (std::uint32_t i = 0; i < places; ++i) {
      if (is_sum && i == sum_at) continue;
      std::byte* const to = step[i].at.in(origins) + offset;
      if (step[i].is_by_stores) {
        stores.copy(to, value, bytes);
      } else {
        copy_bytes(to, value, bytes);
      }
    }
  }
}

// The next call is like this one, most likely.
void LoweredCall::fetch_lines_of_next(std::uint32_t sequence) const {
  const ControlBlocks& control_blocks = this->control_blocks();
  const std::uint32_t control_slot = group_.control_slot(slot_of(sequence + 1));
  const std::uint64_t epoch = control_blocks.epoch(control_slot) + 1;
  const ResolvedPlace::Origins origins = this->origins(control_blocks.area(control_slot, epoch), epoch, {});
  for (const ResolvedPlace& line : epoch_.written) fetch_for_writing(line.in(origins));
}

bool LoweredCall::run_with_lane(const Call& call, WorkRef* unfinished) {
  Trace* const trace = group_.engine_.trace();
  const SteadyClock::time_point begun = trace != nullptr ? SteadyClock::now() : SteadyClock::time_point{};
  const std::uint32_t sequence = group_.next_sequence_.load(std::memory_order_relaxed);
  const std::uint32_t slot = slot_of(sequence), control_slot = group_.control_slot(slot);
  if (group_.slots_[slot].head != nullptr || !may_enter(control_slot)) return false;
  const LoweredBuffers buffers = lowered_buffers(call, shape_);
  if (epoch_.is_announced && may_be_mapped(buffers)) return false;
  ControlBlocks& control_blocks = this->control_blocks();
  const std::uint64_t digest = group_.submitted_.digest_with(prepared_.contract);
  group_.remember(sequence, digest, prepared_.contract);
  const std::uint64_t epoch = control_blocks.next_epoch(control_slot);
  const ControlBlocks::Area area = control_blocks.area(control_slot, epoch);
  const ResolvedPlace::Origins origins = this->origins(area, epoch, buffers);
  const WaitPolicy& waiting = group_.engine_.options_.waiting;
  PeerDistance& distance = group_.distance_;
  bool is_timed = !waiting.shares_cpus() && distance.is_due();
  const auto has_come = [&](const ResolvedStep& step) {
    if (step.is_after_publish) let_pass(distance.moment_ns(step.ahead_bytes), waiting.pauses_per_ns);
    const auto& line = *reinterpret_cast<const FlagLine*>(step.at.in(origins));
    // Who only listens does not write there next.
    const bool is_taken_over =
        distance.is_far() && control_blocks.alternates_owner() && !step.is_receive_only;
    if (!std::exchange(is_timed, false))
      return await(step, origins, waiting.line_polls, is_taken_over,
                   [&] { return line.is_of(epoch, digest); });
    return await(step, origins, waiting.line_polls, is_taken_over,
                 [&] { return is_here_timed(line, epoch, digest, waiting, distance); });
  };
  const auto publish = [&](FlagLine& line) {
    line.publish(epoch, digest);
    control_blocks.wake_sleepers();
  };
  if (epoch_.is_announced) {
    FlagLine& line = control_blocks.lines_at(control_blocks.rank(), area)[0];
    LoweredRun::tell_unshared(line);
    publish(line);
  }
  std::array<const void*, 256> from;
  for (const ResolvedStep *step = epoch_.steps.data(), *end = step + epoch_.steps.size(); step != end;
       step += 1U + step->more_stores) {
    switch (step->kind) {
      case LoweredStep::Kind::copy:
        if (step->is_plain) {
          copy_bytes(step->at.in(origins), epoch_.sources[step->first_source].in(origins), step->bytes);
        } else if (step->more_stores == 0 && step->is_by_stores) {  // one place: no pieces
          control_blocks.stores().copy(step->at.in(origins), epoch_.sources[step->first_source].in(origins),
                                       step->bytes);
        } else {
          compute(step, origins);
        }
        break;
      case LoweredStep::Kind::reduce:
        if (step->is_plain) {
          for (std::uint32_t i = 0; i < step->source_count; ++i)
            from[i] = epoch_.sources[step->first_source + i].in(origins);
          prepared_.kernel(nullptr, step->at.in(origins), from.data(), step->source_count, step->count);
        } else {
          compute(step, origins);
        }
        break;
      case LoweredStep::Kind::signal:
        publish(*reinterpret_cast<FlagLine*>(step->at.in(origins)));
        break;
      case LoweredStep::Kind::wait:
        if (has_come(*step) ||
            await_others_turn(prepared_.lowered->staged->steps[step->index], area, epoch, digest)) {
          break;
        }
        *unfinished = group_.resume(prepared_, call, {sequence, digest}, slot, step->index, begun);
        return true;
    }
  }
  control_blocks.end_epoch(control_slot, hears_from_all_);
  // A peer that waits for this rank compares CPUs, also if this rank itself never waits. Not at each call,
  // since it takes 5 ns.
  constexpr std::uint32_t kCallsPerCpu = 16;
  if (waiting.watches_cpus && sequence % kCallsPerCpu == 0) control_blocks.tell_cpu();
  // Two ranks that have heard from each other have taken them over.
  if (distance.is_far() && !(control_blocks.alternates_owner() && hears_from_all_))
    fetch_lines_of_next(sequence);
  if (trace != nullptr) {
    Trace::Span span = group_.span_of(call, sequence, prepared_.choice);
    span.submitted = span.started = begun;
    trace->add(span);
  }
  return true;
}

}  // namespace tutti
