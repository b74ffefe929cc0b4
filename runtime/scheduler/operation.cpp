// Operations: binding a call, moving it on, failure, completion and reuse.
#include "runtime/scheduler/operation.hpp"

#include <cstdlib>
#include <new>

#include <fmt/format.h>

#include "runtime/base/trace.hpp"
#include "runtime/kernels/kernels.hpp"
#include "runtime/scheduler/engine.hpp"
#include "runtime/scheduler/group_context.hpp"

namespace tutti {
namespace {

// Between two looks whether the peer that is waited for is still there.
constexpr std::uint32_t kBlockedPollsPerLook = 4096;

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
  plan_ = prepared.messages;
  lowered_ = prepared.lowered.get();
  is_lowered_ = lowered_ != nullptr;
  is_exchange_ = is_referenced_ = is_unmatched_ = false;
  call_ = call;
  element_bytes_ = element_bytes(call);
  sequence_ = id.sequence;
  word_ = id.word;
  slot_ = slot;
  kernel_ = prepared.kernel;
  choice_ = prepared.choice;
  if (engine_->trace() != nullptr) submitted_ = SteadyClock::now();
  input_ = const_cast<std::byte*>(
      static_cast<const std::byte*>(call.input));  // never written: no step writes to the input
  output_ = static_cast<std::byte*>(call_.output);
  has_user_step_ = false;
  next_in_slot_ = nullptr;
  first_stalled_ = {};
  status_ = {};
  is_complete_.store(false, std::memory_order_relaxed);
  is_dirty_ = is_run_started_ = false;
  resumed_step_ = nullptr;
  blocked_polls_ = 0;
  remaining_ = 1;
  if (plan_ != nullptr) {
    TUTTI_RETURN_IF_ERROR(bind_counts());
    const Schedule& shape = plan_->shape;
    needs->channels = plan_->channels.size();
    needs->steps = plan_->steps.size();
    needs->ranges = plan_->range_count;
    needs->scratch_bytes = shape.scratch_slots * slot_bytes_ + prescaled_count(shape) * element_bytes_;
  }
  if (is_lowered_) {
    control_blocks_ = &group.control_blocks(prepared.is_bulk);
    const Schedule& shape = lowered_->shape();
    if (is_prescaled(call_)) {
      bind_whole(shape);
      needs->scratch_bytes = std::max(needs->scratch_bytes, prescaled_count(shape) * element_bytes_);
    }
    needs->control_blocks = group.size();
  }
  return {};
}

void Operation::enter(SlotFrame& frame) {
  frame_ = &frame;
  if (engine_->trace() != nullptr) entered_ = SteadyClock::now();
  if (!is_lowered_) enter_messages();
}

std::uint64_t Operation::prescaled_count(const Schedule& shape) const {
  if (!is_prescaled(call_)) return 0;
  return window(shape, Buffer::input).count > 0 ? map_.extent(Buffer::input) : 0;
}

void Operation::prescale(std::byte* to, std::uint64_t count) {
  scale(call_.op, static_cast<int>(group_->size()), call_.dtype, to, input_, count);
  input_ = to;
}

void Operation::serve(ControlBlocks& control_blocks, const Call& shown) {
  is_exchange_ = true;
  control_blocks_ = &control_blocks;
  shown_call_ = shown;
  shown_call_.counts = shown_call_.displacements = {};
}

bool Operation::advance(std::uint32_t polls) {
  return is_lowered_ ? advance_lowered(polls) : advance_messages();
}

bool Operation::start_lowered() {
  if (!group_->link(*control_blocks_)) return false;
  if (control_blocks_->state() == ControlBlocks::State::refused) {
    // Some rank has no memory for a control block: messages carry the operation, on every rank.
    is_lowered_ = false;
    if (const Status status = bind_counts(); !status) fail(status);
    enter_messages();
    return true;
  }
  const Schedule& shape = lowered_->shape();
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
  work.slot = GroupContext::control_slot(slot_);
  work.wanting = &engine_->wanting_;
  if (resumed_step_ == nullptr) {
    frame_->run.start(*lowered_);
  } else {
    frame_->run.resume(*lowered_, resumed_step_);
  }
  if (engine_->options_.waiting.watches_cpus) control_blocks_->tell_cpu();
  is_run_started_ = true;
  return true;
}

bool Operation::advance_lowered(std::uint32_t polls) {
  if (!is_run_started_) {
    if (!start_lowered()) return false;
    if (!is_lowered_) return advance_messages();
  }
  LoweredRun& run = frame_->run;
  switch (run.advance(polls)) {
    case LoweredRun::Progress::complete:
      remaining_ = 0;
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
    blocked_polls_ = 0;
    return true;
  }
  engine_->note_blocked(*control_blocks_, run.peer());
  if (++blocked_polls_ >= kBlockedPollsPerLook) {
    blocked_polls_ = 0;
    // What it published before it went is visible now.
    if (control_blocks_->is_gone(run.peer()) && !run.has_news()) fail_gone(run.peer());
  }
  return false;
}

bool Operation::has_news() const {
  if (!is_lowered_) return is_dirty_ && !has_user_step_;
  return is_run_started_ ? frame_->run.has_news()
                         : control_blocks_->state() != ControlBlocks::State::exchanging;
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
                         group_->rank(), describe_call(shown_call()), sequence_, peer),
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
  group_->fail(group_->cause_of_loss(peer, describe_call(shown_call())));
}

