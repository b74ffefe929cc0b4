// Hands out aligned blocks of ranges that are added on demand. Knows numbers only: not how the memory is
// mapped or what lies in it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "runtime/base/status.hpp"

namespace tutti::memory {

// First fit with coalescing over growing ranges. Not thread-safe, never on a data path.
//
// Its books are two sorted lists. Releasing never lengthens them beyond their capacity, nor does allocating a
// block that was promised: memory of this process is taken by promise() and by allocating without one.
class Arena {
 public:
  struct Block {
    std::uint64_t offset = 0;
    bool is_fresh = false;  // never handed out before: still zero
  };
  struct Range {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
  };
  // Makes [offset, offset + bytes) usable, before anybody touches it; an error leaves the arena unchanged.
  using Back = std::function<Status(std::uint64_t offset, std::uint64_t bytes)>;
  // A further range with room for `bytes`. Ranges never adjoin, so no block spans two of them.
  using Grow = std::function<Result<Range>(std::size_t bytes)>;

  Arena() = default;
  // Starts empty.
  Arena(Back back, Grow grow) : back_(std::move(back)), grow_(std::move(grow)) {}
  Arena(Range first, Back back, Grow grow = {}) : Arena(std::move(back), std::move(grow)) { add(first); }

  // 64-byte aligned. A promised block uses up one promise; after an error it is still promised. Errors:
  // resource_exhausted when there is no room, or what Back or Grow said.
  Result<Block> allocate(std::size_t bytes, bool is_promised = false);
  // Returns the size of the block.
  std::size_t release(std::uint64_t offset);
  std::size_t used_bytes() const { return used_bytes_; }

  // Room in the books, not in the ranges, for so many blocks to come; withdraw() what will not be needed.
  void promise(std::size_t block_count);
  void withdraw(std::size_t block_count);

 private:
  static constexpr std::uint64_t kBackGranule = std::uint64_t{256} << 10U;

  struct Stretch {
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
  };
  // The part of a range that was never handed out.
  struct Fresh {
    std::uint64_t top = 0;
    std::uint64_t backed = 0;  // everything below is usable
    std::uint64_t end = 0;
  };
  void add(const Range& range) { fresh_.push_back({range.begin, range.begin, range.end}); }
  void make_room(std::size_t block_count);
  void add_used(const Stretch& block);
  Result<Fresh*> find_fresh(std::uint64_t bytes);

  std::vector<Stretch> free_;  // by offset; no two adjoin, so there is at most one more than ever were in use
  std::vector<Stretch> used_;  // by offset
  std::vector<Fresh> fresh_;   // in the order of their addition
  std::size_t promised_count_ = 0;
  std::size_t used_bytes_ = 0;
  Back back_;
  Grow grow_;  // may be empty: the first range is all there is
};

}  // namespace tutti::memory
