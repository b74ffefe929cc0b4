// Runs resolved epochs: the only code that reads and writes control blocks and peers' buffers. Calls without
// an operation (cached_call.hpp) and operations (lowered_run.hpp) differ in what they do at a wait, and in
// whether they make way for others. Knows no slot, no epoch number and no group.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/kernels/kernels.hpp"
#include "runtime/scheduler/helper_threads.hpp"
#include "runtime/scheduler/resolved_call.hpp"

namespace tutti {

// A longer pass over the data goes piece by piece. In between others may have the progress lock: they wait for
// it no longer than a turn takes.
constexpr std::size_t kInterruptibleBytes = std::size_t{512} << 10U;
constexpr std::size_t kTurnBytes = std::size_t{64} << 10U;

// Runs the steps from `from` on, which points into epoch.steps. Returns the step at which it stopped, or the
// end of the steps. `Driver`: bool may_go_on(), bool work(step), void signal(step), bool wait(step); the first
// false stops.
template <class Driver>
inline const ResolvedStep* run_steps(const ResolvedEpoch& epoch, const ResolvedStep* from, Driver& driver) {
  const ResolvedStep* step = from;
  for (const ResolvedStep* const end = epoch.steps.data() + epoch.steps.size(); step != end;
       step += 1U + step->more_stores) {
    if (!driver.may_go_on()) return step;
    switch (step->kind) {
      case LoweredStep::Kind::copy:
      case LoweredStep::Kind::reduce:
        if (!driver.work(*step)) return step;
        break;
      case LoweredStep::Kind::signal:
        driver.signal(*step);
        break;
      case LoweredStep::Kind::wait:
        if (!driver.wait(*step)) return step;
        break;
    }
  }
  return step;
}

// A plain step: one pass to one place.
inline void run_plain(const ResolvedEpoch& epoch, const std::uintptr_t* origins, const ResolvedStep& step,
                      KernelFn kernel) {
  const ResolvedPlace* const sources = epoch.sources.data() + step.first_source;
  if (step.kind == LoweredStep::Kind::copy)
    return copy_bytes(step.at.in(origins), sources[0].in(origins), step.bytes);
  std::array<const void*, 256> from;
  for (std::uint32_t i = 0; i < step.source_count; ++i) from[i] = sources[i].in(origins);
  kernel(nullptr, step.at.in(origins), from.data(), step.source_count, step.count);
}

// The call as passes over its data see it.
struct PassSettings {
  const ResolvedEpoch* epoch = nullptr;
  const std::uintptr_t* origins = nullptr;
  KernelFn kernel = nullptr;
  StreamKernelFn stream_kernel = nullptr;
  StagingStores* stores = nullptr;
  const LoweredLimits* limits = nullptr;
  std::size_t element_bytes = 1;
  bool streams = false;
  bool is_direct = false;
  bool is_over_input = false;                           // the own output has been input of this rank
  const std::atomic<std::uint32_t>* wanting = nullptr;  // while it is not zero, a long pass makes way
  HelperThreads* helpers = nullptr;                     // null: the rank has none

  bool should_share(const ResolvedStep& step) const {
    return helpers != nullptr && helpers->should_share(step.bytes * step.source_count);
  }
};
// A step that is not plain, and the stores behind it that belong to it, from `offset` on. False: it made way
// for others and goes on at `offset`, which is 0 at the end.
bool run_pass(std::span<const ResolvedStep> stores, const PassSettings& settings, std::size_t* offset);
inline std::span<const ResolvedStep> stores_of(const ResolvedStep& step) {
  return {&step, std::size_t{1} + step.more_stores};
}

}  // namespace tutti
