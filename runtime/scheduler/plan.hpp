// A plan: one rank's schedule compiled for execution. Structure only: no counts, no pointers, no endpoints,
// so one plan serves every call of a signature. Knows no transport and no dtype.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/base/status.hpp"
#include "runtime/schedule/schedule.hpp"

namespace tutti {

// One step; 32 bytes, so that two share a cache line. Steps of a channel lie behind one another in issue
// order.
struct PlanStep {
  enum class Kind : std::uint8_t { send, recv, recv_reduce, copy, reduce };
  Kind kind = Kind::copy;
  std::uint8_t source_count = 0;
  std::uint8_t arriving = 0;  // recv_reduce: which source of the reduction is the arriving message
  std::uint8_t channel = 0;
  std::uint32_t peer = 0;          // of a copy to a wire copy: how many round this value, 0 where nobody asks
  std::uint32_t dst = 0;           // in Plan::slices; send: the slice sent
  std::uint32_t first_source = 0;  // in Plan::slices
  std::uint32_t first_wait = 0;    // in Plan::waits: steps that must be complete before this one is issued
  std::uint32_t wait_count = 0;
  std::uint32_t first_range = 0;  // this step's part of an operation's range list
  std::uint32_t range_count = 0;  // at most
};
static_assert(sizeof(PlanStep) == 32);

struct PlanChannel {
  std::uint32_t first_step = 0;
  std::uint32_t end_step = 0;
};

struct Plan {
  Schedule shape;  // grid, windows and scratch of the schedule; its step lists are emptied
  std::vector<PlanChannel> channels;
  std::vector<PlanStep> steps;
  std::vector<Slice> slices;
  std::vector<std::uint32_t> waits;
  std::uint32_t range_count = 0;  // ranges that an operation needs
  std::size_t bytes() const;
};

// A recv marked as fused with a reduction (passes/fuse.hpp) becomes one step that reads the message where it
// lies; that needs transports with in-place delivery. The other marks are not used by message plans. Errors:
// unsupported for a reduction of more than 255 sources; internal for a lowered schedule.
Result<Plan> compile(Schedule schedule);

}  // namespace tutti
