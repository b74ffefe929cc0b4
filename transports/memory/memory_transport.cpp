// Lanes, progress and sleeping of the memory transports. Knows no protocol of a message; see endpoint.hpp.
#include "transports/memory/memory_transport.hpp"

#include <linux/futex.h>
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <utility>

namespace tutti::memory {

namespace {

// Between looks at what is rare: dead peers, memory of closed endpoints.
constexpr std::uint32_t kIdleCallsPerHousekeeping = 16384;

long membarrier(int command) { return ::syscall(SYS_membarrier, command, 0, 0); }

// Lets sleepers of other processes order our stores for us. Registration lasts as long as the process.
bool register_membarrier() {
  const long supported = membarrier(MEMBARRIER_CMD_QUERY);
  return supported > 0 && (supported & MEMBARRIER_CMD_GLOBAL_EXPEDITED) != 0 &&
         membarrier(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED) == 0;
}

}  // namespace

MemoryOptions sanitize(MemoryOptions options) {
  options.lanes = std::clamp<std::uint32_t>(options.lanes, 1, kMaxLanes);
  options.piece_count = std::clamp<std::uint32_t>(options.piece_count, 2, kMaxPieces);
  const std::size_t piece = std::clamp<std::size_t>(options.piece_bytes, 64, std::size_t{1} << 24U);
  options.piece_bytes = piece & ~(kLineBytes - 1);
  constexpr std::size_t kPage = 4096;
  options.staging_bytes = (options.staging_bytes + kPage - 1) & ~(kPage - 1);
  options.heap_segment_bytes = (std::max(options.heap_segment_bytes, kPage) + kPage - 1) & ~(kPage - 1);
  return options;
}

MemoryTransport::MemoryTransport(std::shared_ptr<Instance> instance, const Card& card)
    : instance_(std::move(instance)), card_(card), pid_(::getpid()), has_membarrier_(register_membarrier()) {
  card_.nonce = instance_->nonce();
  if (!has_membarrier_) instance_->page()->needs_fence.store(1, std::memory_order_release);
  caps_.family = Family::memory;
  caps_.channels = kChannels;
  caps_.lanes = instance_->options().lanes;
  caps_.has_in_place_delivery = true;
  caps_.has_rma = false;
  caps_.heap = &instance_->heap();
  for (std::uint32_t i = 0; i < caps_.lanes; ++i) {
    lanes_.push_back(std::make_unique<Lane>());
    lanes_.back()->index = i;
    lanes_.back()->uses_fence = !has_membarrier_;
  }
}

MemoryTransport::~MemoryTransport() {
  for (const std::unique_ptr<Lane>& lane : lanes_) {
    TUTTI_ASSERT(lane->endpoints.empty(), "endpoints must be destroyed before their transport");
  }
  if (is_own_process()) instance_->page()->is_alive.store(0, std::memory_order_release);
}

std::vector<std::byte> MemoryTransport::address(std::uint32_t lane) const {
  Card card = card_;
  card.lane = lane;
  return to_bytes(card);
}

Result<std::uint64_t> MemoryTransport::reach(std::span<const std::byte> mine,
                                             std::span<const std::byte> theirs) const {
  Result<Card> own = parse_card(mine);
  if (!own) return own.status();
  Result<Card> other = parse_card(theirs);
  if (!other) return unsupported("another transport");
  TUTTI_RETURN_IF_ERROR(check_reach(*own, *other));
  return caps_.alpha_ns;
}

Result<Contact> MemoryTransport::meet(std::span<const std::byte> peer_address) {
  Result<Card> theirs = parse_card(peer_address);
  if (!theirs) return theirs.status();
  TUTTI_RETURN_IF_ERROR(check_reach(card_, *theirs));
  Result<std::shared_ptr<Peer>> peer = attach(*theirs);
  if (!peer) return peer.status();
  service();
  const bool is_told = (*peer)->is_told();
  if ((*peer)->page() != nullptr) return is_told ? Contact::met : Contact::begun;
  TUTTI_RETURN_IF_ERROR((*peer)->trouble());
  if ((*peer)->is_gone()) return Status(StatusCode::peer_failed, "the peer has ended");
  return is_told ? Contact::told : Contact::begun;
}

Result<std::unique_ptr<Endpoint>> MemoryTransport::open(std::uint32_t lane_index,
                                                        std::span<const std::byte> peer_address,
                                                        std::uint64_t context) {
  if (lane_index >= lanes_.size()) return invalid_argument("no lane " + std::to_string(lane_index));
  Result<Card> theirs = parse_card(peer_address);
  if (!theirs) return theirs.status();
  TUTTI_RETURN_IF_ERROR(check_reach(card_, *theirs));
  Result<std::shared_ptr<Peer>> peer = attach(*theirs);
  if (!peer) return peer.status();
  Lane& lane = *lanes_[lane_index];
  if (!lane.bounce_buffer) lane.bounce_buffer = std::make_unique_for_overwrite<Lane::Bounce>();
  // A program that opens and closes contexts without ever being idle must not run out of link memory.
  constexpr std::uint32_t kOpensPerHousekeeping = 64;
  if (++lane.open_count % kOpensPerHousekeeping == 0) housekeep(lane);
  auto endpoint = std::make_unique<MemoryEndpoint>(static_cast<Host*>(this), &lane, std::move(*peer),
                                                   theirs->lane, context, theirs->nonce);
  TUTTI_RETURN_IF_ERROR(endpoint->announce());
  lane.endpoints.push_back(endpoint.get());
  lane.active.reserve(lane.endpoints.capacity());  // endpoints become active on the data path
  return std::unique_ptr<Endpoint>(std::move(endpoint));
}

Result<std::unique_ptr<Region>> MemoryTransport::expose(ByteRange) {
  return unsupported("memory transports have no rma: peers map the shared heap instead (Endpoint::window)");
}

std::size_t MemoryTransport::progress(std::uint32_t lane_index, std::span<Event> events) {
  Lane& lane = *lanes_[lane_index];
  LaneBell& bell = instance_->page()->lanes[lane_index];
  if (lane.is_armed) {
    lane.is_armed = false;
    bell.is_sleeping.store(0, std::memory_order_relaxed);
  }
  lane.control_bytes_count = 0;
  EventSink out(events, &lane.waiting);
  const std::uint32_t control_count = bell.control_count.load(std::memory_order_acquire);
  if (control_count != lane.control_seen && out.has_room()) {
    lane.control_seen = control_count;
    for (MemoryEndpoint* endpoint : lane.endpoints) endpoint->poll_control(out);
    if (!out.has_room()) --lane.control_seen;  // there may be more
  }
  // Each once, unless there is no room for more events: then the next call goes on here.
  for (std::size_t left = lane.active.size(); left != 0 && out.can_push(); --left) {
    if (lane.next_active >= lane.active.size()) lane.next_active = 0;
    MemoryEndpoint*& endpoint = lane.active[lane.next_active];
    if (endpoint->progress(out)) {
      ++lane.next_active;
      continue;
    }
    endpoint->is_active = false;
    endpoint = lane.active.back();
    lane.active.pop_back();
  }
  if (out.count() == 0 && ++lane.idle_count % kIdleCallsPerHousekeeping == 0) housekeep(lane);
  return out.count();
}

void MemoryTransport::housekeep(Lane& lane) {
  service();
  for (MemoryEndpoint* endpoint : lane.active) endpoint->check_peer();
  const std::lock_guard lock(remains_mutex_);
  for (std::size_t i = 0; i < remains_.size();) {
    if (!is_over(remains_[i])) {
      ++i;
      continue;
    }
    release(remains_[i]);
    std::swap(remains_[i], remains_.back());
    remains_.pop_back();
  }
}

// Whether the peer no longer looks at a closed endpoint's memory.
bool MemoryTransport::is_over(Remains& remains) {
  if (remains.peer->is_gone()) return true;
  InstancePage* page = remains.peer->page();
  if (page == nullptr) return false;
  if (page->is_alive.load(std::memory_order_acquire) == 0) return true;
  if (remains.peer_link.entry == nullptr) {
    remains.peer_link = find_link(*page, instance_->nonce(), remains.context, remains.lanes);
  }
  return remains.peer_link.entry != nullptr &&
         remains.peer_link.entry->state.load(std::memory_order_acquire) != remains.peer_link.state;
}

void MemoryTransport::release(const Remains& remains) {
  instance_->remove(remains.entry);
  for (const std::uint64_t block : remains.blocks) instance_->release_link(block);
}

void MemoryTransport::bury(Remains&& remains) {
  if (is_over(remains)) {
    release(remains);
    return;
  }
  const std::lock_guard lock(remains_mutex_);
  remains_.push_back(std::move(remains));
}

void MemoryTransport::forget(MemoryEndpoint* endpoint) {
  for (const std::unique_ptr<Lane>& lane : lanes_) {
    for (std::vector<MemoryEndpoint*>* list : {&lane->endpoints, &lane->active}) {
      list->erase(std::remove(list->begin(), list->end(), endpoint), list->end());
    }
  }
}

bool MemoryTransport::is_own_process() const { return ::getpid() == pid_; }

Waitable MemoryTransport::waitable(std::uint32_t) const {
  Waitable waitable;
  // An atomic word of 32 bits has the representation of one; the kernel reads it atomically.
  waitable.futex_word = reinterpret_cast<const std::uint32_t*>(&instance_->page()->bell);
  return waitable;
}

ArmResult MemoryTransport::arm(std::uint32_t lane_index) {
  Lane& lane = *lanes_[lane_index];
  LaneBell& bell = instance_->page()->lanes[lane_index];
  lane.is_armed = true;
  // With the exchange a fenced sender either sees the flag or has published before the look below.
  bell.is_sleeping.exchange(1, std::memory_order_acq_rel);
  if (has_membarrier_) membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED);
  ArmResult result;
  result.futex_value = instance_->page()->bell.load(std::memory_order_acquire);
  constexpr std::uint32_t kArmsPerHousekeeping = 4;  // it makes a system call per waiting peer
  if (++lane.arm_count % kArmsPerHousekeeping == 0) housekeep(lane);
  bool has_news =
      !lane.waiting.empty() || bell.control_count.load(std::memory_order_acquire) != lane.control_seen;
  for (std::size_t i = 0; i < lane.active.size() && !has_news; ++i) has_news = lane.active[i]->has_news();
  result.is_armed = !has_news;
  if (has_news) {
    lane.is_armed = false;
    bell.is_sleeping.store(0, std::memory_order_relaxed);
  }
  return result;
}

void MemoryTransport::ring(InstancePage* page) {
  page->bell.fetch_add(1, std::memory_order_release);
  // Not the private form: the word may be mapped by several processes.
  ::syscall(SYS_futex, &page->bell, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace tutti::memory
