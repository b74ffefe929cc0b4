// The settings of a world from its environment: deadlines, checks, waiting, transports and rules. Read once
// at its start. Knows no socket and no rank.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/config.hpp"
#include "runtime/base/status.hpp"
#include "runtime/base/wire_setting.hpp"
#include "runtime/group/domains.hpp"
#include "runtime/group/helper_settings.hpp"
#include "runtime/group/progress_settings.hpp"
#include "runtime/group/tensor_settings.hpp"
#include "runtime/group/tuning_file.hpp"
#include "runtime/scheduler/engine.hpp"
#include "runtime/scheduler/staging_stores.hpp"
#include "runtime/selection/selection.hpp"
#include "topology/binding.hpp"
#include "topology/topology.hpp"
#include "transports/registry.hpp"

namespace tutti {

enum class CheckLevel : std::uint8_t {
  off,    // arguments are believed
  local,  // arguments are checked against what this rank knows
  group,  // and every call is compared with those of the other ranks before it runs
};

struct WorldSettings {
  std::chrono::milliseconds timeout{300000};
  std::chrono::milliseconds stall_warning{60000};  // 0: never
  CheckLevel check = CheckLevel::local;
  std::vector<std::string> transports;  // in order of preference; empty: automatic
  TransportSettings transport;
  bool uses_control_blocks = true;  // collectives in shared memory, not by messages, where ranks share it
  StagingPolicy staging = StagingPolicy::measured;  // TUTTI_STAGING
  std::string wait_mode;                            // auto, spin, yield or sleep
  std::optional<std::int64_t> spin_polls;
  std::vector<RuleText> rules;  // of variables, in order of precedence
  TuningFile tuning;
  std::shared_ptr<const Selector> selector;  // of both
  Topology topology;                         // of the node, as this rank sees it
  HierarchySetting hierarchy;
  PinRequest pin;             // of TUTTI_PIN
  std::string trace_path;     // of TUTTI_TRACE; empty: none
  std::string error_path;     // of TUTTI_ERROR_FILE; empty: none
  std::string record_folder;  // of TUTTI_RECORDER; empty: in memory only
  bool is_record_folder_named = false;
  bool prints_statistics = false;  // TUTTI_STATS
  std::string metrics_path;        // of TUTTI_METRICS; empty: none
  bool needs_metrics = true;       // false: its absence is a warning
  ProgressSettings progress;
  HelperSettings helpers;
  TensorSettings tensors;
  WireSetting wire;  // of TUTTI_WIRE_DTYPE
  // Settings that must be equal on all ranks, as (variable, text). Compared when a world is made.
  std::vector<std::pair<std::string, std::string>> contract;

  // The tuning file is not used, for that reason: the selector is made without it.
  void refuse_tuning(std::string reason);
  // Refuses it if it was measured elsewhere. Errors: invalid_argument if it is one that has to fit.
  Status judge_tuning(const Fingerprint& here);
  // The wait policy for `rank_count` ranks on `cpu_count` CPUs. It spins very little if ranks are
  // oversubscribed, and not at all where a poll is a system call.
  WaitPolicy wait_policy(int rank_count, int cpu_count, bool is_poll_call) const;
};

// Errors of all: invalid_argument naming the variable, what it was given and what was expected.
Result<TransportSettings> read_transport_settings(const Environment& environment);
Result<WorldSettings> read_settings(const Environment& environment);

}  // namespace tutti
