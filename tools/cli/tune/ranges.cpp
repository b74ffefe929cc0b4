// Runs of equal choices.
#include "tools/cli/tune/ranges.hpp"

#include <algorithm>
#include <bit>

#include "runtime/selection/rules.hpp"

namespace tutti::tool {
namespace {

constexpr double kAsGood = 1.03;

// May this algorithm be the choice at that point?
bool is_acceptable(const Point& point, const std::string& algorithm) {
  const Entry* entry = point.find(algorithm);
  if (entry == nullptr || !entry->standing.is_faster()) return false;
  double best = entry->standing.ratio;
  for (const Entry& other : point.others) {
    if (other.standing.is_faster()) best = std::min(best, other.standing.ratio);
  }
  return entry->standing.ratio <= best * kAsGood;
}

// At how many points in a row, from the first of these on.
std::size_t reach_of(std::span<const Point> points, const std::string& algorithm) {
  std::size_t count = 0;
  while (count < points.size() && is_acceptable(points[count], algorithm)) ++count;
  return count;
}

}  // namespace

const Entry* Point::find(const std::string& algorithm) const {
  const auto found =
      std::find_if(others.begin(), others.end(), [&](const Entry& e) { return e.algorithm == algorithm; });
  return found == others.end() ? nullptr : &*found;
}

const Entry* Point::best() const {
  const Entry* best = nullptr;
  for (const Entry& entry : others) {
    if (!entry.standing.is_sure) continue;
    if (entry.standing.ratio < (best == nullptr ? 1.0 : best->standing.ratio)) best = &entry;
  }
  return best;
}

std::vector<std::string> choose(std::span<const Point> points) {
  std::vector<std::string> chosen(points.size());
  for (std::size_t i = 0; i < points.size();) {
    const std::span<const Point> rest = points.subspan(i);
    const Entry* widest = nullptr;
    std::size_t reach = 0;
    for (const Entry& entry : points[i].others) {
      const std::size_t its = reach_of(rest, entry.algorithm);
      const bool is_better =
          its > reach || (its > 0 && its == reach && entry.standing.ratio < widest->standing.ratio);
      if (!is_better) continue;
      widest = &entry;
      reach = its;
    }
    for (std::size_t k = 0; k < reach; ++k) chosen[i + k] = widest->algorithm;
    i += std::max<std::size_t>(reach, 1);
  }
  return chosen;
}

std::optional<Refinement> find_refinement(std::span<const Point> points,
                                          std::span<const std::string> chosen) {
  std::optional<Refinement> found;
  std::uint64_t widest = 2;
  for (std::size_t i = 0; i + 1 < points.size(); ++i) {
    const std::uint64_t low = std::max<std::uint64_t>(1, points[i].bytes), high = points[i + 1].bytes;
    if (chosen[i] == chosen[i + 1] || high / low <= widest) continue;
    widest = high / low;
    // Sizes are of whole blocks: neighbours may be a little less than a factor of four apart.
    const int steps = std::max(2, static_cast<int>(std::bit_width(high / low)) - 1);
    found = Refinement{low << (steps / 2), {}};
    for (const std::string& algorithm : {chosen[i], chosen[i + 1]}) {
      if (!algorithm.empty()) found->algorithms.push_back(algorithm);
    }
  }
  return found;
}

std::vector<std::string> make_rules(Collective collective, std::span<const Point> points,
                                    std::span<const std::string> chosen, std::uint32_t rank_count) {
  std::vector<std::string> rules;
  for (std::size_t first = 0, next = 0; first < points.size(); first = next) {
    next = first + 1;
    while (next < points.size() && chosen[next] == chosen[first]) ++next;
    if (chosen[first].empty()) continue;
    auto item = parse_argument(collective, chosen[first]);
    if (!item) continue;  // it was measured, so it can be read
    RuleCondition condition;
    condition.min_size = condition.max_size = rank_count;
    if (first > 0) condition.min_bytes = points[first].bytes;
    const bool is_last = next == points.size();
    if (!is_last) condition.max_bytes = points[next - 1].bytes;
    // One size alone says nothing of all that are larger; unless there are no others, as in a barrier.
    if (is_last && next - first == 1 && points.size() > 1) condition.max_bytes = points[next - 1].bytes;
    // Two rules that meet leave nothing between them to the default choice.
    if (!is_last && !chosen[next].empty()) condition.max_bytes = points[next].bytes - 1;
    item->conditions = {condition};
    rules.push_back(to_text(*item));
  }
  return rules;
}

}  // namespace tutti::tool
