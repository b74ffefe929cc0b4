// How ranks wait, by the settings and by how many of them share a CPU. See settings.hpp.
#include <algorithm>
#include <chrono>

#include "runtime/base/relax.hpp"
#include "runtime/group/settings.hpp"

namespace tutti {
namespace {

constexpr std::uint32_t kOutnumberedSpins = 2;
// Some 10 us on control blocks: longer than a rank that runs takes to answer, and short beside a turn on a CPU.
constexpr std::uint32_t kPollsPerYield = 1024;

// A pause takes 5 to 50 ns, depending on the processor.
double measure_pauses_per_ns() {
  constexpr int kRounds = 3, kPauses = 256;
  double least_ns = 50;
  for (int round = 0; round < kRounds; ++round) {
    const SteadyClock::time_point begun = SteadyClock::now();
    for (int i = 0; i < kPauses; ++i) relax();
    const std::chrono::duration<double, std::nano> took = SteadyClock::now() - begun;
    least_ns = std::min(least_ns, took.count() / kPauses);
  }
  return 1 / std::max(least_ns, 1.0);
}

}  // namespace

WaitPolicy WorldSettings::wait_policy(int rank_count, int cpu_count, bool is_poll_call) const {
  WaitPolicy policy;
  if (rank_count > cpu_count) {
    policy.spin_polls = is_poll_call ? 0 : kOutnumberedSpins;
    policy.line_polls = 1;
  } else if (!spin_polls) {
    policy.polls_per_yield = kPollsPerYield;
  }
  policy.watches_cpus = rank_count <= cpu_count && wait_mode == "auto";
  if (wait_mode == "spin") policy = {~0U, 0, false};
  if (wait_mode == "yield") policy = {0, ~0U, false};
  if (wait_mode == "sleep") policy = {0, 0, true};
  if (wait_mode == "yield" || wait_mode == "sleep") policy.line_polls = 1;
  if (!policy.shares_cpus()) {
    static const double kPausesPerNs = measure_pauses_per_ns();
    policy.pauses_per_ns = kPausesPerNs;
  }
  if (spin_polls)
    policy.spin_polls = static_cast<std::uint32_t>(std::clamp<std::int64_t>(*spin_polls, 0, 1 << 30));
  return policy;
}

}  // namespace tutti
