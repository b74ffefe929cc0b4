// Making, finding and leaving control blocks. Knows no schedule and no call.
#include "runtime/scheduler/control_block.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>
#include <utility>

#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime/base/running_clock.hpp"

namespace tutti {
namespace {

// A peer that touches our memory is in the middle of one step; if it takes longer than this it was stopped.
constexpr std::chrono::seconds kLongestTouch{10};

// Has the kernel provide the pages now. Epochs that take their places in turn would otherwise meet page after
// page that nobody has touched, in hundreds of calls. False where it cannot, or is older than 5.14: they do.
bool make_present(std::byte* memory, std::size_t size_bytes) {
#ifdef MADV_POPULATE_WRITE
  const auto page_bytes = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<std::uintptr_t>(memory);
  const std::uintptr_t first = begin / page_bytes * page_bytes;
  return ::madvise(reinterpret_cast<void*>(first), begin + size_bytes - first, MADV_POPULATE_WRITE) == 0;
#else
  static_cast<void>(memory);
  static_cast<void>(size_bytes);
  return false;
#endif
}

}  // namespace

void ControlBlocks::make(SharedHeap* heap, SharedWindow& window, std::uint32_t number) {
  state_ = State::exchanging;
  heap_ = heap;
  window_ = &window;
  number_ = number;
  base_.resize(size());
  places_.resize(size());
  slots_.resize(shape_.slots);
  SharedHeap::Location place;
  Result<ByteRange> memory = heap->allocate(shape_.total_bytes());
  if (memory && heap->locate(memory->data(), memory->size(), &place)) {
    own_ = *memory;
    base_[rank_] = own_.data();
    // Into the caches as well, while nobody reads yet.
    if (shape_.rotates_offset && make_present(own_.data(), own_.size()))
      std::memset(own_.data(), 0, own_.size());
    places_[rank_] = {place.segment, place.offset, own_.size()};
  }
  window.expose(number, places_[rank_]);
}

ControlBlocks::State ControlBlocks::link() {
  if (state_ != State::exchanging || !find_all()) return state_;
  const auto has_none = [](const SegmentRange& place) { return place.bytes == 0; };
  if (std::any_of(places_.begin(), places_.end(), has_none)) return state_ = State::refused;
  if (map_all()) {
    state_ = State::linked;
    std::vector<SegmentRange>().swap(places_);
  }
  return state_;
}

bool ControlBlocks::find_all() {
  for (; known_count_ < size(); ++known_count_) {
    if (known_count_ == rank_) continue;
    const std::optional<SegmentRange> place = window_->query(known_count_, number_);
    if (!place) return false;
    places_[known_count_] = *place;
  }
  return true;
}

bool ControlBlocks::map_all() {
  for (; mapped_count_ < size(); ++mapped_count_) {
    if (mapped_count_ != rank_ && !attach(mapped_count_)) return false;
  }
  return true;
}

bool ControlBlocks::is_awaited_lost() {
  const std::uint32_t peer = awaited_rank();
  if (state_ != State::exchanging || peer == rank_) return false;
  if (!window_->is_gone(peer)) return !window_->trouble(peer);
  // Whatever it exposed before it went is visible now.
  return peer == known_count_ ? !window_->query(peer, number_)
                              : window_->segment(peer, places_[peer].segment).empty();
}

bool ControlBlocks::attach(std::uint32_t peer) {
  const SegmentRange& place = places_[peer];
  const ByteRange memory = window_->segment(peer, place.segment);
  const PeerBell bell = window_->bell(peer);
  if (memory.empty() || bell.is_sleeping == nullptr) return false;
  if (place.bytes != shape_.total_bytes() || place.offset > memory.size() ||
      place.bytes > memory.size() - place.offset) {
    state_ = State::refused;  // not what a rank of this build would say
    return false;
  }
  needs_fence_ = needs_fence_ || bell.needs_fence;
  base_[peer] = memory.data() + place.offset;
  if (shape_.rotates_offset) make_present(base_[peer], place.bytes);
  return true;
}

std::uint32_t ControlBlocks::tell_cpu() {
  const auto cpu = static_cast<std::uint32_t>(::sched_getcpu() + 1);
  std::atomic<std::uint32_t>& told = head(rank_).cpu;
  if (told.load(std::memory_order_relaxed) != cpu) told.store(cpu, std::memory_order_relaxed);
  return cpu;
}

bool ControlBlocks::have_signaled_on(std::uint32_t cpu, const Area& area, std::uint32_t line,
                                     std::uint64_t epoch) const {
  for (std::uint32_t r = 0; r < size(); ++r) {
    if (r == rank_ || head(r).cpu.load(std::memory_order_relaxed) != cpu) continue;
    if (lines_at(r, area)[line].sequence.load(std::memory_order_relaxed) != epoch) return false;
  }
  return true;
}

void ControlBlocks::ring_bells() {
  for (std::uint32_t r = 0; r < size(); ++r) {
    if (r == rank_) continue;
    const PeerBell bell = window_->bell(r);
    const std::uint32_t is_sleeping = bell.needs_fence
                                          ? bell.is_sleeping->fetch_add(0, std::memory_order_acq_rel)
                                          : bell.is_sleeping->load(std::memory_order_relaxed);
    if (is_sleeping != 0) window_->wake(r);
  }
}

bool ControlBlocks::count_sleeper(bool is_sleeping) {
  if (state_ != State::linked || is_counted_ == is_sleeping) return false;
  is_counted_ = is_sleeping;
  if (is_sleeping) {
    head(0).sleepers.fetch_add(1, std::memory_order_acq_rel);
  } else {
    head(0).sleepers.fetch_sub(1, std::memory_order_relaxed);
  }
  return true;
}

std::byte* ControlBlocks::map(std::uint32_t peer, const SegmentRange& place) {
  if (segments_.empty()) segments_.resize(size());
  std::vector<ByteRange>& known = segments_[peer];
  if (place.segment >= known.size()) known.resize(place.segment + std::size_t{1});
  ByteRange& segment = known[place.segment];
  if (segment.empty()) segment = window_->segment(peer, place.segment);
  if (place.offset > segment.size() || place.bytes > segment.size() - place.offset) return nullptr;
  return segment.data() + place.offset;
}

bool ControlBlocks::is_gone(std::uint32_t peer) const { return window_->is_gone(peer); }

void ControlBlocks::revoke() {
  if (state_ != State::linked) return;
  head(rank_).is_revoked.store(1, std::memory_order_seq_cst);
  const auto until = Clock::now() + kLongestTouch;
  for (std::uint32_t r = 0; r < size(); ++r) {
    // A peer stores is_touching and then loads is_revoked, both sequentially consistent: either we see
    // that it touches, or it sees that it may not.
    while (r != rank_ && head(r).is_touching.load(std::memory_order_seq_cst) != 0) {
      if (is_gone(r) || Clock::now() > until) break;
      ::sched_yield();
    }
  }
}

bool ControlBlocks::leave(RetiredBlock* retired) {
  count_sleeper(false);
  for (std::uint32_t r = 0; r < base_.size(); ++r) {
    if (r != rank_ && base_[r] != nullptr) head(r).left.fetch_add(1, std::memory_order_release);
  }
  // Whoever leaves in order has nothing to revoke: peers may still be at work on each other's buffers. And
  // the heads of peers are not to be read from here on.
  const bool is_refused = std::exchange(state_, State::absent) == State::refused;
  if (own_.empty()) return false;
  if (is_refused) {  // nobody ever reads it
    heap_->release(own_);
    own_ = {};
    return false;
  }
  *retired = {heap_, own_, size() - 1};
  own_ = {};
  return true;
}

}  // namespace tutti
