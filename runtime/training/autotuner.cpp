// One value after the other: first the bytes, then the cycle with the best of them. See autotuner.hpp.
#include "runtime/training/autotuner.hpp"

#include <algorithm>

namespace tutti {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20U;
// In the reverse order of trial.
constexpr std::uint64_t kBytes[] = {128 * kMiB, 64 * kMiB, 16 * kMiB, 4 * kMiB, kMiB};
constexpr std::uint64_t kCycles[] = {10000, 5000, 2500, 1000, 500, 250};
// A candidate has to be faster by more than this: differences of a few per cent are noise.
constexpr std::uint64_t kLeastGainPercent = 3;
// A window ends after so many tensors even where no name comes again.
constexpr std::uint64_t kMostTensors = 100000;

}  // namespace

Autotuner::Autotuner(const FusionTuning& start, bool tunes_bytes, bool tunes_cycle,
                     RunningClock::time_point now)
    : tunes_bytes_(tunes_bytes), tunes_cycle_(tunes_cycle), current_(start), best_(start), begun_(now) {
  begin_stage(Stage::bytes);
  // The start is the candidate that the others have to beat.
  if (stage_ != Stage::ended) candidates_.push_back(start);
}

void Autotuner::note(const std::string& name, std::uint64_t bytes) {
  most_count_ = std::max(most_count_, ++counts_[name]);
  ++tensors_;
  bytes_ += bytes;
}

bool Autotuner::is_window_complete() const {
  return most_count_ >= kStepsPerWindow || tensors_ >= kMostTensors;
}

std::optional<FusionTuning> Autotuner::end_cycle(RunningClock::time_point now) {
  last_window_.reset();
  if (has_ended() || !is_window_complete()) return std::nullopt;
  const std::chrono::duration<double> elapsed = now - begun_;
  const auto rate = static_cast<std::uint64_t>(static_cast<double>(bytes_) / std::max(elapsed.count(), 1e-9));
  begun_ = now;
  counts_.clear();
  most_count_ = 0;
  tensors_ = bytes_ = 0;
  if (is_settling_) {
    is_settling_ = false;
    return std::nullopt;
  }
  last_window_ = Window{current_, rate};
  samples_.push_back(rate);
  if (samples_.size() < kWindowsPerCandidate) return std::nullopt;
  judge_candidate();
  const FusionTuning next = has_ended() ? best_ : candidates_.back();
  is_settling_ = true;
  if (next == current_) return std::nullopt;
  current_ = next;
  return next;
}

// By the median of its windows.
void Autotuner::judge_candidate() {
  std::sort(samples_.begin(), samples_.end());
  const std::uint64_t rate = samples_[samples_.size() / 2];
  samples_.clear();
  if (best_rate_ == 0 || rate > best_rate_ + best_rate_ / 100 * kLeastGainPercent) {
    best_rate_ = rate;
    best_ = current_;
  }
  candidates_.pop_back();
  if (candidates_.empty()) begin_stage(stage_ == Stage::bytes ? Stage::cycle : Stage::ended);
}

// This one, or the next that has something to try.
void Autotuner::begin_stage(Stage stage) {
  stage_ = stage;
  if (stage_ == Stage::bytes) {
    if (tunes_bytes_) {
      for (const std::uint64_t bytes : kBytes) candidates_.push_back({bytes, best_.cycle_us});
      std::erase(candidates_, best_);
    }
    if (candidates_.empty()) stage_ = Stage::cycle;
  }
  if (stage_ == Stage::cycle) {
    if (tunes_cycle_) {
      for (const std::uint64_t cycle : kCycles) candidates_.push_back({best_.bytes, cycle});
      std::erase(candidates_, best_);
    }
    if (candidates_.empty()) stage_ = Stage::ended;
  }
}

}  // namespace tutti
