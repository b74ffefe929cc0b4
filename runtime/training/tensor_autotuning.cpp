// Rank 0 measures, all ranks follow in one cycle. See tensor_scheduler.hpp and autotuner.hpp.
#include <fmt/format.h>

#include <cerrno>
#include <cstring>

#include "runtime/base/log.hpp"
#include "runtime/training/tensor_scheduler.hpp"

namespace tutti {

void TensorScheduler::begin_autotuning() {
  if (!settings_.is_autotuned || rank_ != 0) return;
  const FusionTuning start{limits_.fused_bytes, static_cast<std::uint64_t>(cycle_time_.count())};
  autotuner_.emplace(start, !settings_.are_bytes_given, !settings_.is_cycle_given, Clock::now());
  if (autotuner_->has_ended()) {
    log_warn("TUTTI_AUTOTUNE has nothing to tune: TUTTI_FUSION_BYTES and TUTTI_FUSION_CYCLE are given");
    autotuner_.reset();
    return;
  }
  if (settings_.autotune_log.empty()) return;
  autotune_log_.open(settings_.autotune_log);
  if (!autotune_log_)
    log_warn("TUTTI_AUTOTUNE_LOG: {} cannot be written: {}", settings_.autotune_log, std::strerror(errno));
  autotune_log_ << "fusion_bytes,cycle_us,bytes_per_second\n";
}

// A setting holds from the cycle on in which all ranks learn it, so that they fuse alike.
void TensorScheduler::follow(const FusionTuning& setting) {
  limits_.fused_bytes = setting.bytes;
  const std::lock_guard lock(mutex_);
  cycle_time_ = std::chrono::microseconds(setting.cycle_us);
}

void TensorScheduler::autotune(const std::vector<Ready>& ready) {
  for (const Ready& tensor : ready) {
    const TensorSignature& signature = tensor.response.signature;
    autotuner_->note(tensor.response.name, element_count(signature) * size_of(signature.dtype));
  }
  new_setting_ = autotuner_->end_cycle(Clock::now());
  if (const auto& window = autotuner_->last_window(); window && autotune_log_) {
    autotune_log_ << fmt::format("{},{},{}\n", window->setting.bytes, window->setting.cycle_us,
                                 window->bytes_per_second);
    autotune_log_.flush();
  }
  if (!autotuner_->has_ended()) return;
  const FusionTuning best = autotuner_->best();
  autotuner_.reset();
  log_info(
      "autotuning of named tensors over {} ranks has ended: TUTTI_FUSION_BYTES={}, TUTTI_FUSION_CYCLE={}us",
      size_, best.bytes, best.cycle_us);
  if (save_fusion_) save_fusion_(best);
}

}  // namespace tutti
