// Moments in the life of a named tensor, for timelines. Knows no file, no queue and no group.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/base/running_clock.hpp"
#include "runtime/base/types.hpp"

namespace tutti {

// A tensor is in one phase at a time; the next phase ends it.
enum class TensorPhase : std::uint8_t {
  negotiating,  // this rank has submitted it, and others may not have
  queued,       // ready on all ranks
  copying_in,   // into the memory of an operation that carries several tensors
  allocating,   // the program makes the output
  moving,       // the collective
  copying_out,
  done,  // complete, or failed
};
inline constexpr int kTensorPhaseCount = 7;

struct TensorEvent {
  std::string tensor;
  Collective collective = Collective::allreduce;
  TensorPhase phase = TensorPhase::negotiating;  // that begins
  std::uint32_t rank = 0;
  SteadyClock::time_point time;  // of rank 0's clock
  std::string arguments;  // members of a JSON object, about the phase that begins; not sent to other ranks

  bool operator==(const TensorEvent&) const = default;
};

}  // namespace tutti
