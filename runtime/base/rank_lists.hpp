// Lists of ranks in error messages. Knows no group.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "runtime/base/status.hpp"

namespace tutti {

// 0, 1, and so on.
std::vector<int> first_ranks(std::size_t count);
// "rank 2", "ranks 2, 5".
std::string name_ranks(const std::vector<int>& ranks);
// "rank 2 of 8", "ranks 2, 5 of 8".
std::string name_ranks(const std::vector<int>& ranks, int size);
// "the group of world ranks 0, 2"; of large groups the first ones.
std::string name_group(const std::vector<int>& world_ranks);

// `holders`: ranks by their value. Returns the first rank of the smallest set, to be named in an error about
// ranks that differ. Equal on all ranks.
template <class Key>
int first_of_fewest(const std::map<Key, std::vector<int>>& holders) {
  const std::vector<int>* fewest = nullptr;
  for (const auto& [key, ranks] : holders) {
    // Of sets of equal size the one with rank 0 is taken for right.
    const bool are_fewer = fewest == nullptr || ranks.size() < fewest->size() ||
                           (ranks.size() == fewest->size() && ranks.front() > fewest->front());
    if (are_fewer) fewest = &ranks;
  }
  return fewest == nullptr ? Status::kNoPeer : fewest->front();
}

}  // namespace tutti
