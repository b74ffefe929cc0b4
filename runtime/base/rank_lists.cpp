// Lists of ranks, and their text.
#include "runtime/base/rank_lists.hpp"

#include <fmt/format.h>

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

}  // namespace tutti
