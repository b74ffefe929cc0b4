// Names of configuration variables that the table lacks, and the known ones that may be meant. See config.hpp.
#include <algorithm>
#include <numeric>

#include "runtime/base/config.hpp"

namespace tutti {
namespace {

constexpr std::string_view kPrefix = "TUTTI_";

// Levenshtein distance: insertions, deletions and replacements.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

// The known name nearest to `name`, if it is near enough to be meant: a third of its own part may differ.
std::string_view nearest_name(std::string_view name) {
  std::string_view nearest;
  std::size_t least = std::max<std::size_t>(2, (name.size() - kPrefix.size()) / 3) + 1;
  for (const Variable& variable : kVariables) {
    const std::size_t distance = edit_distance(name, variable.name);
    if (distance >= least) continue;
    least = distance;
    nearest = variable.name;
  }
  return nearest;
}

}  // namespace

std::vector<std::string> check_unknown(const Environment& environment) {
  std::vector<std::string> warnings;
  for (const auto& [name, value] : environment.values()) {
    if (name.compare(0, kPrefix.size(), kPrefix) != 0 || find_variable(name) != nullptr) continue;
    const std::string_view nearest = nearest_name(name);
    warnings.push_back("unknown variable " + name +
                       (nearest.empty() ? "; `tutti info --env` lists the known ones"
                                        : ", did you mean " + std::string(nearest) + "?"));
  }
  return warnings;
}

}  // namespace tutti
