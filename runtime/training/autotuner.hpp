// Autotuning of named tensors: finds the fusion bytes and the cycle with the greatest throughput. For rank 0, whose
// decisions the others follow. Knows no tensor's memory, no file and no clock of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/fusion_tuning.hpp"
#include "runtime/base/running_clock.hpp"

namespace tutti {

class Autotuner {
 public:
  // The training steps of a window, and the windows of a candidate. One more window passes before them: with tensors
  // that are under way, and with memory that is used for the first time.
  static constexpr std::uint32_t kStepsPerWindow = 10;
  static constexpr std::size_t kWindowsPerCandidate = 3;

  // The search starts with `start`. It leaves a value alone that the user has chosen.
  Autotuner(const FusionTuning& start, bool tunes_bytes, bool tunes_cycle, RunningClock::time_point now);

  // Tensors that all ranks communicate now, one by one, and the end of the cycle. A step ends when a tensor comes again.
  void note(const std::string& name, std::uint64_t bytes);
  // The setting from now on, if it changes.
  std::optional<FusionTuning> end_cycle(RunningClock::time_point now);

  // The window that ended in the last end_cycle(), for a log.
  struct Window {
    FusionTuning setting;
    std::uint64_t bytes_per_second = 0;
  };
  const std::optional<Window>& last_window() const { return last_window_; }
  bool has_ended() const { return stage_ == Stage::ended; }
  const FusionTuning& best() const { return best_; }

 private:
  enum class Stage : std::uint8_t { bytes, cycle, ended };

  void begin_stage(Stage stage);
  void judge_candidate();
  bool is_window_complete() const;

  const bool tunes_bytes_, tunes_cycle_;
  Stage stage_ = Stage::bytes;
  std::vector<FusionTuning> candidates_;  // of the stage, the next one last
  FusionTuning current_, best_;
  std::uint64_t best_rate_ = 0;
  std::vector<std::uint64_t> samples_;
  bool is_settling_ = true;
  std::optional<Window> last_window_;

  std::map<std::string, std::uint32_t> counts_;  // of the window
  std::uint32_t most_count_ = 0;
  std::uint64_t tensors_ = 0, bytes_ = 0;
  RunningClock::time_point begun_;
};

}  // namespace tutti
