// The setting of named tensors that autotuning finds, and tuning files keep. Knows no tensor and no file.
#pragma once

#include <cstdint>

namespace tutti {

// Of named tensors: bytes of an operation that carries several, and the time between two negotiations.
struct FusionTuning {
  std::uint64_t bytes = std::uint64_t{64} << 20U;
  std::uint64_t cycle_us = 1000;
  bool operator==(const FusionTuning&) const = default;
};
inline constexpr std::uint64_t kMostCycleMicroseconds = 10'000'000;

}  // namespace tutti
