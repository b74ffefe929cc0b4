// Work for one core that touches no memory, in place of a training step's arithmetic. Knows no library under
// test.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>

namespace tutti::bench {

// A fixed amount of work, not of time: what takes the core away from it makes it last longer.
class Compute {
 public:
  // Finds out how much work this core does in a microsecond when nothing else wants it; takes about 50 ms.
  static Compute calibrated() {
    constexpr std::uint64_t kRounds = 1U << 20U;
    constexpr int kTries = 12;
    Compute compute;
    double best_us = 1e300;
    for (int i = 0; i < kTries; ++i) {
      const auto start = std::chrono::steady_clock::now();
      compute.work(kRounds);
      const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
      best_us = std::min(best_us, took.count());
    }
    compute.rounds_per_us_ = static_cast<double>(kRounds) / std::max(best_us, 1.0);
    return compute;
  }

  // Work that takes so long on an undisturbed core.
  void run(double us) { work(static_cast<std::uint64_t>(us * rounds_per_us_)); }

 private:
  void work(std::uint64_t rounds) {
    std::array<double, 8> sums = sums_;
    for (std::uint64_t round = 0; round < rounds; ++round) {
      for (double& sum : sums) sum = sum * 0.999999 + 1e-6;
    }
    sums_ = sums;
  }

  double rounds_per_us_ = 0;
  std::array<double, 8> sums_{1, 2, 3, 4, 5, 6, 7, 8};  // kept, so that the work cannot be left out
};

}  // namespace tutti::bench
