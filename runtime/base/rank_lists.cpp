// Lists of ranks as text.
#include "runtime/base/rank_lists.hpp"

#include <fmt/format.h>

namespace tutti {

std::string name_ranks(const std::vector<int>& ranks) {
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "));
}

std::string name_ranks(const std::vector<int>& ranks, int size) {
  return fmt::format("{} of {}", name_ranks(ranks), size);
}

}  // namespace tutti
