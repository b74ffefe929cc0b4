// Exposing, finding, waking and closing of a window; see window.hpp.
#include "transports/memory/window.hpp"

#include <algorithm>
#include <cstring>
#include <new>
#include <tuple>
#include <utility>

namespace tutti::memory {

static_assert(std::tuple_size_v<decltype(WindowBlock::ranges)> == SharedWindow::kRanges);
static_assert(kControlBytes == SharedWindow::kMostNoticeBytes);

void MemoryWindow::add_peer(std::shared_ptr<Peer> peer, const Nonce& nonce) {
  sides_.push_back(peer == nullptr ? nullptr : std::make_unique<Side>(host_, std::move(peer), nonce));
}

Status MemoryWindow::announce() {
  Instance& instance = host_->instance();
  Result<std::uint64_t> place = instance.allocate_link(sizeof(WindowBlock));
  if (!place) return place.status();
  block_place_ = *place;
  block_ = new (instance.at<std::byte>(*place)) WindowBlock();
  Result<DirectoryEntry*> entry = instance.announce(instance.nonce(), context_, *place);
  if (!entry) return entry.status();
  entry_ = *entry;
  is_closed_ = false;
  return {};
}

void MemoryWindow::expose(std::uint32_t number, const SegmentRange& range) {
  TUTTI_ASSERT(number < kRanges, "a window has no range of that number");
  if (is_closed_) return;
  WindowBlock::Range& to = block_->ranges[number];
  to.segment = range.segment;
  to.offset = range.offset;
  to.bytes = range.bytes;
  to.is_exposed.store(1, std::memory_order_release);
  wake_all();  // they may wait for it
}

// Finds the peer's block once it has opened its side.
bool MemoryWindow::find(Side& side) {
  if (side.block != nullptr) return true;
  const std::byte* const block =
      side.memory.find_announced(side.nonce, context_, sizeof(WindowBlock), &side.found);
  if (block == nullptr) return false;
  side.block = reinterpret_cast<const WindowBlock*>(block);
  if (side.memory.page()->needs_fence.load(std::memory_order_relaxed) != 0) worker_->uses_fence = true;
  if (side.block->has_notice.load(std::memory_order_acquire) != 0)
    worker_->notices_seen -= 1;  // look once more
  wake(side);                    // what was exposed so far could not
  return true;
}

std::optional<SegmentRange> MemoryWindow::query(std::uint32_t peer, std::uint32_t number) {
  Side& side = *sides_[peer];
  if (!find(side)) return {};
  const WindowBlock::Range& from = side.block->ranges[number];
  if (from.is_exposed.load(std::memory_order_acquire) == 0) return {};
  return SegmentRange{from.segment, from.offset, from.bytes};
}

ByteRange MemoryWindow::segment(std::uint32_t peer, std::uint32_t number) {
  return sides_[peer]->memory.segment(number);
}

PeerBell MemoryWindow::bell(std::uint32_t peer) {
  InstancePage* const page = sides_[peer]->memory.page();
  if (page == nullptr) return {};
  return {&page->wake.is_sleeping, page->needs_fence.load(std::memory_order_relaxed) != 0};
}

void MemoryWindow::wake(std::uint32_t peer) {
  if (InstancePage* const page = sides_[peer]->memory.page()) host_->wake(page);
}

// If it sleeps. The order between what was published and this load is the sleeper's business, unless it cannot.
void MemoryWindow::wake(Side& side) {
  InstancePage* const page = side.memory.page();
  if (page == nullptr) return;
  std::atomic<std::uint32_t>& sleeps = page->wake.is_sleeping;
  const std::uint32_t is_sleeping = worker_->uses_fence ? sleeps.fetch_add(0, std::memory_order_acq_rel)
                                                        : sleeps.load(std::memory_order_relaxed);
  if (is_sleeping != 0) host_->wake(page);
}

void MemoryWindow::wake_all() {
  for (const std::unique_ptr<Side>& side : sides_) {
    if (side != nullptr) wake(*side);
  }
}

bool MemoryWindow::is_gone(std::uint32_t peer) {
  if (is_closed_) return true;
  Side& side = *sides_[peer];
  side.memory.check();
  static_cast<void>(find(side));
  if (!side.memory.has_ended() && !side.found.is_closed()) return false;
  return side.block == nullptr || side.has_read_notice ||
         side.block->has_notice.load(std::memory_order_acquire) == 0;
}

Status MemoryWindow::trouble(std::uint32_t peer) const { return sides_[peer]->memory.peer().trouble(); }

void MemoryWindow::notify(ConstByteRange bytes) {
  TUTTI_ASSERT(bytes.size() <= kMostNoticeBytes, "notices have at most 256 bytes");
  if (is_closed_ || block_->has_notice.load(std::memory_order_relaxed) != 0) return;
  std::memcpy(block_->notice.data(), bytes.data(), bytes.size());
  block_->notice_bytes = static_cast<std::uint32_t>(bytes.size());
  block_->has_notice.store(1, std::memory_order_release);
  for (const std::unique_ptr<Side>& side : sides_) {
    InstancePage* const page = side == nullptr ? nullptr : side->memory.page();
    if (page != nullptr) page->wake.notice_count.fetch_add(1, std::memory_order_release);
  }
  wake_all();
}

void MemoryWindow::poll_notices(EventSink& out) {
  for (const std::unique_ptr<Side>& side : sides_) {
    if (side == nullptr || side->has_read_notice || !find(*side)) continue;
    if (side->block->has_notice.load(std::memory_order_acquire) == 0) continue;
    if (!out.has_room()) return;
    side->has_read_notice = true;
    Event event;
    event.kind = Event::Kind::control;
    event.window = this;
    event.bytes = std::min<std::size_t>(side->block->notice_bytes, kMostNoticeBytes);
    event.data = worker_->keep_control({side->block->notice.data(), event.bytes});
    out.push(event);
  }
}

void MemoryWindow::close() {
  if (is_closed_) return;
  is_closed_ = true;
  host_->forget(this);
  if (!host_->is_own_process()) return;
  Instance::set_closing(*entry_);
  wake_all();
  RetiredEntry retired;
  retired.context = context_;
  retired.entry = entry_;
  for (const std::unique_ptr<Side>& side : sides_) {
    if (side != nullptr) retired.sides.push_back({side->memory.shared_peer(), side->nonce, side->found});
  }
  retired.blocks.push_back(block_place_);
  host_->retire(std::move(retired));
}

}  // namespace tutti::memory
