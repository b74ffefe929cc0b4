// Slots, window and ageing. See grant_window.hpp.
#include "runtime/training/grant_window.hpp"

#include <algorithm>
#include <utility>

namespace tutti {

void GrantWindow::add(std::uint64_t operation, std::int64_t priority, std::uint32_t piece_count,
                      std::uint64_t piece_bytes) {
  // Without bytes it still takes a slot.
  waiting_.emplace(operation, Waiting{priority, 0, piece_count, std::max(piece_bytes, std::uint64_t{1})});
}

std::vector<GrantWindow::Grant> GrantWindow::grant(std::span<const std::uint64_t> unfinished, bool was_idle) {
  settle(unfinished);
  adapt(was_idle);
  std::vector<Grant> grants;
  while (has_waiting() && has_room()) {
    const auto chosen = choose();
    Waiting& waiting = chosen->second;
    grants.push_back({chosen->first, waiting.next_piece++, take_slot(waiting.piece_bytes)});
    if (waiting.next_piece == waiting.piece_count) waiting_.erase(chosen);
  }
  return grants;
}

// Slots of pieces that all ranks have completed are free.
void GrantWindow::settle(std::span<const std::uint64_t> unfinished) {
  for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
    if ((unfinished[slot / 64] >> slot % 64 & 1U) != 0) continue;
    used_bytes_ -= std::exchange(slots_[slot], 0);
  }
  while (!slots_.empty() && slots_.back() == 0) slots_.pop_back();
}

void GrantWindow::adapt(bool was_idle) {
  if (!has_waiting()) return;
  if (was_idle) {
    window_bytes_ = std::min(2 * window_bytes_, kMostBytes);
    calm_cycles_ = 0;
  } else if (++calm_cycles_ == kCalmCycles) {
    window_bytes_ = std::max(window_bytes_ - window_bytes_ / 8, kLeastBytes);
    calm_cycles_ = 0;
  }
}

bool GrantWindow::has_room() const {
  if (used_bytes_ >= window_bytes_) return false;
  return slots_.size() < kMostSlots || std::find(slots_.begin(), slots_.end(), 0U) != slots_.end();
}

GrantWindow::Operations::iterator GrantWindow::choose() {
  auto chosen = waiting_.begin();
  if (overtakes_ < kMostOvertakes) {
    for (auto at = waiting_.begin(); at != waiting_.end(); ++at) {
      if (at->second.priority > chosen->second.priority) chosen = at;
    }
  }
  overtakes_ = chosen == waiting_.begin() ? 0 : overtakes_ + 1;
  return chosen;
}

std::uint32_t GrantWindow::take_slot(std::uint64_t bytes) {
  auto slot = std::find(slots_.begin(), slots_.end(), 0U);
  if (slot == slots_.end()) slot = slots_.insert(slots_.end(), 0);
  *slot = bytes;
  used_bytes_ += bytes;
  return static_cast<std::uint32_t>(slot - slots_.begin());
}

}  // namespace tutti
