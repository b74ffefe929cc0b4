// Marks and positions of partitions. See partition_order.hpp.
#include "runtime/group/partition_order.hpp"

#include <fmt/format.h>

#include <numeric>

namespace tutti {

PartitionOrder::PartitionOrder(std::uint32_t partition_count) : order_(partition_count) {
  std::iota(order_.begin(), order_.end(), 0U);
  restart();
}

void PartitionOrder::restart() {
  ready_.clear();
  is_ready_.assign(order_.size(), false);
  is_given_out_.assign(order_.size(), false);
  next_ = 0;
}

void PartitionOrder::restart(std::span<const std::uint32_t> order) {
  order_.assign(order.begin(), order.end());
  restart();
}

Status PartitionOrder::check_range(const char* call, std::size_t first, std::size_t count) const {
  const std::size_t size = order_.size();
  if (count <= size && first <= size - count) return {};
  if (size == 0) return invalid_argument(fmt::format("{}: this plan has no partitions", call));
  return invalid_argument(
      fmt::format("{}: first={} and count={}: expected partitions of 0 to {}", call, first, count, size - 1));
}

Status PartitionOrder::mark_ready(std::size_t first, std::size_t count) {
  TUTTI_RETURN_IF_ERROR(check_range("ready", first, count));
  for (std::size_t partition = first; partition < first + count; ++partition) {
    if (is_ready_[partition])
      return invalid_argument(fmt::format(
          "ready: partition {} is ready already; a partition becomes ready once in a run", partition));
  }
  for (std::size_t partition = first; partition < first + count; ++partition) {
    is_ready_[partition] = true;
    ready_.push_back(static_cast<std::uint32_t>(partition));
  }
  return {};
}

std::optional<std::uint32_t> PartitionOrder::next() const {
  if (next_ == order_.size() || !is_ready_[order_[next_]]) return std::nullopt;
  return order_[next_];
}

void PartitionOrder::give_out_next() { is_given_out_[order_[next_++]] = true; }

std::vector<int> PartitionOrder::missing_for(std::uint32_t partition) const {
  std::vector<int> missing;
  for (std::size_t position = next_; position < order_.size(); ++position) {
    if (!is_ready_[order_[position]]) missing.push_back(static_cast<int>(order_[position]));
    if (order_[position] == partition) break;
  }
  return missing;
}

}  // namespace tutti
