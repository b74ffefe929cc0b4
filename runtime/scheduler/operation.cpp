// Operations: binding a call, moving it on, failure, completion and reuse.
#include "runtime/scheduler/operation.hpp"

#include <cstdlib>
#include <new>
#include <utility>

#include <fmt/format.h>

#include "runtime/base/trace.hpp"
#include "runtime/kernels/kernels.hpp"
#include "runtime/scheduler/engine.hpp"
#include "runtime/scheduler/group_context.hpp"

namespace tutti {
namespace {

// Failed polls between two checks whether the awaited peer is still there.
constexpr std::uint32_t kFailedPollsPerCheck = 4096;

}  // namespace

void ScratchMemory::reserve(std::size_t bytes) {
  if (bytes <= bytes_) return;
  release();
  data_ = static_cast<std::byte*>(::operator new (bytes, std::align_val_t{64}));
  bytes_ = bytes;
}

void ScratchMemory::release() {
  if (data_ != nullptr) ::operator delete (data_, std::align_val_t{64});
  data_ = nullptr;
  bytes_ = 0;
}

Status Operation::bind(GroupContext& group, const Prepared& prepared, const Call& call, const OperationId& id,
                       std::uint32_t slot, SlotNeeds* needs) {
  group_ = &group;
  messages_.plan = prepared.messages;
  messages_.wire = prepared.wire;
  blocks_.resolved = prepared.lowered.get();
  blocks_.is_used = blocks_.resolved != nullptr;
  queued_.is_referenced = queued_.is_unmatched = false;
  call_ = call;
  element_bytes_ = element_bytes(call);
  sequence_ = id.sequence;
  word_ = id.word;
  queued_.slot = slot;
  kernel_ = prepared.kernel;
  trace_.choice = prepared.choice;
  trace_.submitted = SteadyClock::now();
  recorded_.row = prepared.row;
  recorded_.bytes = prepared.vector_bytes;
  input_ = const_cast<std::byte*>(
      static_cast<const std::byte*>(call.input));  // never written: no step writes to the input
  output_ = static_cast<std::byte*>(call_.output);
  messages_.user = UserStep::none;
  queued_.next_in_slot = nullptr;
  stalls_.first = {};
  status_ = {};
  is_complete_.store(false, std::memory_order_relaxed);
  messages_.is_dirty = blocks_.is_run_started = false;
  blocks_.resumed_step = nullptr;
  blocks_.failed_polls = 0;
  messages_.remaining = 1;
  if (messages_.plan != nullptr) {
    TUTTI_RETURN_IF_ERROR(bind_counts());
    const Schedule& shape = messages_.plan->shape;
    needs->channels = messages_.plan->channels.size();
    needs->steps = messages_.plan->steps.size();
    needs->ranges = messages_.plan->range_count;
    needs->scratch_bytes =
        shape.scratch_slots * messages_.slot_bytes + prescaled_count(shape) * element_bytes_;
    if (shape.has_wire_copies) needs->scratch_bytes = place_wire_copies(needs->scratch_bytes);
  }
  if (blocks_.is_used) {
    blocks_.control_blocks = &blocks_.resolved->control_blocks();
    const Schedule& shape = blocks_.resolved->shape();
    if (is_prescaled(call_)) {
      bind_whole(shape);
      needs->scratch_bytes = std::max(needs->scratch_bytes, prescaled_count(shape) * element_bytes_);
    }
    if (blocks_.resolved->is_announced()) needs->peers = group.size();
  }
  return {};
}

void Operation::enter(SlotFrame& frame) {
  frame_ = &frame;
  trace_.entered = SteadyClock::now();
  begin_record();
  if (!blocks_.is_used) enter_messages();
}

std::uint64_t Operation::prescaled_count(const Schedule& shape) const {
  if (!is_prescaled(call_)) return 0;
  return window(shape, Buffer::input).count > 0 ? map_.extent(Buffer::input) : 0;
}

void Operation::prescale(std::byte* to, std::uint64_t count) {
  scale_elements(to, input_, count);
  input_ = to;
}

void Operation::scale_elements(std::byte* to, const std::byte* from, std::uint64_t count) {
  const std::size_t bytes = count * element_bytes_;
  run_in_parts(engine_.helpers(), bytes, bytes, [&](std::size_t first, std::size_t length) {
    scale(call_.op, static_cast<int>(group_->size()), call_.dtype, to + first, from + first,
          length / element_bytes_);
  });
}

bool Operation::advance(std::uint32_t polls) {
  if (blocks_.is_used) return advance_lowered(polls);
  const bool has_moved = advance_messages();
  // Until something has come it waits for ranks that are late.
  if (!recorded_.has_heard && messages_.remaining > 0 && status_)
    recorded_.times.block(first_awaited_sender(), true);
  return has_moved;
}

bool Operation::start_lowered() {
  if (!group_->link(*blocks_.control_blocks)) return false;
  if (blocks_.control_blocks->state() == ControlBlocks::State::refused) {
    // Some rank has no memory for a control block: messages carry the operation, on every rank.
    blocks_.is_used = false;
    if (const Status status = bind_counts(); !status) fail(status);
    enter_messages();
    return true;
  }
  const Schedule& shape = blocks_.resolved->shape();
  const LoweredBuffers buffers = lowered_buffers(call_, shape);
  input_ = buffers.input;
  output_ = buffers.output;
  if (is_prescaled(call_)) {
    bind_whole(shape);
    if (const std::uint64_t count = prescaled_count(shape); count > 0)
      prescale(frame_->scratch.data(), count);
  }
  LoweredRun::Work& work = frame_->run.work();
  work.call = &call_;
  work.kernel = kernel_;
  work.buffers = {input_, output_};
  work.digest = word_;
  work.slot = GroupContext::control_slot(queued_.slot);
  work.wanting = &engine_.lock().wanting();
  work.recorded = &recorded_.times;
  work.helpers = engine_.helpers();
  if (blocks_.resumed_step == nullptr) {
    frame_->run.start(*blocks_.resolved);
  } else {
    frame_->run.resume(*blocks_.resolved, blocks_.resumed_step);
  }
  if (engine_.wait_policy().watches_cpus) blocks_.control_blocks->tell_cpu();
  blocks_.is_run_started = true;
  return true;
}

bool Operation::should_check_peer() {
  if (++blocks_.failed_polls < kFailedPollsPerCheck) return false;
  blocks_.failed_polls = 0;
  return true;
}

bool Operation::advance_lowered(std::uint32_t polls) {
  if (!blocks_.is_run_started) {
    if (!start_lowered()) {
      const std::uint32_t awaited = blocks_.control_blocks->awaited_rank();
      recorded_.times.block(awaited, true);
      if (should_check_peer() && blocks_.control_blocks->is_awaited_lost()) fail_gone(awaited);
      return false;
    }
    if (!blocks_.is_used) return advance_messages();
  }
  LoweredRun& run = frame_->run;
  switch (run.advance(polls)) {
    case LoweredRun::Progress::complete:
      messages_.remaining = 0;
      return true;
    case LoweredRun::Progress::mismatch:
      fail_mismatch(run.peer());
      return true;
    case LoweredRun::Progress::revoked:
      fail_gone(run.peer());
      return true;
    case LoweredRun::Progress::blocked:
      break;
  }
  if (run.has_moved()) {
    blocks_.failed_polls = 0;
    recorded_.times.go_on();
    return true;
  }
  recorded_.times.block(run.peer(), run.is_peer_late());
  engine_.note_blocked(*blocks_.control_blocks, run.peer());
  // The signals that it gave before it went are visible then.
  if (should_check_peer() && blocks_.control_blocks->is_gone(run.peer()) && !run.has_news())
    fail_gone(run.peer());
  return false;
}

bool Operation::has_news() const {
  if (!blocks_.is_used) return messages_.is_dirty && messages_.user == UserStep::none;
  return blocks_.is_run_started ? frame_->run.has_news()
                                : blocks_.control_blocks->state() != ControlBlocks::State::exchanging;
}

void Operation::bind_whole(const Schedule& shape) {
  map_.reset(shape);
  if (has_rank_blocks(shape.collective)) {
    map_.bind_equal(call_.count);
  } else {
    map_.bind_vector(call_.count);
  }
}

// Which call the peer has made is in no digest: ranks find it out by comparing their histories.
void Operation::fail_mismatch(std::uint32_t peer) {
  group_->fail(
      Status(StatusCode::mismatch,
             fmt::format("ranks of one group made different calls: rank {} called {} as operation {}, "
                         "rank {} another one, or others before it",
                         group_->rank(), describe_call(call_), sequence_, peer),
             static_cast<int>(peer)));
}

void Operation::fail_mismatch(std::uint32_t peer, const Event& message) {
  if (call_.collective != Collective::send_recv) return fail_mismatch(peer);
  group_->fail(
      Status(StatusCode::mismatch,
             fmt::format("ranks of one group made different calls: rank {} called {}, number {} of the pair, "
                         "rank {} called {}",
                         group_->rank(), describe_call(call_), sequence_, peer,
                         describe_message(message.match_header, message.bytes)),
             static_cast<int>(peer)));
}

void Operation::fail_gone(std::uint32_t peer) {
  group_->fail(group_->cause_of_loss(peer, describe_call(call_)));
}

void Operation::fail(const Status& status) {
  if (status_) status_ = status;
  messages_.is_dirty = true;
}

// avg divides the sum where it has been left.
void Operation::scale_result() {
  const Schedule& shape = blocks_.is_used ? blocks_.resolved->shape() : messages_.plan->shape;
  if (!has_result(call_.collective, shape.rank, shape.root)) return;
  if (blocks_.is_used) bind_whole(shape);
  const Window held = window(shape, Buffer::output);
  const bool is_own_block_only = call_.collective == Collective::reduce_scatter;
  for (std::uint32_t atom = held.first; atom < held.first + held.count; ++atom) {
    if (is_own_block_only && atom / shape.segments != shape.rank) continue;
    const Range range = map_.range(Buffer::output, atom);
    std::byte* const at = output_ + range.first * element_bytes_;
    scale_elements(at, at, range.count);
  }
}

void Operation::complete() {
  if (status_ && is_reducing(call_.collective) && scales_after(call_.op.op)) scale_result();
  if (messages_.plan != nullptr) messages_.plan.reset();
  if (blocks_.kept != nullptr) blocks_.kept.reset();
  frame_ = nullptr;
  recorded_.times.end(!status_.is_ok(), recorded_.bytes);
  if (Trace* const trace = engine_.trace(); trace != nullptr) record(*trace);
  is_complete_.store(true, std::memory_order_release);
  if (callback_.function) engine_.note_callback(*this);
}

void Operation::record(Trace& trace) const {
  Trace::Span span = group_->span_of(call_, sequence_, trace_.choice);
  span.submitted = trace_.submitted;
  span.started = trace_.entered;
  span.status = status_.code();
  trace.add(span);
}

std::uint32_t Operation::first_awaited_rank() const {
  if (!blocks_.is_used) return first_awaited_sender();
  return blocks_.is_run_started ? frame_->run.peer() : blocks_.control_blocks->awaited_rank();
}

bool Operation::test() {
  if (is_complete()) return true;
  engine_.take_turn();
  return is_complete();
}

Status Operation::wait(Clock::time_point deadline) {
  if (!is_complete() && !engine_.wait_for(*this, deadline)) {
    engine_.lock().acquire();
    const std::string what = describe();
    int peer = Status::kNoPeer;
    if (!is_complete() && first_awaited_rank() != group_->rank())
      peer = static_cast<int>(first_awaited_rank());
    engine_.lock().release();
    return Status(StatusCode::timeout, what + " is not complete yet", peer);
  }
  return status_;
}

void Operation::when_complete(CompletionCallback callback) {
  engine_.lock().acquire();
  // While an earlier one is being called, this one waits for its turn.
  if (is_complete() && !callback_.is_due) {
    engine_.lock().release();
    call_back(callback, status_);
    return;
  }
  if (callback_.function) {
    callback_.function = [first = std::move(callback_.function),
                          then = std::move(callback)](const Status& status) {
      first(status);
      then(status);
    };
  } else {
    callback_.function = std::move(callback);
    engine_.expect_callback();
  }
  engine_.lock().release();
  engine_.call_progress_threads();
}

CompletionCallback Operation::take_callback() {
  callback_.is_due = true;
  return std::exchange(callback_.function, nullptr);
}

std::string Operation::describe() const {
  return queued_.is_unmatched ? group_->messenger().describe(*this) : describe_call(call_);
}

int Operation::source() const {
  if (!is_complete()) return -1;  // the lock's holder may be writing to the call
  const bool is_receive = call_.collective == Collective::send_recv && !call_.is_send;
  return is_receive ? static_cast<int>(call_.root) : -1;
}

Status Operation::status() const { return is_complete() ? status_ : Status{}; }

void Operation::recycle() { engine_.pool().give_back(*this); }

}  // namespace tutti
