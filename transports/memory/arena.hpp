// Hands out aligned blocks of one segment. Knows offsets only: not who maps the segment or what lies in it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "runtime/base/status.hpp"

namespace tutti::memory {

// First fit with coalescing over a growing range. Not thread-safe, never on a data path.
//
// Its books are two sorted lists. Releasing never lengthens them beyond their capacity, nor does allocating a
// block that was promised: memory of this process is taken by promise() and by allocating without one.
class Arena {
 public:
  struct Block {
    std::uint64_t offset = 0;
    bool is_fresh = false;  // never handed out before: still zero
  };
  // Makes [offset, offset + bytes) usable, before anybody touches it; an error leaves the arena unchanged.
  using Back = std::function<Status(std::uint64_t offset, std::uint64_t bytes)>;

  Arena() = default;
  Arena(std::uint64_t begin, std::uint64_t end, Back back)
      : top_(begin), backed_(begin), end_(end), back_(std::move(back)) {}

  // 64-byte aligned. A promised block uses up one promise; after an error it is still promised. Errors:
  // resource_exhausted when the segment is full, or what Back said.
  Result<Block> allocate(std::size_t bytes, bool is_promised = false);
  // Returns the size of the block.
  std::size_t release(std::uint64_t offset);
  std::size_t used_bytes() const { return used_bytes_; }

  // Room in the books, not in the segment, for so many blocks to come; withdraw() what will not be needed.
  void promise(std::size_t block_count);
  void withdraw(std::size_t block_count);

 private:
  static constexpr std::uint64_t kBackGranule = std::uint64_t{256} << 10U;

  struct Stretch {
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
  };
  void make_room(std::size_t block_count);
  void add_used(const Stretch& block);

  std::vector<Stretch> free_;  // by offset; no two adjoin, so there is at most one more than ever were in use
  std::vector<Stretch> used_;  // by offset
  std::size_t promised_count_ = 0;
  std::uint64_t top_ = 0;     // everything from here on is fresh
  std::uint64_t backed_ = 0;  // everything below is usable
  std::uint64_t end_ = 0;
  std::size_t used_bytes_ = 0;
  Back back_;
};

}  // namespace tutti::memory
