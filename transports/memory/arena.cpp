// First-fit allocation inside one segment. Knows nothing of mappings; see arena.hpp.
#include "transports/memory/arena.hpp"

#include <algorithm>
#include <iterator>

namespace tutti::memory {

Result<Arena::Block> Arena::allocate(std::size_t bytes) {
  if (bytes > end_) return Status(StatusCode::resource_exhausted, "segment is full");
  const std::uint64_t rounded = std::max<std::uint64_t>((bytes + 63U) & ~std::uint64_t{63}, 64U);
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    if (it->second < rounded) continue;
    const std::uint64_t offset = it->first;
    const std::uint64_t rest = it->second - rounded;
    free_.erase(it);
    if (rest != 0) free_.emplace(offset + rounded, rest);
    used_.emplace(offset, rounded);
    used_bytes_ += rounded;
    return Block{offset, false};
  }
  if (rounded > end_ - top_) return Status(StatusCode::resource_exhausted, "segment is full");
  const std::uint64_t offset = top_;
  if (offset + rounded > backed_) {
    // Back a little more than asked for, so that small blocks do not each cost a system call.
    std::uint64_t until = (offset + rounded + kBackGranule - 1) / kBackGranule * kBackGranule;
    until = std::min(until, end_);
    TUTTI_RETURN_IF_ERROR(back_(backed_, until - backed_));
    backed_ = until;
  }
  top_ += rounded;
  used_.emplace(offset, rounded);
  used_bytes_ += rounded;
  return Block{offset, true};
}

std::size_t Arena::release(std::uint64_t offset) {
  const auto found = used_.find(offset);
  TUTTI_ASSERT(found != used_.end(), "released a block that was not allocated");
  const std::uint64_t bytes = found->second;
  used_.erase(found);
  used_bytes_ -= bytes;
  auto it = free_.emplace(offset, bytes).first;
  if (const auto next = std::next(it); next != free_.end() && it->first + it->second == next->first) {
    it->second += next->second;
    free_.erase(next);
  }
  if (it != free_.begin()) {
    const auto previous = std::prev(it);
    if (previous->first + previous->second == it->first) {
      previous->second += it->second;
      free_.erase(it);
    }
  }
  return bytes;
}

}  // namespace tutti::memory
