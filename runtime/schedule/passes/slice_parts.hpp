// Parts of slices, for passes that treat the atoms of one step differently. Knows no step.
#pragma once

#include <cstdint>

#include "runtime/schedule/schedule.hpp"

namespace tutti::detail {

// Atoms [first, first + count) of a slice.
inline Slice part(const Schedule& s, Slice slice, std::uint32_t first, std::uint32_t count) {
  if (slice.buffer == Buffer::scratch) slice.slot += first;
  slice.first = s.atom(slice, first);
  slice.count = count;
  if (count == 1) slice.stride = 1;
  return slice;
}

// Calls visit(first, count) for the longest runs of atoms with equal key(k).
template <class Key, class Visit>
void for_runs(std::uint32_t count, const Key& key, const Visit& visit) {
  for (std::uint32_t first = 0, k = 1; k <= count; ++k) {
    if (k < count && key(k) == key(first)) continue;
    visit(first, k - first);
    first = k;
  }
}

}  // namespace tutti::detail
