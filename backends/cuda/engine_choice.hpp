// The choice of a device engine: a rule or an argument names it, else the lowest price decides.
// Pure and in integer arithmetic, so that all ranks choose alike. Calls and explanations choose here; each
// says by a survey which engines there are.
#pragma once

#include <optional>
#include <string_view>

#include "backends/cuda/engine_prices.hpp"
#include "runtime/base/status.hpp"
#include "runtime/selection/selection.hpp"

namespace tutti {

// The engine that a rule's item or an argument means; null if it leaves the choice. A row that our kernels
// implement means the kernels, every other row the schedules over CUDA IPC.
std::optional<DeviceEngineKind> engine_named_by(std::optional<DeviceEngineKind> engine,
                                                const AlgorithmRow* row);

// Which engines can carry out one call. Answers are equal on all ranks.
class EngineSurvey {
 public:
  // ok, or why the engine cannot carry out the call. May be collective.
  virtual Status refusal_of(DeviceEngineKind kind) = 0;
  // Why only a name may choose the engine; empty: its price may, too. May be collective.
  virtual std::string_view reservation_of(DeviceEngineKind kind) = 0;

 protected:
  ~EngineSurvey() = default;
};

// The engine of a call; the survey was asked for its refusal last. A named engine carries out the call or the
// choice fails with the reason, with one exception: algorithms of the catalogue are staged where GPUs cannot
// run them. Errors: unsupported.
Result<DeviceEngineKind> choose_engine(const Selection& selection, const Question& question,
                                       const EngineOffers& offers, EngineSurvey& survey);

}  // namespace tutti
