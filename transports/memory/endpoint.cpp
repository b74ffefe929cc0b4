// Opening, linking, notifying and closing of a memory endpoint. Knows no protocol of messages: see send.cpp,
// receive.cpp and read.cpp.
#include "transports/memory/endpoint.hpp"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <new>
#include <utility>

#include "runtime/base/running_clock.hpp"

namespace tutti::memory {

namespace {

// How long close() waits for a peer in another process that is in the middle of reading a piece. Such a peer
// checks again after each piece, so giving up here is safe: it reads memory that nobody uses.
constexpr std::chrono::milliseconds kLongestReader{500};

}  // namespace

MemoryEndpoint::~MemoryEndpoint() {
  close(false);
  for (std::size_t i = 0; i < worker_->waiting.count(); ++i) {
    if (worker_->waiting[i].endpoint == this) worker_->waiting[i].endpoint = nullptr;
  }
}

Status MemoryEndpoint::announce() {
  Instance& instance = host_->instance();
  Result<std::uint64_t> place = instance.allocate_link(sizeof(LinkBlock));
  if (!place) return place.status();
  block_place_ = *place;
  block_ = new (instance.at<std::byte>(*place)) LinkBlock();
  if (memory_.peer().access() == Peer::Access::none) block_->cannot_read.store(1, std::memory_order_relaxed);
  Result<DirectoryEntry*> entry = instance.announce(peer_nonce_, context_, *place);
  if (!entry) {
    is_closed_ = true;
    return entry.status();
  }
  entry_ = *entry;
  join_siblings();
  return {};
}

// Finds the peer's block once the peer has opened its side.
bool MemoryEndpoint::try_link() {
  if (peer_block_ != nullptr) return true;
  if (peer_page_ == nullptr) {
    peer_page_ = memory_.page();
    if (peer_page_ == nullptr) return false;
    peer_wake_ = &peer_page_->wake;
  }
  std::byte* const block = memory_.find_announced(host_->instance().nonce(), context_, sizeof(LinkBlock),
                                                  &peer_link_, &seen_version_);
  if (block == nullptr) return false;
  peer_block_ = reinterpret_cast<LinkBlock*>(block);
  if (peer_page_->needs_fence.load(std::memory_order_relaxed) != 0) worker_->uses_fence = true;
  if (owes_control_) {
    owes_control_ = false;
    peer_wake_->control_count.fetch_add(1, std::memory_order_release);
  }
  notify(false);  // what was sent so far could not wake anybody
  return true;
}

// Loads with acquire: everything that the peer published before it closed is visible afterwards.
bool MemoryEndpoint::is_peer_closed() const { return memory_.has_ended() || peer_link_.is_closed(); }

// Wakes the peer if it sleeps. An ordinary message pays one load of a line that hardly ever changes;
// the order between our publishing and this load is the sleeper's business (membarrier), unless it cannot.
void MemoryEndpoint::notify(bool is_ack) {
  if (peer_wake_ == nullptr) return;
  const std::uint32_t is_sleeping = worker_->uses_fence
                                        ? peer_wake_->is_sleeping.fetch_add(0, std::memory_order_acq_rel)
                                        : peer_wake_->is_sleeping.load(std::memory_order_relaxed);
  if (is_sleeping == 0) return;
  if (is_ack && peer_block_ != nullptr && peer_block_->wants_acks.load(std::memory_order_relaxed) == 0)
    return;
  host_->wake(peer_page_);
}

void MemoryEndpoint::activate() {
  if (is_active) return;
  is_active = true;
  worker_->active.push_back(this);
}

void MemoryEndpoint::set_pending_send(Channel& c) {
  pending_sends_ |= std::uint64_t{1} << c.index;
  block_->wants_acks.store(1, std::memory_order_relaxed);
  activate();
}

bool MemoryEndpoint::has_pending() const {
  return (pending_sends_ | pending_recvs_) != 0 || owes_control_ || expects_control_;
}

Post MemoryEndpoint::post_failed(RequestId request) {
  Event event;
  event.kind = Event::Kind::failed;
  event.request = request;
  event.endpoint = this;
  worker_->waiting.push_back(event);
  return Post::pending;
}

bool MemoryEndpoint::progress(EventSink& out) {
  const bool was_closed = is_peer_closed();  // before looking at the data
  bool has_moved = false;
  const bool is_linked = try_link();
  if (is_linked && expects_control_) {
    expects_control_ = false;
    worker_->control_seen -= 1;  // poll once more
  }
  if (is_linked) {
    for (std::uint64_t bits = pending_recvs_; bits != 0; bits &= bits - 1) {
      has_moved |= progress_recvs(*channels_[__builtin_ctzll(bits)], out);
    }
  }
  for (std::uint64_t bits = pending_sends_; bits != 0; bits &= bits - 1) {
    has_moved |= progress_sends(*channels_[__builtin_ctzll(bits)], out);
  }
  if (was_closed && !has_moved && has_pending()) {
    poll_control(out);  // why it has closed
    fail(out);
  }
  return has_pending();
}

bool MemoryEndpoint::has_news() {
  if (is_peer_closed()) return has_pending();
  if (!try_link()) return false;
  if (expects_control_ || owes_control_) return true;
  for (std::uint64_t bits = pending_recvs_; bits != 0; bits &= bits - 1) {
    if (has_recv_news(*channels_[__builtin_ctzll(bits)])) return true;
  }
  for (std::uint64_t bits = pending_sends_; bits != 0; bits &= bits - 1) {
    if (has_send_news(*channels_[__builtin_ctzll(bits)])) return true;
  }
  return false;
}

void MemoryEndpoint::fail(EventSink& out) {
  is_failed_ = true;
  auto complete = [&](RequestId request) {
    Event event;
    event.kind = Event::Kind::failed;
    event.request = request;
    event.endpoint = this;
    out.push(event);
  };
  for (std::unique_ptr<Channel>& c : channels_) {
    if (!c) continue;
    for (; !c->recvs.empty(); c->recvs.pop_front()) complete(c->recvs.front().request);
    for (; !c->reads.empty(); c->reads.pop_front()) complete(c->reads.front().request);
    for (; !c->sends.empty(); c->sends.pop_front()) complete(c->sends.front().request);
    c->arrival = {};
  }
  pending_sends_ = 0;
  pending_recvs_ = 0;
  owes_control_ = false;
  expects_control_ = false;
}

// Afterwards no peer reads a buffer of ours.
void MemoryEndpoint::stop_readers() {
  block_->is_revoked.store(1, std::memory_order_seq_cst);
  if (peer_block_ == nullptr) return;
  const auto until = Clock::now() + kLongestReader;
  for (const std::unique_ptr<Channel>& c : channels_) {
    if (!c || c->reads.empty()) continue;
    // The reader stores is_reading and then loads is_revoked, both sequentially consistent: either we see
    // that it reads, or it sees that it may not.
    while (peer_block_->receivers[c->index].is_reading.load(std::memory_order_seq_cst) != 0) {
      if (memory_.peer().is_other_process() && (Clock::now() > until || memory_.peer().is_gone())) return;
      ::sched_yield();
    }
  }
}

void MemoryEndpoint::close(bool /*fence*/) {
  // Completed sends lie in link memory, which outlives the endpoint until the peer has closed, too: so
  // `fence` makes no difference.
  if (is_closed_) return;
  is_closed_ = true;
  leave_siblings();
  host_->forget(this);
  if (!host_->is_own_process()) return;
  stop_readers();
  EventSink later({}, &worker_->waiting);
  fail(later);
  Instance::set_closing(*entry_);
  notify(false);
  RetiredEntry retired;
  retired.context = context_;
  retired.entry = entry_;
  retired.sides.push_back({memory_.shared_peer(), host_->instance().nonce(), peer_link_});
  retired.blocks = take_blocks();
  host_->retire(std::move(retired));
}

}  // namespace tutti::memory
