// Two ways into staging memory, and which of them is taken.
#include "runtime/scheduler/staging_stores.hpp"

#include <algorithm>
#include <chrono>

namespace tutti {
namespace {

constexpr double kLineBytes = 64;
constexpr double kMostNsPerLine = 64;

}  // namespace

StagingStores::Next StagingStores::next() {
  if (policy_ != StagingPolicy::measured) return {is_streaming_, false};
  ++count_;
  if (is_streaming_) {
    if (times_ < kTimesInARow) return {true, true};
    const bool is_probe = count_ % kProbedEvery == 0;
    return {!is_probe, is_probe};
  }
  if (patience_ > 0) {
    --patience_;
    return {};
  }
  return {false, times_ > 0 || count_ % kTimedEvery == 0};
}

void StagingStores::note(Next made, double ns_per_line) {
  if (!is_streaming_) {
    if (ns_per_line < kGainNsPerLine) {
      times_ = 0;
      return;
    }
    // One during which the thread was off its CPU is not to count for all.
    const double bounded = std::min(ns_per_line, kMostNsPerLine);
    cached_ns_ = times_ == 0 ? bounded : cached_ns_ + bounded;
    if (++times_ == kTimesInARow) start_streaming();
  } else if (made.is_streamed) {
    streamed_ns_ = times_ == 0 ? ns_per_line : std::min(streamed_ns_, ns_per_line);
    // Perhaps only the place where the input came from is slow: then streamed copies are as slow.
    if (++times_ == kTimesInARow && cached_ns_ - streamed_ns_ < kGainNsPerLine) stop_streaming(kPatience);
  } else if (ns_per_line - streamed_ns_ >= kGainNsPerLine) {
    cheap_ = 0;
  } else if (++cheap_ == kCheapInARow) {
    stop_streaming(0);
  }
}

void StagingStores::start_streaming() {
  is_streaming_ = true;
  cached_ns_ /= kTimesInARow;
  count_ = times_ = cheap_ = 0;
}

void StagingStores::stop_streaming(std::uint32_t patience) {
  is_streaming_ = false;
  patience_ = patience;
  count_ = times_ = 0;
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
  note(way, took.count() * kLineBytes / static_cast<double>(size_bytes));
}

}  // namespace tutti
