// Groups as the scheduler sees them: submission, slots, endpoints, failure.
#include "runtime/scheduler/group_context.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <sched.h>

#include "runtime/record/rank_file.hpp"
#include "runtime/scheduler/abort_notice.hpp"

namespace tutti {
namespace {

// How long a rank that ends waits for threads that hold the progress lock.
constexpr std::chrono::seconds kLeaveTime{1};

// A message to or from a peer, as a schedule of one step. The catalogue has no rows for it: there is nothing
// to choose.
Schedule message_schedule(std::uint32_t rank, std::uint32_t size, std::uint32_t peer, bool is_send) {
  Schedule schedule;
  schedule.collective = Collective::send_recv;
  schedule.rank = rank;
  schedule.size = size;
  Step step;
  step.verb = is_send ? Verb::send : Verb::recv;
  step.peer = peer;
  if (is_send) {
    const Slice source{Buffer::input, 0, 1, 1, 0, kSelf};
    schedule.append(step, {&source, 1}, {});
  } else {
    step.dst = {Buffer::output, 0, 1, 1, 0, kSelf};
    schedule.append(step, {}, {});
  }
  return schedule;
}

}  // namespace

GroupContext::GroupContext(Engine& engine, Options options)
    : engine_(engine),
      options_(std::move(options)),
      record_(make_record()),
      submitted_(*record_),
      messenger_(*this),
      distances_(size()),
      control_blocks_{
          ControlBlocks(options_.shape(BlockKind::tiny), options_.staging, options_.rank, size()),
          ControlBlocks(options_.shape(BlockKind::small), options_.staging, options_.rank, size()),
          ControlBlocks(options_.shape(BlockKind::bulk), options_.staging, options_.rank, size())} {
  // Memory is shared where one transport with a heap reaches everybody.
  const Transport* common = nullptr;
  bool is_common = size() > 1 && options_.uses_control_blocks;
  for (std::uint32_t r = 0; r < size(); ++r) {
    if (r == options_.rank) continue;
    if (common == nullptr) common = peer(r).transport;
    is_common = is_common && common == peer(r).transport;
  }
  if (is_common && common != nullptr) heap_ = common->caps().heap;
  find_counters();
  engine_.add_group(*this);
}

GroupContext::~GroupContext() {
  engine_.lock().acquire();
  deliver_and_fail(Status(StatusCode::aborted, "the group was destroyed while operations were under way"));
  engine_.lock().release();
  for (bool is_done = false; !is_done;) {
    engine_.drive();
    engine_.lock().acquire();
    is_done = !has_operations();
    if (is_done) {
      RetiredBlock retired;
      engine_.count_awake();
      for (ControlBlocks& control_blocks : control_blocks_) {
        if (control_blocks.leave(&retired)) engine_.retire(retired);
      }
      messenger_.leave();
      // Endpoints are used with the lock held, to their end.
      close_endpoints();
      for (auto& by_peer : endpoints_) by_peer.clear();
      window_.reset();
      engine_.remove_group(*this);
    }
    engine_.lock().release();
    if (!is_done) ::sched_yield();  // another thread runs a user's function for one of them
  }
}

bool GroupContext::has_operations() const {
  const auto has_any = [](const auto& slots) {
    return std::any_of(slots.begin(), slots.end(), [](const Slot& slot) { return slot.head != nullptr; });
  };
  return messenger_.has_operations() || has_any(slots_) ||
         std::any_of(pairs_.begin(), pairs_.end(),
                     [&](const auto& pair) { return pair != nullptr && has_any(pair->slots); });
}

// Of a group that has failed already, nothing is delivered.
void GroupContext::deliver_and_fail(const Status& why) {
  const bool had_failed = has_failed();
  set_failure(why, false);
  if (had_failed) return;
  // A peer may still be at work on control blocks of operations that have ended here, but not on our buffers.
  if (has_operations()) revoke_control_blocks();
  may_send_notice_ = false;
  close_connections(true);
}

bool GroupContext::leave(const Status& why) {
  if (!engine_.lock().acquire_before(Clock::now() + kLeaveTime)) return false;
  deliver_and_fail(why);
  engine_.lock().release();
  engine_.drive();  // the failed operations complete
  return true;
}

Result<WorkRef> GroupContext::submit(const Prepared& prepared, const Call& call, Completion completion) {
  // Submissions hold the progress lock, so whoever gets it at once is alone.
  if (!engine_.lock().acquire_unless(is_submitting_)) {
    return invalid_argument(
        "two threads submit to one stream of a group at the same time; give each thread a stream of its own "
        "(stream)");
  }
  set_submitting(true);
  Result<WorkRef> result = submit_exclusively(prepared, call, completion);
  set_submitting(false);
  engine_.lock().release();
  // A user's function may itself submit to this group.
  if (call.op.op == Op::user && result) engine_.drive();
  if (completion == Completion::asynchronous && result && !(*result)->is_complete()) leave_to_others();
  return result;
}

void GroupContext::leave_to_others() {
  engine_.take_turn();
  engine_.call_progress_threads();
}

void GroupContext::place(std::shared_ptr<const LoweredPlans> plans, BlockKind kind, const Call& call,
                         Prepared* prepared) {
  prepared->kind = kind;
  prepared->slots = {0, kSlots - 1};
  if (plans == nullptr) {
    prepared->lowered = nullptr;
    return;
  }
  if (kind == BlockKind::bulk) {
    prepared->slots = {kBulkSlot, 0};
  } else if (prepared->vector_bytes > kMostInTurnBytes && waits_for_all(call.collective)) {
    prepared->slots = {0, 0};
  }
  // Operations let go of it with the lock held.
  engine_.lock().acquire();
  std::shared_ptr<ResolvedCall>& resolved = prepared->lowered;
  if (resolved.use_count() != 1) resolved = std::make_shared<ResolvedCall>(options_.lowered_limits);
  resolved->reset(std::move(plans), control_blocks_[static_cast<std::size_t>(kind)], call,
                  prepared->vector_bytes);
  engine_.lock().release();
}

Result<WorkRef> GroupContext::submit_exclusively(const Prepared& prepared, const Call& call,
                                                 Completion completion) {
  if (has_failed()) return failure();
  if (call.collective == Collective::send_recv) return submit_message(call, message_kind(prepared.contract));
  const std::uint32_t sequence = next_sequence_.load(std::memory_order_relaxed);
  const std::uint32_t slot = prepared.slots.of(sequence);
  const OperationId id{sequence, submitted_.digest_with(prepared.contract)};
  Operation* operation = engine_.pool().take();
  // A call that is refused takes no number: the other ranks, told the same, count on in step.
  SlotNeeds needs;
  if (Status refused = operation->bind(*this, prepared, call, id, slot, &needs); !refused) {
    engine_.pool().take_back(*operation);
    return refused;
  }
  // Before anything of it goes out: whoever gets that may ask what it is.
  remember(sequence, id.word, prepared.contract, {record::Phase::queued, false, prepared.row});
  if (prepared.lowered != nullptr &&
      shown_control_blocks(prepared.kind).state() == ControlBlocks::State::absent) {
    if (Status failed = make_control_blocks(prepared.kind); !failed) {
      engine_.pool().take_back(*operation);
      return failed;
    }
  }
  reserve_frames(slot, needs);
  enqueue(slots_[slot], *operation);
  if (operation->is_complete() && completion == Completion::blocking) {
    // Nobody else has seen it.
    Status status = operation->take_status();
    engine_.pool().take_back(*operation);
    if (!status) return status;
    return WorkRef();
  }
  return hand_out(*operation, prepared);
}

Result<WorkRef> GroupContext::submit_message(const Call& call, std::uint32_t kind) {
  if (messenger_.must_match(call)) return messenger_.submit(call, kind);
  Operation* const operation = engine_.pool().take();
  start_message(*operation, call, kind, false);
  return hand_out(*operation, {});
}

void GroupContext::start_message(Operation& operation, const Call& call, std::uint32_t kind,
                                 bool is_referenced) {
  const std::uint32_t slot = message_slot(call.root, call.is_send, call.tag != 0);
  Prepared prepared;
  prepared.messages = message_plan(slot, call.root, call.is_send);
  prepared.vector_bytes = call.count * element_bytes(call);
  prepared.row = row_of(call.collective, prepared.vector_bytes, {}, false);
  const std::uint32_t number = pair(slot).next_number[number_in_pair(slot)]++;
  SlotNeeds needs;
  // A message has no counts that could be refused.
  static_cast<void>(
      operation.bind(*this, prepared, call, {number, make_message_word(number, kind)}, slot, &needs));
  operation.queued().is_referenced = is_referenced;
  reserve_frames(slot, needs);
  enqueue(this->slot(slot), operation);
}

GroupContext::Pair& GroupContext::pair(std::uint32_t message_slot) {
  if (pairs_.empty()) pairs_.resize(size());
  std::unique_ptr<Pair>& made = pairs_[peer_of(message_slot)];
  if (made == nullptr) made = std::make_unique<Pair>();
  return *made;
}

bool GroupContext::has_message_in(std::uint32_t slot) const {
  if (pairs_.empty() || pairs_[peer_of(slot)] == nullptr) return false;
  return pairs_[peer_of(slot)]->slots[number_in_pair(slot)].head != nullptr;
}

const std::shared_ptr<const Plan>& GroupContext::message_plan(std::uint32_t slot, std::uint32_t peer,
                                                              bool is_send) {
  std::shared_ptr<const Plan>& plan = pair(slot).plans[number_in_pair(slot)];
  if (plan == nullptr) {
    auto made = compile(message_schedule(rank(), size(), peer, is_send));
    TUTTI_ASSERT(made.status().is_ok(), "a schedule of one step compiles");
    plan = std::make_shared<const Plan>(*std::move(made));
  }
  return plan;
}

WorkRef GroupContext::hand_out(Operation& operation, const Prepared& prepared) {
  const bool is_under_way = !operation.is_complete();
  // One reference is the group's, until on_complete.
  operation.set_references(is_under_way ? 2 : 1, is_under_way);
  if (is_under_way) operation.keep(prepared.lowered);
  return WorkRef::adopt(&operation);
}

WorkRef GroupContext::resume(const Prepared& prepared, const Call& call, const OperationId& id,
                             std::uint32_t slot, const ResolvedStep* step, SteadyClock::time_point begun) {
  Operation* const operation = engine_.pool().take();
  SlotNeeds needs;
  // Lowered operations have no counts that could be refused.
  static_cast<void>(operation->bind(*this, prepared, call, id, slot, &needs));
  reserve_frames(slot, needs);
  operation->continue_from(step, begun);
  enqueue(slots_[slot], *operation);
  return hand_out(*operation, prepared);
}

Trace::Span GroupContext::span_of(const Call& call, std::uint32_t sequence, std::uint32_t choice) const {
  Trace::Span span;
  span.context = context();
  span.rank = rank();
  span.size = size();
  span.sequence = sequence;
  span.choice = choice;
  span.bytes = full_vector_bytes(call, size());
  span.call = call;
  span.call.counts = span.call.displacements = span.call.output_counts = span.call.output_displacements = {};
  span.ended = SteadyClock::now();
  return span;
}

Status GroupContext::make_control_blocks(BlockKind kind) {
  static_assert(kBlockKinds.size() <= SharedWindow::kRanges, "each kind has a range of its own");
  engine_.reap_retired();
  if (window_ == nullptr) {
    std::vector<ConstByteRange> addresses(size());
    for (std::uint32_t r = 0; r < size(); ++r) {
      if (r != rank()) addresses[r] = *peer(r).bytes;
    }
    Transport* const transport = peer(rank() == 0 ? 1 : 0).transport;
    auto opened = transport->open_window(addresses, options_.context);
    if (!opened) {
      fail(opened.status());  // the others would wait for this rank
      return opened.status();
    }
    window_ = *std::move(opened);
  }
  const auto number = static_cast<std::uint32_t>(kind);
  control_blocks_[number].make(heap_, *window_, number);
  return {};
}

bool GroupContext::link(ControlBlocks& control_blocks) {
  if (control_blocks.state() != ControlBlocks::State::exchanging) return true;
  const ControlBlocks::State state = control_blocks.link();
  if (state == ControlBlocks::State::linked)
    control_state_[control_blocks.number()].store(kLinked, std::memory_order_release);
  return state != ControlBlocks::State::exchanging;
}

void GroupContext::enqueue(Slot& slot, Operation& operation) {
  if (slot.head == nullptr) {
    slot.head = slot.tail = &operation;
    // Failures that came before this check will not be reported again.
    if (has_failed()) operation.fail(failure());
    if (!start(slot, operation)) on_complete(operation);
  } else {
    slot.tail->queued().next_in_slot = &operation;
    slot.tail = &operation;
  }
}

void GroupContext::reserve_frames(std::uint32_t slot, const SlotNeeds& needs) {
  if (slot < kSlots && slots_[0].frame != nullptr && collective_needs_.covers(needs)) return;
  if (slot < kSlots) collective_needs_ = collective_needs_.with(needs);
  const auto [first, end] = slots_beside(slot);
  for (std::uint32_t s = first; s < end; ++s) this->slot(s).reserve(needs);
}

void GroupContext::Slot::reserve(const SlotNeeds& needs) {
  // Nobody runs any more in the frame that this was to replace.
  if (head == nullptr && larger_frame != nullptr) frame = std::move(larger_frame);
  if (frame != nullptr && frame->size.covers(needs)) return;
  if (larger_frame != nullptr && larger_frame->size.covers(needs)) return;
  if (frame != nullptr && head == nullptr) return frame->grow(needs);
  // Transports hold addresses in the frame of an operation that runs.
  std::unique_ptr<SlotFrame>& made = frame == nullptr ? frame : larger_frame;
  const SlotNeeds before = made != nullptr ? made->size : frame != nullptr ? frame->size : needs;
  made = std::make_unique<SlotFrame>();
  made->grow(before.with(needs));
}

bool GroupContext::start(Slot& slot, Operation& operation) {
  if (slot.larger_frame != nullptr) slot.frame = std::move(slot.larger_frame);
  operation.enter(*slot.frame);
  return engine_.start(operation);
}

void GroupContext::on_complete(Operation& operation) {
  if (operation.queued().is_unmatched) {
    // It has failed: nothing was posted for it.
    messenger_.forget(operation);
    operation.complete();
    operation.drop_reference();
    return;
  }
  Slot& slot = this->slot(operation.queued().slot);
  // A loop, since after a failure all that queue up complete at once.
  for (Operation* done = &operation; done != nullptr;) {
    Operation* const next = done->queued().next_in_slot;
    slot.head = next;
    if (next == nullptr) slot.tail = nullptr;
    if (has_failed()) {
      close_endpoints();  // no peer touches the buffers once the operation is complete
      done->fail(failure());
    }
    done->complete();
    if (done->queued().is_referenced) done->drop_reference();
    if (next == nullptr) return;
    if (has_failed()) next->fail(failure());
    done = start(slot, *next) ? nullptr : next;
  }
}

Endpoint* GroupContext::endpoint(std::uint32_t slot, std::uint32_t peer, Status* status) {
  const std::uint32_t context_slot = context_of(slot);
  if (endpoints_[context_slot].empty() || endpoints_[context_slot][peer] == nullptr) {
    const auto [first, end] = slots_beside(context_slot);
    for (std::uint32_t s = first; s < end; ++s) {
      endpoints_[s].resize(size());
      const PeerAddress& address = this->peer(peer);
      auto opened = address.transport->open(*address.bytes, options_.context * kContexts + s);
      if (!opened) {
        const Status& why = opened.status();
        *status =
            Status(why.code(), fmt::format("rank {} cannot reach rank {}: {}", rank(), peer, why.message()),
                   static_cast<int>(peer));
        return nullptr;
      }
      endpoints_[s][peer] = *std::move(opened);
    }
  }
  return endpoints_[context_slot][peer].get();
}

Status GroupContext::cause_of_loss(std::uint32_t peer, const std::string& call) const {
  Status trouble = window_ == nullptr ? Status() : window_->trouble(peer);
  for (const auto& by_peer : endpoints_) {
    if (trouble && !by_peer.empty() && by_peer[peer] != nullptr) trouble = by_peer[peer]->trouble();
  }
  if (!trouble)
    return {trouble.code(),
            fmt::format("rank {} cannot reach rank {} during {}: {}", rank(), peer, call, trouble.message()),
            static_cast<int>(peer)};
  return {StatusCode::peer_failed, fmt::format("rank {} is gone during {}", peer, call),
          static_cast<int>(peer)};
}

void GroupContext::revoke_control_blocks() {
  for (ControlBlocks& control_blocks : control_blocks_) control_blocks.revoke();
}

void GroupContext::close_endpoints() {
  send_abort_notice();
  may_send_notice_ = false;
  revoke_control_blocks();
  close_connections(false);
}

void GroupContext::close_connections(bool fence) {
  if (window_ != nullptr) window_->close();
  for (auto& by_peer : endpoints_) {
    for (auto& endpoint : by_peer) {
      if (endpoint != nullptr) endpoint->close(fence);
    }
  }
}

void GroupContext::fail(const Status& cause) {
  if (options_.record != nullptr) options_.record->keep();
  set_failure(cause, true);
}

void GroupContext::set_failure(const Status& cause, bool is_recorded) {
  {
    const std::lock_guard lock(failure_mutex_);
    if (!failure_) return;
    failure_ = cause;
    if (is_recorded) record_->note_failure(cause.message());
  }
  has_failed_.store(true, std::memory_order_release);
  engine_.note_failure();
}

void GroupContext::fail_for_all(const Status& cause) {
  if (options_.record != nullptr) options_.record->keep();
  {
    const std::lock_guard lock(failure_mutex_);
    if (failure_.is_ok() || failure_.code() == StatusCode::peer_failed) {
      failure_ = cause;
      record_->note_failure(cause.message());
    }
    if (unsent_notice_.is_ok()) unsent_notice_ = cause;
  }
  has_failed_.store(true, std::memory_order_release);
  engine_.note_failure();
}

void GroupContext::tell_members() {
  engine_.lock().acquire();
  send_abort_notice();
  engine_.lock().release();
  engine_.drive();  // gets them out, and ends what is under way here
}

void GroupContext::send_abort_notice() {
  if (!may_send_notice_) return;
  Status notice;
  {
    const std::lock_guard lock(failure_mutex_);
    notice = unsent_notice_;
  }
  if (notice.is_ok()) return;
  may_send_notice_ = false;
  const std::vector<std::byte> bytes = encode_abort_notice(notice);
  if (window_ != nullptr) window_->notify(bytes);
  for (auto& by_peer : endpoints_) {
    for (auto& endpoint : by_peer) {
      // Where there is no room the peer finds the end of the connection, and asks why.
      if (endpoint != nullptr) static_cast<void>(endpoint->control(bytes));
    }
  }
}

bool GroupContext::take_abort_notice(const Event& event) {
  const bool is_ours = event.window != nullptr
                           ? event.window == window_.get()
                           : std::any_of(endpoints_.begin(), endpoints_.end(), [&](const auto& by_peer) {
                               return std::any_of(by_peer.begin(), by_peer.end(),
                                                  [&](const auto& at) { return at.get() == event.endpoint; });
                             });
  const std::optional<Status> cause = decode_abort_notice(event.data, size());
  if (is_ours && cause) fail_for_all(*cause);
  return is_ours;
}

Status GroupContext::failure() const {
  const std::lock_guard lock(failure_mutex_);
  return failure_;
}

}  // namespace tutti
