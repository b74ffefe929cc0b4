// The partitions of a plan in one run: which are ready, and in which order they are communicated. Pure; knows
// no buffer, no group and no thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runtime/base/status.hpp"

namespace tutti {

// Partitions are communicated in a given order, equal on all ranks. A partition that is ready waits for its
// predecessors.
class PartitionOrder {
 public:
  // Before the first run, by number.
  explicit PartitionOrder(std::uint32_t partition_count);

  std::uint32_t partition_count() const { return static_cast<std::uint32_t>(order_.size()); }
  // A new run: no partition is ready.
  void restart();
  // The same in another order, which lists every partition once.
  void restart(std::span<const std::uint32_t> order);
  // Errors, nothing marked: invalid_argument for a partition that does not exist or is ready already.
  Status mark_ready(std::size_t first, std::size_t count);
  // The partition to communicate next; nothing while it is not ready, and after the last.
  std::optional<std::uint32_t> next() const;
  // That partition is given out.
  void give_out_next();

  bool is_given_out(std::uint32_t partition) const { return is_given_out_[partition]; }
  bool are_all_given_out() const { return next_ == order_.size(); }
  // In the order in which they became ready.
  std::span<const std::uint32_t> ready_partitions() const { return ready_; }
  // Partitions that hold back `partition`: not ready, and no later than it in the order.
  std::vector<int> missing_for(std::uint32_t partition) const;

  // Errors: invalid_argument naming the call, the range and what was expected.
  Status check_range(const char* call, std::size_t first, std::size_t count) const;

 private:
  std::vector<std::uint32_t> order_, ready_;
  std::vector<bool> is_ready_, is_given_out_;
  std::size_t next_ = 0;  // position in order_
};

}  // namespace tutti
