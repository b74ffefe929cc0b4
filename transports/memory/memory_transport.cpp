// Progress and sleeping of the memory transports. Knows no protocol of a message; see endpoint.hpp.
#include "transports/memory/memory_transport.hpp"

#include <linux/futex.h>
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <deque>
#include <optional>
#include <utility>

namespace tutti::memory {

namespace {

// Calls between checks for rare events: dead peers, memory of closed endpoints to release.
constexpr std::uint32_t kIdleCallsPerHousekeeping = 16384;

long membarrier(int command) { return ::syscall(SYS_membarrier, command, 0, 0); }

}  // namespace

bool register_membarrier() {
  const long supported = membarrier(MEMBARRIER_CMD_QUERY);
  return supported > 0 && (supported & MEMBARRIER_CMD_GLOBAL_EXPEDITED) != 0 &&
         membarrier(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED) == 0;
}

MemoryOptions sanitize(MemoryOptions options) {
  options.piece_count = std::clamp<std::uint32_t>(options.piece_count, 2, kMaxPieces);
  const std::size_t piece = std::clamp<std::size_t>(options.piece_bytes, 64, std::size_t{1} << 24U);
  options.piece_bytes = piece & ~(kLineBytes - 1);
  constexpr std::size_t kPage = 4096;
  options.staging_bytes = (options.staging_bytes + kPage - 1) & ~(kPage - 1);
  options.heap_segment_bytes = (std::max(options.heap_segment_bytes, kPage) + kPage - 1) & ~(kPage - 1);
  return options;
}

MemoryTransport::MemoryTransport(std::shared_ptr<Instance> instance, const Address& address)
    : instance_(std::move(instance)),
      address_(address),
      pid_(::getpid()),
      has_membarrier_(register_membarrier()) {
  address_.nonce = instance_->nonce();
  if (!has_membarrier_) instance_->page()->needs_fence.store(1, std::memory_order_release);
  caps_.family = Family::memory;
  caps_.channels = kChannels;
  caps_.has_in_place_delivery = true;
  caps_.heap = &instance_->heap();
  worker_.uses_fence = !has_membarrier_;
}

MemoryTransport::~MemoryTransport() {
  TUTTI_ASSERT(worker_.endpoints.empty() && worker_.windows.empty(),
               "endpoints and windows must be destroyed before their transport");
  if (is_own_process()) instance_->page()->is_alive.store(0, std::memory_order_release);
}

std::vector<std::byte> MemoryTransport::address() const { return to_bytes(address_); }

Result<std::uint64_t> MemoryTransport::reach(std::span<const std::byte> mine,
                                             std::span<const std::byte> theirs) const {
  Result<Address> own = parse_address(mine);
  if (!own) return own.status();
  Result<Address> other = parse_address(theirs);
  if (!other) return unsupported("another transport");
  TUTTI_RETURN_IF_ERROR(check_reach(*own, *other));
  return caps_.alpha_ns;
}

Result<Contact> MemoryTransport::meet(std::span<const std::byte> peer_address) {
  Result<Address> theirs = parse_address(peer_address);
  if (!theirs) return theirs.status();
  TUTTI_RETURN_IF_ERROR(check_reach(address_, *theirs));
  Result<std::shared_ptr<Peer>> peer = attach(*theirs);
  if (!peer) return peer.status();
  if ((*peer)->page() == nullptr || !(*peer)->is_told()) service();
  const bool is_told = (*peer)->is_told();
  if ((*peer)->page() != nullptr) return is_told ? Contact::met : Contact::begun;
  TUTTI_RETURN_IF_ERROR((*peer)->trouble());
  if ((*peer)->is_gone()) return Status(StatusCode::peer_failed, "the peer has ended");
  return is_told ? Contact::told : Contact::begun;
}

Result<std::shared_ptr<Peer>> MemoryTransport::find_peer(std::span<const std::byte> address, Nonce* nonce) {
  Result<Address> theirs = parse_address(address);
  if (!theirs) return theirs.status();
  TUTTI_RETURN_IF_ERROR(check_reach(address_, *theirs));
  *nonce = theirs->nonce;
  return attach(*theirs);
}

// A program that opens and closes contexts without ever being idle must not run out of link memory.
void MemoryTransport::note_open() {
  constexpr std::uint32_t kOpensPerHousekeeping = 64;
  if (++worker_.open_count % kOpensPerHousekeeping == 0) housekeep();
}

Result<std::unique_ptr<Endpoint>> MemoryTransport::open(std::span<const std::byte> peer_address,
                                                        std::uint64_t context) {
  Nonce nonce;
  Result<std::shared_ptr<Peer>> peer = find_peer(peer_address, &nonce);
  if (!peer) return peer.status();
  if (!worker_.bounce_buffer) worker_.bounce_buffer = std::make_unique_for_overwrite<Worker::Bounce>();
  note_open();
  auto endpoint =
      std::make_unique<MemoryEndpoint>(static_cast<Host*>(this), &worker_, std::move(*peer), context, nonce);
  TUTTI_RETURN_IF_ERROR(endpoint->announce());
  worker_.endpoints.push_back(endpoint.get());
  worker_.active.reserve(worker_.endpoints.capacity());  // endpoints become active on the data path
  return std::unique_ptr<Endpoint>(std::move(endpoint));
}

// The list of an open window with these members, if it is among those that were used last; else a new one.
Result<std::shared_ptr<WindowPeers>> MemoryTransport::find_peers(std::span<const ConstByteRange> addresses) {
  constexpr std::size_t kRemembered = 16;
  std::vector<std::optional<Nonce>> nonces;  // none: this rank
  for (const ConstByteRange address : addresses) {
    nonces.emplace_back();
    if (address.empty()) continue;
    Result<Address> parsed = parse_address(address);
    if (!parsed) return parsed.status();
    nonces.back() = parsed->nonce;
  }
  const auto is_of_that_nonce = [](const std::unique_ptr<WindowPeer>& peer,
                                   const std::optional<Nonce>& nonce) {
    return peer == nullptr ? !nonce : nonce == peer->nonce;
  };
  std::deque<std::weak_ptr<WindowPeers>>& lists = worker_.peer_lists;
  std::erase_if(lists, [](const std::weak_ptr<WindowPeers>& list) { return list.expired(); });
  for (auto list = lists.begin(); list != lists.end(); ++list) {
    std::shared_ptr<WindowPeers> found = list->lock();
    if (!std::ranges::equal(*found, nonces, is_of_that_nonce)) continue;
    std::rotate(lists.begin(), list, list + 1);
    for (const std::unique_ptr<WindowPeer>& peer : *found)
      if (peer != nullptr) peer->memory.expect_news();
    return found;
  }
  auto made = std::make_shared<WindowPeers>();
  for (const ConstByteRange address : addresses) {
    made->emplace_back();
    if (address.empty()) continue;
    Nonce nonce;
    Result<std::shared_ptr<Peer>> peer = find_peer(address, &nonce);
    if (!peer) return peer.status();
    made->back() = std::make_unique<WindowPeer>(
        WindowPeer{PeerMemory(static_cast<Host*>(this), *std::move(peer)), nonce});
  }
  lists.push_front(made);
  if (lists.size() > kRemembered) lists.pop_back();
  return made;
}

Result<std::unique_ptr<SharedWindow>> MemoryTransport::open_window(std::span<const ConstByteRange> addresses,
                                                                   std::uint64_t context) {
  Result<std::shared_ptr<WindowPeers>> peers = find_peers(addresses);
  if (!peers) return peers.status();
  auto window =
      std::make_unique<MemoryWindow>(static_cast<Host*>(this), &worker_, context, *std::move(peers));
  note_open();
  TUTTI_RETURN_IF_ERROR(window->announce());
  worker_.windows.push_back(window.get());
  return std::unique_ptr<SharedWindow>(std::move(window));
}

// Peers announce this by counts in this rank's page.
void MemoryTransport::poll_peers(EventSink& out) {
  WakeLine& wake = instance_->page()->wake;
  const std::uint32_t control_count = wake.control_count.load(std::memory_order_acquire);
  if (control_count != worker_.control_seen && out.has_room()) {
    worker_.control_seen = control_count;
    for (MemoryEndpoint* endpoint : worker_.endpoints) endpoint->poll_control(out);
    if (!out.has_room()) --worker_.control_seen;  // there may be more
  }
  const std::uint32_t notice_count = wake.notice_count.load(std::memory_order_acquire);
  if (notice_count != worker_.notices_seen && out.has_room()) {
    worker_.notices_seen = notice_count;
    for (MemoryWindow* window : worker_.windows) window->poll_notices(out);
    if (!out.has_room()) --worker_.notices_seen;
  }
}

std::size_t MemoryTransport::progress(std::span<Event> events) {
  WakeLine& wake = instance_->page()->wake;
  if (worker_.is_armed) {
    worker_.is_armed = false;
    wake.is_sleeping.store(0, std::memory_order_relaxed);
  }
  worker_.control_bytes_count = 0;
  EventSink out(events, &worker_.waiting);
  poll_peers(out);
  // Each once, unless there is no room for more events: then the next call goes on here.
  for (std::size_t left = worker_.active.size(); left != 0 && out.can_push(); --left) {
    if (worker_.next_active >= worker_.active.size()) worker_.next_active = 0;
    MemoryEndpoint*& endpoint = worker_.active[worker_.next_active];
    if (endpoint->progress(out)) {
      ++worker_.next_active;
      continue;
    }
    endpoint->is_active = false;
    endpoint = worker_.active.back();
    worker_.active.pop_back();
  }
  if (out.count() == 0 && ++worker_.idle_count % kIdleCallsPerHousekeeping == 0) housekeep();
  return out.count();
}

void MemoryTransport::housekeep() {
  service();
  for (MemoryEndpoint* endpoint : worker_.active) endpoint->check_peer();
  const std::lock_guard lock(retired_mutex_);
  for (std::size_t i = 0; i < retired_.size();) {
    if (!is_over(retired_[i])) {
      ++i;
      continue;
    }
    release(retired_[i]);
    std::swap(retired_[i], retired_.back());
    retired_.pop_back();
  }
}

bool MemoryTransport::is_over(RetiredEntry::Side& side, std::uint64_t context) const {
  if (side.found.is_closed() || side.peer->is_gone()) return true;
  InstancePage* page = side.peer->page();
  if (page == nullptr) return false;
  if (page->is_alive.load(std::memory_order_acquire) == 0) return true;
  if (side.found.entry == nullptr) {
    bool is_sure = true;
    side.found = find_block(
        *page, side.nonce, context,
        [&](std::uint64_t place, std::size_t bytes) {
          return place_in(side.peer->segment(segment_of(place)), place, bytes);
        },
        &is_sure);
  }
  return side.found.is_closed();
}

// Does no peer read a closed entry's memory any more?
bool MemoryTransport::is_over(RetiredEntry& retired) const {
  while (!retired.sides.empty() && is_over(retired.sides.back(), retired.context)) retired.sides.pop_back();
  return retired.sides.empty();
}

void MemoryTransport::release(const RetiredEntry& retired) {
  instance_->remove(*retired.entry);
  for (const std::uint64_t block : retired.blocks) instance_->release_link(block);
}

void MemoryTransport::retire(RetiredEntry&& retired) {
  if (is_over(retired)) {
    release(retired);
    return;
  }
  const std::lock_guard lock(retired_mutex_);
  retired_.push_back(std::move(retired));
}

void MemoryTransport::forget(MemoryEndpoint* endpoint) {
  for (std::vector<MemoryEndpoint*>* list : {&worker_.endpoints, &worker_.active}) {
    std::erase(*list, endpoint);
  }
}

void MemoryTransport::forget(MemoryWindow* window) { std::erase(worker_.windows, window); }

bool MemoryTransport::is_own_process() const { return ::getpid() == pid_; }

Waitable MemoryTransport::waitable() const {
  Waitable waitable;
  // An atomic word of 32 bits has the representation of one; the kernel reads it atomically.
  waitable.futex_word = reinterpret_cast<const std::uint32_t*>(&instance_->page()->bell);
  return waitable;
}

ArmResult MemoryTransport::arm() {
  WakeLine& wake = instance_->page()->wake;
  worker_.is_armed = true;
  // With the exchange a fenced sender either sees the flag or has published before the poll below.
  wake.is_sleeping.exchange(1, std::memory_order_acq_rel);
  if (has_membarrier_) membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED);
  ArmResult result;
  result.futex_value = instance_->page()->bell.load(std::memory_order_acquire);
  constexpr std::uint32_t kArmsPerHousekeeping = 4;  // it makes a system call per waiting peer
  if (++worker_.arm_count % kArmsPerHousekeeping == 0) housekeep();
  bool has_news = !worker_.waiting.empty() ||
                  wake.control_count.load(std::memory_order_acquire) != worker_.control_seen ||
                  wake.notice_count.load(std::memory_order_acquire) != worker_.notices_seen;
  for (std::size_t i = 0; i < worker_.active.size() && !has_news; ++i)
    has_news = worker_.active[i]->has_news();
  result.is_armed = !has_news;
  if (has_news) {
    worker_.is_armed = false;
    wake.is_sleeping.store(0, std::memory_order_relaxed);
  }
  return result;
}

void MemoryTransport::wake(InstancePage* page) {
  page->bell.fetch_add(1, std::memory_order_release);
  // Not the private form: the word may be mapped by several processes.
  ::syscall(SYS_futex, &page->bell, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace tutti::memory
