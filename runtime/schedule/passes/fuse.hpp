// Fusion: marks steps that may run in one pass over the data. Knows no transport: whoever runs the schedule
// decides whether to use a mark.
#pragma once

#include "runtime/base/status.hpp"
#include "runtime/schedule/schedule.hpp"

namespace tutti {

// Sets Step::fused_with; steps, order, dependencies and expression trees stay as they are.
//   recv -> reduce    the reduce may take the arriving message in place of the scratch slice: that slice is
//                     exactly one of its sources, nobody else reads it, and everything else the reduce waits
//                     for is complete before the recv is issued (so consuming the message never waits)
//   reduce -> send,   the next step of the channel sends exactly what was just written and waits for nothing
//   copy -> send      else: the message may be written in the same pass
//   reduce -> copy,   lowered: the next step of the channel stores exactly what was just written to one more
//   copy -> copy      place; a chain of them is one load and many stores
// Every mark satisfies check_fusion(), which the verifier applies too.
Schedule fuse(Schedule schedule);

// Are all marks of the schedule (well formed otherwise) safe? Says which is not, and why.
Status check_fusion(const Schedule& schedule);

}  // namespace tutti
