// Medians of ratios, their spread, and the rules of the race.
#include "tools/cli/tune/race.hpp"

#include <algorithm>
#include <cmath>

namespace tutti::tool {
namespace {

// A contender that takes so many times as long as the leader after the first round, and the second, stops.
constexpr double kHopelessAtOnce = 2.5, kHopelessSoon = 1.7;
// A contender that is slower than the leader by more than this, noise deducted, has lost.
constexpr double kSlower = 1.02;
constexpr std::size_t kFirstComparison = 3;  // rounds until spreads say something
constexpr std::size_t kFewestRounds = 5;
constexpr double kOfFewRounds = 1;  // the noise of one or two rounds
constexpr double kLeastNoise = 0.005;

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 != 0) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

}  // namespace

Standing Race::compare(std::size_t contender, std::size_t other) const {
  const std::vector<double>&mine = times_[contender], &theirs = times_[other];
  const std::size_t rounds = std::min(mine.size(), theirs.size());
  Standing standing;
  standing.us = median(mine);
  if (contender == other || rounds == 0) return standing;
  std::vector<double> logs(rounds);
  for (std::size_t i = 0; i < rounds; ++i) logs[i] = std::log(mine[i] / theirs[i]);
  const double middle = median(logs);
  standing.ratio = std::exp(middle);
  standing.noise = kOfFewRounds;
  if (rounds < kFirstComparison) return standing;
  standing.is_sure = true;
  std::vector<double> deviations(rounds);
  for (std::size_t i = 0; i < rounds; ++i) deviations[i] = std::abs(logs[i] - middle);
  // The median absolute deviation is 0.67 standard deviations; a median's error is 1.25 times a mean's.
  constexpr double kDeviation = 1.48, kMedianError = 1.25;
  const double error =
      kDeviation * median(deviations) * kMedianError / std::sqrt(static_cast<double>(rounds));
  // Three rounds may agree by chance.
  const double few = 1.0 + 2.0 / static_cast<double>(rounds);
  standing.noise = std::max(kLeastNoise, 2 * few * error);
  return standing;
}

std::size_t Race::leader() const {
  std::size_t best = 0;
  double best_ratio = 1;
  for (std::size_t i = 1; i < times_.size(); ++i) {
    if (is_out_[i] || times_[i].empty()) continue;
    const double ratio = compare(i, 0).ratio;
    if (ratio >= best_ratio) continue;
    best = i;
    best_ratio = ratio;
  }
  return best;
}

void Race::end_round() {
  ++round_count_;
  const std::size_t first = leader();
  for (std::size_t i = 1; i < times_.size(); ++i) {
    if (is_out_[i] || i == first || times_[i].empty()) continue;
    const Standing behind = compare(i, first);
    const double lost = round_count_ == 1                 ? kHopelessAtOnce
                        : round_count_ < kFirstComparison ? kHopelessSoon
                                                          : kSlower;
    const double noise = behind.is_sure ? behind.noise : 0;
    if (behind.ratio * (1 - noise) > lost) is_out_[i] = true;
  }
}

bool Race::is_decided() const {
  const std::size_t first = leader();
  bool is_alone = true;
  for (std::size_t i = 1; i < times_.size(); ++i) is_alone = is_alone && (is_out_[i] || i == first);
  // The default choice leads and nobody else is left.
  if (is_alone && first == 0) return round_count_ >= kFirstComparison;
  if (round_count_ < kFewestRounds) return false;
  const Standing standing = compare(first, 0);
  return standing.is_faster() || standing.ratio * (1 - standing.noise) > kWorthRatio;
}

}  // namespace tutti::tool
