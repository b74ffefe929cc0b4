// Why a call on buffers of GPUs runs on the engine that it runs on: every engine with its price and the
// reason. Needs no GPU, no driver and no NCCL; takes them for granted.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backends/cuda/engine_prices.hpp"
#include "runtime/base/status.hpp"
#include "runtime/selection/selection.hpp"

namespace tutti {

// The machine that an explanation assumes: all ranks are processes with a driver and NCCL, and the GPUs of a
// node reach each other's memory.
struct DeviceSetting {
  DeviceLayout layout;
  DeviceModel model;
  std::uint32_t gpus_per_node = 1;  // fewer than ranks: these share them
  Dtype dtype = Dtype::f32;
};

struct EngineCandidate {
  DeviceEngineKind kind = DeviceEngineKind::staged;
  std::optional<EnginePrice> price;  // none where the engine refuses the call, or GPUs are shared
  bool is_possible = false, is_chosen = false;
  std::string reason;  // of the chosen engine, what decided; of the others, why not
};

struct DeviceExplanation {
  Selection chosen;       // not made: the price has decided
  std::string rule;       // the item that decided, in the grammar of rules; empty: none
  std::string algorithm;  // of the catalogue, where the engine runs one
  DeviceEngineKind engine = DeviceEngineKind::staged;
  std::vector<EngineCandidate> candidates;  // the cheapest first, then those that refuse the call
};

// Errors: those of Selector::choose; unsupported, if a named engine refuses the call.
Result<DeviceExplanation> explain_device(const Selector& selector, const Question& question,
                                         std::string_view argument, const DeviceSetting& setting);

}  // namespace tutti
