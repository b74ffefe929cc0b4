// Groups as the scheduler sees them: submission, slots, endpoints, failure.
#include "runtime/scheduler/group_context.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <sched.h>

#include "runtime/scheduler/fingerprint.hpp"

namespace tutti {

GroupContext::GroupContext(Engine& engine, Options options)
    : engine_(engine),
      options_(std::move(options)),
      slots_(kSlots + 2 * options_.peers.size()),
      pool_(std::make_shared<OperationPool>()) {
  next_message_.assign(slots_.size(), 1);
  endpoints_.resize(kSlots + 1);
  for (auto& by_peer : endpoints_) by_peer.resize(options_.peers.size());
}

GroupContext::~GroupContext() {
  fail(Status(StatusCode::aborted, "the group was destroyed while operations were under way"));
  const auto is_idle = [](const Slot& slot) { return slot.head == nullptr; };
  for (bool is_done = false; !is_done;) {
    engine_.drive();
    engine_.acquire();
    is_done = std::all_of(slots_.begin(), slots_.end(), is_idle);
    if (is_done) {
      // Endpoints belong to the lane to their end.
      close_endpoints();
      endpoints_.clear();
      for (const auto& operation : pool_->all) engine_.forget(operation->id_);
    }
    engine_.release();
    if (!is_done) ::sched_yield();  // another thread runs a user's function for one of them
  }
}

std::uint32_t GroupContext::slot_of(const Call& call, std::uint32_t sequence) const {
  if (call.collective != Collective::send_recv) return sequence % kSlots;
  return kSlots + 2 * call.root + (call.is_send ? 1U : 0U);
}

Result<WorkRef> GroupContext::submit(std::shared_ptr<const Plan> plan, const Call& call) {
  if (is_submitting_.exchange(true, std::memory_order_acquire)) {
    return invalid_argument(
        "two threads submit to one group at the same time; give each thread a group of its own (split)");
  }
  Result<WorkRef> result = submit_exclusively(std::move(plan), call);
  is_submitting_.store(false, std::memory_order_release);
  // A user's function may itself submit to this group.
  if (call.op.op == Op::user && result) engine_.drive();
  return result;
}

Result<WorkRef> GroupContext::submit_exclusively(std::shared_ptr<const Plan> plan, const Call& call) {
  if (has_failed()) return failure();
  Operation* operation = take_operation();
  WorkRef reference(operation);
  const bool is_message = call.collective == Collective::send_recv;
  const std::uint32_t slot = slot_of(call, next_sequence_);
  // A call that is refused takes no number: the other ranks, told the same, count on in step.
  std::uint32_t& next = is_message ? next_message_[slot] : next_sequence_;
  const std::uint32_t sequence = next;
  TUTTI_RETURN_IF_ERROR(operation->bind(*this, std::move(plan), call, sequence, slot));
  ++next;
  if (!is_message)
    submitted_words_[sequence % kRemembered].store(operation->word_, std::memory_order_release);
  operation->retain();  // the group's own reference, until on_complete
  engine_.acquire();
  enqueue(slots_[slot], *operation);
  engine_.release();
  return reference;
}

Operation* GroupContext::take_operation() {
  Operation* operation = nullptr;
  {
    const std::lock_guard lock(pool_->mutex);
    if (!pool_->free.empty()) {
      operation = pool_->free.back();
      pool_->free.pop_back();
    } else {
      pool_->all.push_back(std::make_unique<Operation>());
      pool_->free.reserve(pool_->all.size());
      operation = pool_->all.back().get();
    }
  }
  if (operation->engine_ == nullptr) {
    engine_.acquire();
    operation->id_ = engine_.add(operation);
    engine_.release();
  }
  operation->pool_ = pool_;
  return operation;
}

void GroupContext::enqueue(Slot& slot, Operation& operation) {
  if (slot.head == nullptr) {
    slot.head = slot.tail = &operation;
    // Failures that came before this look will not be reported again.
    if (has_failed()) operation.fail(failure());
    if (!engine_.start(operation)) on_complete(operation);
  } else {
    slot.tail->next_in_slot_ = &operation;
    slot.tail = &operation;
  }
}

void GroupContext::on_complete(Operation& operation) {
  Slot& slot = slots_[operation.slot_];
  // A loop, since after a failure all that queue up complete at once.
  for (Operation* done = &operation; done != nullptr;) {
    Operation* const next = done->next_in_slot_;
    slot.head = next;
    if (next == nullptr) slot.tail = nullptr;
    if (has_failed()) {
      close_endpoints();  // no peer touches the buffers once the operation is complete
      done->fail(failure());
    }
    done->complete();
    done->release();
    if (next == nullptr) return;
    if (has_failed()) next->fail(failure());
    done = engine_.start(*next) ? nullptr : next;
  }
}

Endpoint* GroupContext::endpoint(std::uint32_t slot, std::uint32_t peer, Status* status) {
  const std::uint32_t context_slot = std::min(slot, kSlots);
  if (endpoints_[context_slot][peer] == nullptr) {
    // Those of all collective slots at once: the next calls of a signature use the other slots and must find
    // everything in place.
    const std::uint32_t first = context_slot == kSlots ? kSlots : 0, end = first == 0 ? kSlots : kSlots + 1;
    for (std::uint32_t s = first; s < end; ++s) {
      const PeerAddress& address = options_.peers[peer];
      auto opened = address.transport->open(0, address.address, options_.context * (kSlots + 1) + s);
      if (!opened) {
        *status = opened.status().with_context(fmt::format("rank {} cannot reach rank {}", rank(), peer));
        return nullptr;
      }
      endpoints_[s][peer] = *std::move(opened);
    }
  }
  return endpoints_[context_slot][peer].get();
}

void GroupContext::close_endpoints() {
  for (auto& by_peer : endpoints_) {
    for (auto& endpoint : by_peer) {
      if (endpoint != nullptr) endpoint->close(false);
    }
  }
}

std::uint64_t GroupContext::submitted_word(std::uint32_t sequence) const {
  const std::uint64_t word = submitted_words_[sequence % kRemembered].load(std::memory_order_acquire);
  return word >> 32U == sequence ? word : 0;
}

void GroupContext::fail(const Status& cause) {
  {
    const std::lock_guard lock(failure_mutex_);
    if (!failure_) return;
    failure_ = cause;
  }
  has_failed_.store(true, std::memory_order_release);
  engine_.has_failures_.store(true, std::memory_order_release);
}

Status GroupContext::failure() const {
  const std::lock_guard lock(failure_mutex_);
  return failure_;
}

}  // namespace tutti
