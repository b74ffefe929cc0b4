// Two ways into staging memory, and which of them is taken.
#include "runtime/scheduler/staging_stores.hpp"

#include <algorithm>
#include <chrono>

namespace tutti {
namespace {

constexpr double kLineBytes = 64;
// What a copy counts for at most: during one of them the thread may have been off its CPU.
constexpr double kMostNsPerLine = 64;

}  // namespace

StagingStores::Next StagingStores::next() {
  if (policy_ != StagingPolicy::measured) return {phase_ == Phase::streamed, false};
  if (patience_ > 0) {
    --patience_;
    return {};
  }
  ++count_;
  switch (phase_) {
    case Phase::cached:
      return {false, streak_ > 0 || count_ % kTimedEvery == 0};
    case Phase::trial:
      return {true, true};
    case Phase::streamed:
      break;
  }
  const bool is_probe = count_ % kProbedEvery == 0;
  return {!is_probe, is_probe};
}

void StagingStores::note(double ns_per_line) {
  const double ns = std::min(ns_per_line, kMostNsPerLine);
  switch (phase_) {
    case Phase::cached:
      if (ns < kGainNsPerLine) {
        streak_ = 0;
        return;
      }
      cached_ns_ = (streak_ * cached_ns_ + ns) / (streak_ + 1);
      if (++streak_ == kTimesInARow) enter(Phase::trial);
      return;
    case Phase::trial:
      streamed_ns_ = streak_ == 0 ? ns : std::min(streamed_ns_, ns);
      if (++streak_ < kTimesInARow) return;
      // Perhaps only the place where the input came from is slow: then streamed copies are as slow.
      if (cached_ns_ - streamed_ns_ < kGainNsPerLine) return enter(Phase::cached, kPatience);
      return enter(Phase::streamed);
    case Phase::streamed:
      streak_ = ns - streamed_ns_ < kGainNsPerLine ? streak_ + 1 : 0;
      if (streak_ == kCheapInARow) enter(Phase::cached);
  }
}

void StagingStores::enter(Phase phase, std::uint32_t patience) {
  phase_ = phase;
  patience_ = patience;
  count_ = streak_ = 0;
}

void StagingStores::copy_long(void* to, const void* from, std::size_t size_bytes) {
  using Clock = std::chrono::steady_clock;
  const Next way = next();
  const Clock::time_point begun = way.is_timed ? Clock::now() : Clock::time_point();
  if (way.is_streamed) {
    copy_bytes_streaming(to, from, size_bytes);
  } else {
    copy_bytes(to, from, size_bytes);
  }
  if (!way.is_timed) return;
  const std::chrono::duration<double, std::nano> took = Clock::now() - begun;
  note(took.count() * kLineBytes / static_cast<double>(size_bytes));
}

}  // namespace tutti
