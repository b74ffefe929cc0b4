// Persistent calls: one epoch without an operation.
#include "runtime/scheduler/persistent_call.hpp"

#include <algorithm>
#include <array>

#include <sched.h>

#include "runtime/base/relax.hpp"
#include "runtime/scheduler/fingerprint.hpp"
#include "runtime/scheduler/group_context.hpp"

namespace tutti {
namespace {

bool is_stamped(const BoardLine& line, std::uint64_t stamp, std::uint64_t previous) {
  return line.stamp.load(std::memory_order_acquire) == stamp && line.previous_stamp == previous;
}

// What is fetched while its line is awaited: more than a few lines would be in the way of the peer's stores.
constexpr std::size_t kMostAheadBytes = 512;

// What is fetched before the peer has written it costs nothing, since it lay in this core's cache anyway;
// what the peer has written by then is here when the line is.
void fetch_ahead(const std::byte* ahead, std::size_t size_bytes) {
  for (std::size_t i = 0; i < std::min(size_bytes, kMostAheadBytes); i += sizeof(BoardLine))
    __builtin_prefetch(ahead + i);
}

// Ranks that were together a moment ago come to their next call so near to each other that a look right after
// the own publish fetches the peers' lines before they are written, and their stores must then take them back
// first. Whoever lets a moment pass finds them written, and until then leaves the execution units to the peer
// where both are threads of one core.
void let_pass(std::uint32_t pauses) {
  for (std::uint32_t i = 0; i < pauses; ++i) relax();
}

// Anything else that is found there is for the operation to judge.
bool await(const ResolvedStep& step, const ResolvedPlace::Origins& origins, std::uint64_t stamp,
           std::uint64_t previous, const WaitPolicy& waiting) {
  if (step.is_after_publish) let_pass(waiting.pauses_before_look);
  const auto& line = *reinterpret_cast<const BoardLine*>(step.at.in(origins));
  const std::byte* const ahead = step.ahead.in(origins);
  for (std::uint32_t i = 0; i < waiting.line_polls; ++i) {
    if (is_stamped(line, stamp, previous)) return true;
    fetch_ahead(ahead, step.ahead_bytes);
    if (i >= kPollsWithoutPause) relax();
  }
  return false;
}

}  // namespace

LoweredCall::LoweredCall(GroupContext& group, const Prepared& prepared, const Call& call)
    : group_(group),
      prepared_(prepared),
      signature_(call),
      shape_(prepared_.lowered->staged->shape),
      hears_from_all_(shape_.hears_from_all),
      keeps_slot_(GroupContext::keeps_slot(prepared)) {}

std::unique_ptr<LoweredCall> LoweredCall::make(GroupContext& group, const Prepared& prepared,
                                               const Call& call) {
  const bool is_scaled =
      is_reducing(call.collective) && (scales_before(call.op.op) || scales_after(call.op.op));
  const bool is_bulk = prepared.is_bulk || prepared.vector_bytes >= group.lowered_limits().announce_bytes;
  if (prepared.lowered == nullptr || is_scaled || is_bulk || !group.has_boards(false)) return nullptr;
  std::unique_ptr<LoweredCall> made(new LoweredCall(group, prepared, call));
  made->prepared_.messages = made->prepared_.exchange = nullptr;  // ways back that are not needed any more
  LoweredRun run;
  LoweredRun::Work& work = run.work();
  work.call = &call;
  work.kernel = prepared.kernel;
  work.element_bytes = size_of(call.dtype);
  work.vector_bytes = prepared.vector_bytes;
  if (!run.resolve(*prepared.lowered, group.boards(false), group.lowered_limits(), &made->epoch_))
    return nullptr;
  return made;
}

bool LoweredCall::is_of(const Call& call) const {
  return signature_.collective == call.collective && signature_.count == call.count &&
         signature_.dtype == call.dtype && signature_.op.op == call.op.op && signature_.root == call.root;
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

std::uint32_t LoweredCall::slot_of(std::uint32_t sequence) const {
  return keeps_slot_ ? 0 : sequence % GroupContext::kSlots;
}

bool LoweredCall::may_enter(std::uint32_t slot) const {
  Boards& boards = group_.boards(false);
  return boards.heard_from_all(slot) || boards.first_behind(slot, boards.epoch(slot) + 1, 0) == boards.size();
}

// Where ranks share CPUs the peer most likely waits for this one's: let it have it, and look again. Ranks of
// this CPU that have published that line, too, could only wait for the same peer: if all have, giving way
// would cost a switch there and one back. Cheaper than becoming an operation, but nothing else of this engine
// gets on meanwhile, so not for long.
bool LoweredCall::await_others_turn(const LoweredStep& step, std::size_t area_offset, std::uint64_t stamp,
                                    std::uint64_t previous) {
  constexpr std::uint32_t kMostTurns = 32;
  constexpr std::uint32_t kLooksAsLast = 128;  // longer than a switch: 3.4 us where that is 2.2
  if (!group_.engine_.options_.waiting.shares_cpus()) return false;
  Boards& boards = group_.boards(false);
  const BoardLine& line = boards.lines_at(step.peer, area_offset)[step.line];
  for (std::uint32_t i = 0; i < kMostTurns && !group_.has_failed(); ++i) {
    if (boards.have_published_on(boards.tell_cpu(), area_offset, step.line, stamp)) {
      for (std::uint32_t look = 0; look < kLooksAsLast; ++look) {
        if (is_stamped(line, stamp, previous)) return true;
        relax();
      }
    }
    ::sched_yield();
    if (is_stamped(line, stamp, previous)) return true;
  }
  return false;
}

bool LoweredCall::run_with_lane(const Call& call, WorkRef* unfinished) {
  Trace* const trace = group_.engine_.trace();
  const Clock::time_point begun = trace != nullptr ? Clock::now() : Clock::time_point{};
  const std::uint32_t sequence = group_.next_sequence_.load(std::memory_order_relaxed);
  const std::uint32_t slot = slot_of(sequence);
  if (group_.slots_[slot].head != nullptr || !may_enter(slot)) return false;
  Boards& boards = group_.boards(false);
  const std::uint64_t word = make_word(sequence, prepared_.fingerprint);
  group_.remember(sequence, word);
  const std::uint64_t epoch = boards.next_epoch(slot);
  const LoweredBuffers buffers = lowered_buffers(call, shape_);
  const ResolvedPlace::Origins origins{reinterpret_cast<std::uintptr_t>(buffers.input),
                                       reinterpret_cast<std::uintptr_t>(buffers.output),
                                       boards.area_offset(slot, static_cast<std::uint32_t>(epoch & 1U))};
  const std::uint64_t stamp = make_stamp(epoch, word);
  const std::uint64_t previous = boards.previous_stamp(slot);
  const WaitPolicy& waiting = group_.engine_.options_.waiting;
  std::array<const void*, 256> from;
  for (const ResolvedStep& step : epoch_.steps) {
    std::byte* const at = step.at.in(origins);
    switch (step.kind) {
      case LoweredStep::Kind::copy:
        if (step.at.origin == ResolvedPlace::area) {
          boards.stores().copy(at, epoch_.sources[step.first_source].in(origins), step.length);
        } else {
          copy_bytes(at, epoch_.sources[step.first_source].in(origins), step.length);
        }
        break;
      case LoweredStep::Kind::reduce:
        for (std::uint32_t i = 0; i < step.source_count; ++i)
          from[i] = epoch_.sources[step.first_source + i].in(origins);
        prepared_.kernel(nullptr, at, from.data(), step.source_count, step.length);
        break;
      case LoweredStep::Kind::publish: {
        auto& line = *reinterpret_cast<BoardLine*>(at);
        line.publish(stamp, previous);
        boards.wake_sleepers();
        break;
      }
      case LoweredStep::Kind::await:
        if (await(step, origins, stamp, previous, waiting) ||
            await_others_turn(prepared_.lowered->staged->steps[step.index], origins[ResolvedPlace::area],
                              stamp, previous)) {
          break;
        }
        *unfinished = group_.resume(prepared_, call, sequence, slot, step.index, begun);
        return true;
    }
  }
  boards.end_epoch(slot, stamp, word, hears_from_all_);
  if (trace != nullptr) {
    Trace::Span span = group_.span_of(call, sequence, prepared_.choice);
    span.submitted = span.started = begun;
    trace->add(span);
  }
  return true;
}

}  // namespace tutti
