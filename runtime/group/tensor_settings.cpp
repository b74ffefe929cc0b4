// Reads TUTTI_FUSION_* and what goes with it. See tensor_settings.hpp.
#include "runtime/group/tensor_settings.hpp"

#include <algorithm>

namespace tutti {
namespace {

constexpr std::int64_t kMostFusedCalls = 65536;

Status read_timeline(const Environment& environment, TimelineSettings& settings) {
  const auto path = get_text(environment, "TUTTI_TIMELINE");
  if (!path) return path.status();
  settings.path = path->value_or("");
  const auto marks = get_flag(environment, "TUTTI_TIMELINE_MARK_CYCLES");
  if (!marks) return marks.status();
  settings.marks_cycles = *marks;
  const auto form = get_enum(environment, "TUTTI_TIMELINE_FORM");
  if (!form) return form.status();
  settings.form = *form == "ranks" ? TimelineForm::ranks : TimelineForm::horovod;
  return {};
}

Status read_autotuning(const Environment& environment, TensorSettings& settings) {
  const auto autotune = get_flag(environment, "TUTTI_AUTOTUNE");
  if (!autotune) return autotune.status();
  settings.is_autotuned = *autotune;
  const auto log = get_text(environment, "TUTTI_AUTOTUNE_LOG");
  if (!log) return log.status();
  settings.autotune_log = log->value_or("");
  return {};
}

TensorPriority priority_of(std::string_view word) {
  if (word == "direct") return TensorPriority::direct;
  return word == "lifo" ? TensorPriority::lifo : TensorPriority::none;
}

}  // namespace

Result<TensorSettings> read_tensor_settings(const Environment& environment,
                                            std::vector<std::pair<std::string, std::string>>& contract) {
  TensorSettings settings;
  const auto capacity = get_integer(environment, "TUTTI_CACHE_CAPACITY");
  if (!capacity) return capacity.status();
  if (*capacity) settings.cache_capacity = static_cast<std::size_t>(**capacity);
  const auto bytes = get_size(environment, "TUTTI_FUSION_BYTES");
  if (!bytes) return bytes.status();
  settings.are_bytes_given = is_set(environment, "TUTTI_FUSION_BYTES");
  if (*bytes) settings.fusion.fused_bytes = **bytes;
  const auto count = get_integer(environment, "TUTTI_FUSION_COUNT");
  if (!count) return count.status();
  settings.fusion.call_count =
      static_cast<std::uint32_t>(std::min<std::int64_t>(count->value_or(0), kMostFusedCalls));
  const auto cycle = get_duration(environment, "TUTTI_FUSION_CYCLE");
  if (!cycle) return cycle.status();
  settings.is_cycle_given = is_set(environment, "TUTTI_FUSION_CYCLE");
  if (*cycle) settings.cycle = std::chrono::duration_cast<std::chrono::microseconds>(**cycle);
  const auto stall = get_duration(environment, "TUTTI_STALL_TIMEOUT");
  if (!stall) return stall.status();
  if (*stall) settings.stall_timeout = std::chrono::ceil<std::chrono::milliseconds>(**stall);
  const auto priority = get_enum(environment, "TUTTI_PRIORITY");
  if (!priority) return priority.status();
  settings.priority = priority_of(*priority);
  const auto feedback = get_flag(environment, "TUTTI_ERROR_FEEDBACK");
  if (!feedback) return feedback.status();
  settings.has_feedback = *feedback;
  TUTTI_RETURN_IF_ERROR(read_autotuning(environment, settings));
  TUTTI_RETURN_IF_ERROR(read_timeline(environment, settings.timeline));
  contract.emplace_back("TUTTI_CACHE_CAPACITY", std::to_string(settings.cache_capacity));
  // A tuning file replaces what is not set.
  contract.emplace_back("TUTTI_FUSION_BYTES", settings.are_bytes_given
                                                  ? std::to_string(settings.fusion.fused_bytes)
                                                  : "what the library chooses");
  contract.emplace_back("TUTTI_FUSION_COUNT", std::to_string(settings.fusion.call_count));
  contract.emplace_back("TUTTI_STALL_TIMEOUT", std::to_string(settings.stall_timeout.count()));
  contract.emplace_back("TUTTI_PRIORITY", *priority);
  contract.emplace_back("TUTTI_AUTOTUNE", settings.is_autotuned ? "on" : "off");
  contract.emplace_back("TUTTI_ERROR_FEEDBACK", settings.has_feedback ? "on" : "off");
  return settings;
}

void use_tuning(const Tuning& tuning, std::uint32_t rank_count, TensorSettings& settings) {
  const auto found = tuning.fusion.find(rank_count);
  if (found == tuning.fusion.end()) return;
  if (!settings.are_bytes_given) settings.fusion.fused_bytes = found->second.bytes;
  if (!settings.is_cycle_given) settings.cycle = std::chrono::microseconds(found->second.cycle_us);
}

}  // namespace tutti
