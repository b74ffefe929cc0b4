// First-fit allocation in ranges. Knows nothing of mappings; see arena.hpp.
#include "transports/memory/arena.hpp"

#include <algorithm>
#include <iterator>

namespace tutti::memory {

namespace {

// The place of `offset` in a list that is sorted by offset.
template <class List>
auto position(List& list, std::uint64_t offset) {
  return std::lower_bound(list.begin(), list.end(), offset,
                          [](const auto& stretch, std::uint64_t at) { return stretch.offset < at; });
}

// No range is larger, and sizes up to here can be rounded without overflow.
constexpr std::size_t kLargestBlock = std::size_t{1} << 47U;

Status full() { return {StatusCode::resource_exhausted, "no room is left"}; }

}  // namespace

void Arena::make_room(std::size_t block_count) {
  if (block_count <= used_.capacity()) return;
  used_.reserve(std::max(block_count, 2 * used_.capacity()));
  free_.reserve(used_.capacity() + 1);
}

void Arena::promise(std::size_t block_count) {
  promised_count_ += block_count;
  make_room(used_.size() + promised_count_);
}

void Arena::withdraw(std::size_t block_count) {
  TUTTI_ASSERT(block_count <= promised_count_, "withdrew more blocks than were promised");
  promised_count_ -= block_count;
}

void Arena::add_used(const Stretch& block) {
  used_.insert(position(used_, block.offset), block);
  used_bytes_ += block.bytes;
}

Result<Arena::Fresh*> Arena::find_fresh(std::uint64_t bytes) {
  for (Fresh& fresh : fresh_) {
    if (bytes <= fresh.end - fresh.top) return &fresh;
  }
  if (!grow_) return full();
  const Result<Range> range = grow_(bytes);
  if (!range) return range.status();
  add(*range);
  return &fresh_.back();
}

Result<Arena::Block> Arena::allocate(std::size_t bytes, bool is_promised) {
  TUTTI_ASSERT(!is_promised || promised_count_ != 0, "the block was not promised");
  const std::size_t still_promised = promised_count_ - (is_promised ? 1 : 0);
  if (bytes > kLargestBlock) return full();
  make_room(used_.size() + 1 + still_promised);
  const std::uint64_t rounded = std::max<std::uint64_t>((bytes + 63U) & ~std::uint64_t{63}, 64U);
  const auto fit = std::find_if(free_.begin(), free_.end(),
                                [rounded](const Stretch& stretch) { return stretch.bytes >= rounded; });
  if (fit != free_.end()) {
    const Block block{fit->offset, false};
    fit->offset += rounded;
    fit->bytes -= rounded;
    if (fit->bytes == 0) free_.erase(fit);
    add_used({block.offset, rounded});
    promised_count_ = still_promised;
    return block;
  }
  const Result<Fresh*> found = find_fresh(rounded);
  if (!found) return found.status();
  Fresh& fresh = **found;
  const Block block{fresh.top, true};
  if (block.offset + rounded > fresh.backed) {
    // Back a little more than asked for, so that small blocks do not each cost a system call.
    std::uint64_t until = (block.offset + rounded + kBackGranule - 1) / kBackGranule * kBackGranule;
    until = std::min(until, fresh.end);
    TUTTI_RETURN_IF_ERROR(back_(fresh.backed, until - fresh.backed));
    fresh.backed = until;
  }
  fresh.top += rounded;
  add_used({block.offset, rounded});
  promised_count_ = still_promised;
  return block;
}

std::size_t Arena::release(std::uint64_t offset) {
  const auto found = position(used_, offset);
  TUTTI_ASSERT(found != used_.end() && found->offset == offset, "released a block that was not allocated");
  const std::uint64_t bytes = found->bytes;
  used_.erase(found);
  used_bytes_ -= bytes;
  const auto next = position(free_, offset);
  const bool adjoins_next = next != free_.end() && next->offset == offset + bytes;
  const bool adjoins_previous =
      next != free_.begin() && std::prev(next)->offset + std::prev(next)->bytes == offset;
  if (adjoins_previous) {
    std::prev(next)->bytes += bytes + (adjoins_next ? next->bytes : 0);
    if (adjoins_next) free_.erase(next);
  } else if (adjoins_next) {
    *next = {offset, bytes + next->bytes};
  } else {
    free_.insert(next, {offset, bytes});
  }
  return bytes;
}

}  // namespace tutti::memory
