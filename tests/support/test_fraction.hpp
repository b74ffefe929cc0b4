// Chooses the seeded share of heavy test cases that TUTTI_TEST_FRACTION asks for (0.1 under sanitizers, all
// by default). Knows nothing of what a case is; the caller numbers its cases.
#pragma once

#include <cstdint>
#include <cstdlib>

namespace tutti::test {

// Is case `case_index` in the share? Every process and every run with the same fraction gives the same
// answer, so ranks in different processes agree. Case 0 always is, so that no test becomes empty.
inline bool is_selected(std::uint64_t case_index) {
  static const double fraction = [] {
    const char* text = std::getenv("TUTTI_TEST_FRACTION");
    return text == nullptr ? 1.0 : std::strtod(text, nullptr);
  }();
  if (fraction >= 1.0 || case_index == 0) return true;
  // splitmix64: neighbouring numbers give unrelated bits, so the share is not a stripe of some parameter.
  std::uint64_t bits = case_index * 0x9e3779b97f4a7c15U;
  bits = (bits ^ (bits >> 30U)) * 0xbf58476d1ce4e5b9U;
  bits = (bits ^ (bits >> 27U)) * 0x94d049bb133111ebU;
  bits ^= bits >> 31U;
  return static_cast<double>(bits >> 11U) * 0x1.0p-53 < fraction;
}

}  // namespace tutti::test
