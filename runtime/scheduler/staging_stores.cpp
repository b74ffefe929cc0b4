// Two ways into staging memory, and which of them is taken.
#include "runtime/scheduler/staging_stores.hpp"

#include <algorithm>
#include <chrono>

#include "runtime/base/relax.hpp"

namespace tutti {
namespace {

// The most that a batch counts for: during one of them the thread may have been off its CPU.
constexpr double kMostNsPerLine = 64;

double ns_since(std::chrono::steady_clock::time_point begun) {
  const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begun;
  return took.count();
}

}  // namespace

StagingStores::Way StagingStores::way() const {
  if (policy_ != StagingPolicy::measured) return {phase_ == Phase::streamed, false};
  if (patience_ > 0) return {};
  switch (phase_) {
    case Phase::cached:
      return {false, streak_ > 0 || (count_ + 1) % kTimedEvery == 0};
    case Phase::trial:
      return {true, true};
    case Phase::streamed:
      break;
  }
  const bool is_probe = (count_ + 1) % kProbedEvery == 0;
  return {!is_probe, is_probe};
}

void StagingStores::count(double ns_per_line) {
  if (policy_ != StagingPolicy::measured) return;
  if (patience_ > 0) {
    --patience_;
    return;
  }
  const bool is_timed = way().is_timed;
  ++count_;
  if (is_timed) note(ns_per_line);
}

void StagingStores::note(double ns_per_line) {
  const double ns = std::min(ns_per_line, kMostNsPerLine);
  switch (phase_) {
    case Phase::cached:
      if (ns < kSlowNsPerLine) {
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

void StagingStores::copy_otherwise(void* to, const void* from, std::size_t size_bytes) {
  std::chrono::steady_clock::time_point begun;
  if (batch_.is_timed) begun = std::chrono::steady_clock::now();
  if (batch_.is_streamed) {
    copy_bytes_streaming(to, from, size_bytes);
  } else {
    copy_bytes(to, from, size_bytes);
  }
  if (!batch_.is_timed) return;
  drain_stores();
  batch_ns_ += ns_since(begun);
}

void StagingStores::close_batch() {
  if (batch_bytes_ >= kLeastBytes)
    count(batch_ns_ * static_cast<double>(kLineBytes) / static_cast<double>(batch_bytes_));
  batch_bytes_ = 0;
  batch_ns_ = 0;
}

}  // namespace tutti
