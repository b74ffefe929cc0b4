// Lists of ranks, and their text.
#include "runtime/base/rank_lists.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace tutti {

std::vector<int> first_ranks(std::size_t count) {
  std::vector<int> ranks(count);
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

std::string name_ranks(const std::vector<int>& ranks) {
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "));
}

std::string name_ranks(const std::vector<int>& ranks, int size) {
  return fmt::format("{} of {}", name_ranks(ranks), size);
}

std::string name_group(const std::vector<int>& world_ranks) {
  constexpr std::size_t kMostNamed = 16;
  const bool is_whole = world_ranks.size() <= kMostNamed;
  const auto end =
      world_ranks.begin() + static_cast<std::ptrdiff_t>(std::min(world_ranks.size(), kMostNamed));
  return fmt::format("the group of world ranks {}{}", fmt::join(world_ranks.begin(), end, ", "),
                     is_whole ? "" : fmt::format(", ... ({} in all)", world_ranks.size()));
}

}  // namespace tutti
