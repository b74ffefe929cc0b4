// From measured times to rules: which sizes deserve a rule, where it begins and ends, and where to look
// again. Pure; knows no clock, no ranks and no file.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/types.hpp"
#include "tools/cli/tune/race.hpp"

namespace tutti::tool {

struct Entry {
  std::string algorithm;  // an item of the rules, without conditions
  Standing standing;      // against the default choice
};

// The measurements at one size.
struct Point {
  std::uint64_t bytes = 0;  // of the full vector
  std::string default_algorithm;
  double default_us = 0;
  std::vector<Entry> others;  // not the default choice

  const Entry* find(const std::string& algorithm) const;
  const Entry* best() const;  // null: nothing is faster, as far as three rounds tell
};

// The algorithm for each point; empty: the default choice stays, because nothing beats it by more than the
// noise. Among algorithms within 3 % of the best, takes the one that stays within it for the most following
// points: fewer rules, and none for an immeasurable difference.
std::vector<std::string> choose(std::span<const Point> points);

// A size to measure between two neighbours that chose differently and are more than a factor of two apart,
// halfway on a logarithmic scale; and the algorithms to compare there with the default choice.
struct Refinement {
  std::uint64_t bytes = 0;
  std::vector<std::string> algorithms;
};
// The one with the widest gap; nullopt: none is left. `chosen`: of the points, which are in order of size.
std::optional<Refinement> find_refinement(std::span<const Point> points, std::span<const std::string> chosen);

// Items of the rules, for groups of that many ranks. A range ends where its algorithm was last measured to be
// the choice: beyond, the default choice stays. Only the smallest size stands for all below; the largest for
// all above if its neighbour chose the same.
std::vector<std::string> make_rules(Collective collective, std::span<const Point> points,
                                    std::span<const std::string> chosen, std::uint32_t rank_count);

}  // namespace tutti::tool
