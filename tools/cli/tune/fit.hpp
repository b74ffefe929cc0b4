// Fitting the cost model to measured times. Knows prices and times, no file and no machine.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/selection/cost.hpp"

namespace tutti::tool {

// A measured time, and the path that a call like it is priced by.
struct Sample {
  PathCounts path;
  double us = 0;
  double weight = 1;
};

// How much a time measured at one size counts in a fit for another: half as much for each factor of 4 between them. Times of
// messages are no straight line over eight decades of sizes (protocols change, caches end), so there is one fit for each size.
double weight_at(std::uint64_t measured_bytes, std::uint64_t bytes);

// The figures to start from: a machine with a network of our day. The fit finds factors to them, one for all
// latencies, one for all messages, ..., so that two algorithms are enough.
CostModel typical_model();

// The model of non-negative figures in which these paths take nearest to the measured times, in relative
// terms and by weight. (In it other paths may be longer: price again, fit again.)
CostModel fit_model(std::span<const Sample> samples);

// Minimises |A x - y| over x >= 0. Few unknowns: all sets of unknowns that are not zero are tried.
inline constexpr std::size_t kUnknowns = 6;
using Unknowns = std::array<double, kUnknowns>;
Unknowns solve_non_negative(std::span<const Unknowns> a, std::span<const double> y);

}  // namespace tutti::tool
