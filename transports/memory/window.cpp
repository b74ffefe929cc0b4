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
bool MemoryWindow::find(std::uint32_t peer) {
  Side& side = sides_[peer];
  if (side.block != nullptr) return true;
  Found found;
  const std::byte* const block =
      memory(peer).find_announced((*peers_)[peer]->nonce, context_, sizeof(WindowBlock), &found, &side.state);
  if (block == nullptr) return false;
  side = {reinterpret_cast<const WindowBlock*>(block), found.entry, found.state};
  if (memory(peer).page()->needs_fence.load(std::memory_order_relaxed) != 0) worker_->uses_fence = true;
  if (side.block->has_notice.load(std::memory_order_acquire) != 0)
    worker_->notices_seen -= 1;  // look once more
  wake_if_asleep(peer);          // what was exposed so far could not
  return true;
}

std::optional<SegmentRange> MemoryWindow::query(std::uint32_t peer, std::uint32_t number) {
  if (!find(peer)) return {};
  const WindowBlock::Range& from = sides_[peer].block->ranges[number];
  if (from.is_exposed.load(std::memory_order_acquire) == 0) return {};
  return SegmentRange{from.segment, from.offset, from.bytes};
}

ByteRange MemoryWindow::segment(std::uint32_t peer, std::uint32_t number) {
  return memory(peer).segment(number);
}

PeerBell MemoryWindow::bell(std::uint32_t peer) {
  InstancePage* const page = memory(peer).page();
  if (page == nullptr) return {};
  return {&page->wake.is_sleeping, page->needs_fence.load(std::memory_order_relaxed) != 0};
}

void MemoryWindow::wake(std::uint32_t peer) {
  if (InstancePage* const page = memory(peer).page()) host_->wake(page);
}

// If it sleeps. The order between what was published and this load is the sleeper's business, unless it cannot.
void MemoryWindow::wake_if_asleep(std::uint32_t peer) {
  InstancePage* const page = memory(peer).page();
  if (page == nullptr) return;
  std::atomic<std::uint32_t>& sleeps = page->wake.is_sleeping;
  const std::uint32_t is_sleeping = worker_->uses_fence ? sleeps.fetch_add(0, std::memory_order_acq_rel)
                                                        : sleeps.load(std::memory_order_relaxed);
  if (is_sleeping != 0) host_->wake(page);
}

void MemoryWindow::wake_all() {
  for (std::uint32_t r = 0; r < size(); ++r) {
    if (!is_self(r)) wake_if_asleep(r);
  }
}

bool MemoryWindow::is_gone(std::uint32_t peer) {
  if (is_closed_) return true;
  memory(peer).check();
  static_cast<void>(find(peer));
  const Side& side = sides_[peer];
  const bool has_ended = memory(peer).has_died() || memory(peer).peer().is_cut_off() || side.is_closed();
  if (!has_ended) return false;
  return side.block == nullptr || has_read_notice(peer) ||
         side.block->has_notice.load(std::memory_order_acquire) == 0;
}

Status MemoryWindow::trouble(std::uint32_t peer) const { return memory(peer).peer().trouble(); }

void MemoryWindow::notify(ConstByteRange bytes) {
  TUTTI_ASSERT(bytes.size() <= kMostNoticeBytes, "notices have at most 256 bytes");
  if (is_closed_ || block_->has_notice.load(std::memory_order_relaxed) != 0) return;
  std::memcpy(block_->notice.data(), bytes.data(), bytes.size());
  block_->notice_bytes = static_cast<std::uint32_t>(bytes.size());
  block_->has_notice.store(1, std::memory_order_release);
  for (std::uint32_t r = 0; r < size(); ++r) {
    InstancePage* const page = is_self(r) ? nullptr : memory(r).page();
    if (page != nullptr) page->wake.notice_count.fetch_add(1, std::memory_order_release);
  }
  wake_all();
}

void MemoryWindow::poll_notices(EventSink& out) {
  for (std::uint32_t r = 0; r < size(); ++r) {
    if (is_self(r) || has_read_notice(r) || !find(r)) continue;
    const WindowBlock& block = *sides_[r].block;
    if (block.has_notice.load(std::memory_order_acquire) == 0) continue;
    if (!out.has_room()) return;
    notices_read_.resize(size());
    notices_read_[r] = true;
    Event event;
    event.kind = Event::Kind::control;
    event.window = this;
    event.bytes = std::min<std::size_t>(block.notice_bytes, kMostNoticeBytes);
    event.data = worker_->keep_control({block.notice.data(), event.bytes});
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
  retired.sides.reserve(size());
  for (std::uint32_t r = 0; r < size(); ++r) {
    if (is_self(r)) continue;
    const Side& side = sides_[r];
    retired.sides.push_back({memory(r).shared_peer(),
                             (*peers_)[r]->nonce,
                             {side.entry, side.entry == nullptr ? 0 : side.state, 0}});
  }
  retired.blocks.push_back(block_place_);
  host_->retire(std::move(retired));
}

}  // namespace tutti::memory
