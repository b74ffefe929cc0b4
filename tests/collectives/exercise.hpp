// Runs one collective call on one rank and judges its result against the serial reference.
#pragma once

#include <string>
#include <vector>

#include "tests/collectives/cases.hpp"
#include "tests/support/world.hpp"

namespace tutti::test {

struct Case {
  const AlgorithmRow* row = nullptr;
  const Flavour* flavour = nullptr;
  std::uint64_t count = 0;  // as Call::count
  std::uint32_t root = 0;
  bool in_place = false;
  bool has_counts =
      false;  // v-variant: block b has (count * (b + 1) / p + b) elements, with gaps between the blocks
  // This rank's buffers lie in the transport's shared heap during the call; for equal counts only. In place
  // what counts is the larger of the two.
  bool maps_input = false;
  bool maps_output = false;
};
std::string describe(const Case& c);

// The result is "" or what is wrong. `result` (may be null) receives the rank's output, for comparison
// between ranks.
std::string exercise(const Member& member, const Case& c, ReferenceCache& references,
                     std::vector<std::byte>* result);

}  // namespace tutti::test