void Operation::fail(const Status& status) {
  if (status_) status_ = status;
  is_dirty_ = true;
}

void Operation::complete() {
  if (status_ && is_reducing(call_.collective) && scales_after(call_.op.op)) {
    const Schedule& shape = is_lowered_ ? lowered_->shape() : plan_->shape;
    if (is_lowered_) bind_whole(shape);
    const Window held = window(shape, Buffer::output);
    const bool is_held = has_result(call_.collective, shape.rank, shape.root);
    const bool is_own_block_only = call_.collective == Collective::reduce_scatter;
    for (std::uint32_t i = 0; i < held.count && is_held; ++i) {
      const std::uint32_t atom = held.first + i;
      if (is_own_block_only && atom / shape.segments != shape.rank) continue;
      const Range range = map_.range(Buffer::output, atom);
      std::byte* at = output_ + range.first * element_bytes_;
      scale(call_.op, static_cast<int>(shape.size), call_.dtype, at, at, range.count);
    }
  }
  if (is_exchange_ && status_) control_blocks_->finish_exchange();
  if (plan_ != nullptr) plan_.reset();
  if (kept_lowered_ != nullptr) kept_lowered_.reset();
  frame_ = nullptr;
  if (Trace* const trace = engine_->trace(); trace != nullptr && !is_exchange_) record(*trace);
  is_complete_.store(true, std::memory_order_release);
  if (callback_) engine_->note_callback(*this);
}

void Operation::record(Trace& trace) const {
  Trace::Span span = group_->span_of(call_, sequence_, choice_);
  span.submitted = submitted_;
  span.started = entered_;
  span.status = status_.code();
  trace.add(span);
}

std::uint32_t Operation::first_awaited_rank() const {
  if (!is_lowered_) return first_awaited_sender();
  return is_run_started_ ? frame_->run.peer() : control_blocks_->first_unknown();
}

bool Operation::test() {
  if (is_complete()) return true;
  engine_->take_turn();
  return is_complete();
}

Status Operation::wait(Clock::time_point deadline) {
  if (!is_complete() && !engine_->wait_for(*this, deadline)) {
    engine_->acquire();
    const std::string what = describe();
    int peer = Status::kNoPeer;
    if (!is_complete() && first_awaited_rank() != group_->rank())
      peer = static_cast<int>(first_awaited_rank());
    engine_->release();
    return Status(StatusCode::timeout, what + " is not complete yet", peer);
  }
  return status_;
}

void Operation::when_complete(CompletionCallback callback) {
  engine_->acquire();
  // While an earlier one is being called, this one waits for its turn.
  if (is_complete() && !is_callback_due_) {
    engine_->release();
    call_back(callback, status_);
    return;
  }
  if (callback_) {
    callback_ = [first = std::move(callback_), then = std::move(callback)](const Status& status) {
      first(status);
      then(status);
    };
  } else {
    callback_ = std::move(callback);
    engine_->owed_callbacks_.fetch_add(1, std::memory_order_relaxed);
  }
  engine_->release();
  engine_->call_workers();
}

std::string Operation::describe() const {
  return is_unmatched_ ? group_->messenger().describe(*this) : describe_call(shown_call());
}

int Operation::source() const {
  if (!is_complete()) return -1;  // the lane may be writing to the call
  const bool is_receive = call_.collective == Collective::send_recv && !call_.is_send;
  return is_receive ? static_cast<int>(call_.root) : -1;
}

Status Operation::status() const { return is_complete() ? status_ : Status{}; }

void Operation::recycle() { engine_->give_back(*this); }

}  // namespace tutti
