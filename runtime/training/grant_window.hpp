// Order of operations under a priority. Large ones are communicated in pieces, and few bytes are under way at a
// time, so that an urgent operation overtakes the rest of the others. Pure, and equal on all ranks: it follows
// from the operations that all ranks have, and from the pieces that all have completed. Knows no clock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

namespace tutti {

class GrantWindow {
 public:
  // A piece that may begin. It takes a slot until all ranks have completed it.
  struct Grant {
    std::uint64_t operation = 0;
    std::uint32_t piece = 0, slot = 0;
  };
  // Bounds of the window: so many bytes are under way, as far as there are any.
  static constexpr std::uint64_t kLeastBytes = std::uint64_t{8} << 20U;
  static constexpr std::uint64_t kMostBytes = std::uint64_t{64} << 20U;
  static constexpr std::uint32_t kMostSlots = 1024;
  // Ageing: after so many grants that passed over the oldest operation, it gets one.
  static constexpr std::uint32_t kMostOvertakes = 16;
  // The window shrinks after so many cycles in which no rank was idle.
  static constexpr std::uint32_t kCalmCycles = 16;

  // An operation of `piece_count` pieces of `piece_bytes` waits. The greatest priority goes first, and of equal
  // ones the oldest. Numbers of operations are new and ascending.
  void add(std::uint64_t operation, std::int64_t priority, std::uint32_t piece_count,
           std::uint64_t piece_bytes);
  // The pieces to begin now. `unfinished`: a bit for each slot, word_count() words; set where some rank has not
  // completed the piece. `was_idle`: some rank had completed all of its pieces for a while, and operations
  // waited: the window doubles.
  std::vector<Grant> grant(std::span<const std::uint64_t> unfinished, bool was_idle);

  bool has_waiting() const { return !waiting_.empty(); }
  bool is_empty() const { return waiting_.empty() && used_bytes_ == 0; }
  std::uint64_t window_bytes() const { return window_bytes_; }
  std::size_t word_count() const { return (slots_.size() + 63) / 64; }
  // By slot: the bytes under way in it; 0: it is free.
  std::span<const std::uint64_t> slots() const { return slots_; }

 private:
  struct Waiting {
    std::int64_t priority = 0;
    std::uint32_t next_piece = 0, piece_count = 1;
    std::uint64_t piece_bytes = 0;
  };
  using Operations = std::map<std::uint64_t, Waiting>;

  void settle(std::span<const std::uint64_t> unfinished);
  void adapt(bool was_idle);
  bool has_room() const;
  Operations::iterator choose();
  std::uint32_t take_slot(std::uint64_t bytes);

  Operations waiting_;
  std::vector<std::uint64_t> slots_;
  std::uint64_t used_bytes_ = 0, window_bytes_ = kLeastBytes;
  std::uint32_t overtakes_ = 0, calm_cycles_ = 0;
};

}  // namespace tutti
