// Settings of named tensors (tutti/tensors.hpp), from the environment. Knows no queue.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/config.hpp"
#include "runtime/base/status.hpp"
#include "runtime/selection/tuning.hpp"

namespace tutti {

enum class TensorPriority : std::uint8_t {
  none,    // in the order in which they became ready
  direct,  // by the priority of each call, the greatest first
  lifo,    // the latest first
};

// The rows of a timeline; see training/timeline_text.hpp.
enum class TimelineForm : std::uint8_t { horovod, ranks };

struct TimelineSettings {
  std::string path;  // of rank 0; empty: none
  bool marks_cycles = false;
  TimelineForm form = TimelineForm::horovod;
};

struct FusionLimits {
  std::uint64_t fused_bytes = FusionTuning().bytes;  // of one operation that carries several tensors
  // Longer tensors are operations of their own: packing them would cost more than the call that it saves.
  std::uint64_t packed_bytes = std::uint64_t{256} << 10U;
  std::uint32_t call_count = 0;  // calls without names that may share an operation; see call_fusion.hpp
};

struct TensorSettings {
  std::size_t cache_capacity = 1024;  // tensors that ranks remember
  FusionLimits fusion;
  std::chrono::microseconds cycle{
      FusionTuning().cycle_us};                // between negotiations while tensors are under way
  std::chrono::milliseconds stall_timeout{0};  // after which a tensor that some ranks lack fails; 0: never
  TensorPriority priority = TensorPriority::none;
  bool has_feedback = false;  // of tensors that do not say: losses of rounding are added at the next step
  TimelineSettings timeline;
  // Values that variables gave, which neither the tuning file nor autotuning changes.
  bool are_bytes_given = false, is_cycle_given = false;
  bool is_autotuned = false;
  std::string autotune_log;  // of rank 0; empty: none
};

// Adds to `contract` what all ranks must have equal. Errors: invalid_argument naming the variable, what it was
// given and what was expected.
Result<TensorSettings> read_tensor_settings(const Environment& environment,
                                            std::vector<std::pair<std::string, std::string>>& contract);

// Takes what the tuning file says of groups of so many ranks. Variables come before it.
void use_tuning(const Tuning& tuning, std::uint32_t rank_count, TensorSettings& settings);

}  // namespace tutti
