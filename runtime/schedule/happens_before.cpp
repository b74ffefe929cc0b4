// Vector clocks with epochs in the manner of FastTrack: the last writer and the later readers suffice,
// because everything older is ordered before them (or was reported).
#include "runtime/schedule/happens_before.hpp"

#include <algorithm>

namespace tutti::detail {

void HappensBefore::start(std::uint32_t ranks, std::uint32_t channels, std::size_t locations) {
  threads_ = std::size_t{ranks} * channels;
  channels_ = channels;
  clocks_.assign(threads_ * threads_, 0);
  snapshots_.clear();
  locations_.assign(locations, {});
  reads_.clear();
}

std::uint32_t HappensBefore::snapshot(std::uint32_t thread) {
  const auto row = clocks_.begin() + static_cast<std::ptrdiff_t>(thread * threads_);
  const auto number = static_cast<std::uint32_t>(snapshots_.size() / threads_);
  snapshots_.insert(snapshots_.end(), row, row + static_cast<std::ptrdiff_t>(threads_));
  return number;
}

void HappensBefore::join(std::uint32_t thread, std::uint32_t snapshot) {
  const std::uint32_t* from = snapshots_.data() + snapshot * threads_;
  std::uint32_t* to = clocks_.data() + thread * threads_;
  for (std::size_t t = 0; t < threads_; ++t) to[t] = std::max(to[t], from[t]);
}

bool HappensBefore::is_after_write(std::uint32_t thread, const Location& at, Race& race) const {
  if (at.writer.position == 0 || is_ordered(at.writer, thread)) return true;
  race = {at.writer, true};
  return false;
}

bool HappensBefore::read(std::uint32_t thread, std::size_t where, Race& race) {
  Location& at = locations_[where];
  if (!is_after_write(thread, at, race)) return false;
  // An older read of the thread further down is ordered wherever this one is, so the list is not searched.
  if (at.readers != kNone && reads_[at.readers].by.thread == thread) {
    reads_[at.readers].by.position = clock(thread, thread);
    return true;
  }
  reads_.push_back({{thread, clock(thread, thread)}, at.readers});
  at.readers = static_cast<std::uint32_t>(reads_.size() - 1);
  return true;
}

bool HappensBefore::write(std::uint32_t thread, std::size_t where, Race& race) {
  Location& at = locations_[where];
  if (!is_after_write(thread, at, race)) return false;
  for (std::uint32_t i = at.readers; i != kNone; i = reads_[i].next) {
    if (is_ordered(reads_[i].by, thread)) continue;
    race = {reads_[i].by, false};
    return false;
  }
  at = {{thread, clock(thread, thread)}, kNone};
  return true;
}

bool HappensBefore::knows_entry(std::uint32_t thread, std::uint32_t rank) const {
  for (std::uint32_t c = 0; c < channels_; ++c)
    if (clock(thread, rank * channels_ + c) > 0) return true;
  return false;
}

bool HappensBefore::knows_entry_at_end(std::uint32_t of, std::uint32_t rank) const {
  for (std::uint32_t c = 0; c < channels_; ++c)
    if (knows_entry(of * channels_ + c, rank)) return true;
  return false;
}

bool HappensBefore::outlives_owner(std::uint32_t owner, std::size_t where, Race& race) const {
  const auto is_over = [&](const Epoch& access) {
    if (access.position == 0) return true;
    for (std::uint32_t c = 0; c < channels_; ++c)
      if (is_ordered(access, owner * channels_ + c)) return true;
    return false;
  };
  const Location& at = locations_[where];
  if (!is_over(at.writer)) {
    race = {at.writer, true};
    return true;
  }
  for (std::uint32_t i = at.readers; i != kNone; i = reads_[i].next) {
    if (is_over(reads_[i].by)) continue;
    race = {reads_[i].by, false};
    return true;
  }
  return false;
}

}  // namespace tutti::detail
