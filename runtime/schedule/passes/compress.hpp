// Compression: messages travel in a narrower dtype, sums are formed in the dtype itself. Knows neither dtype, and no
// address: it says which values are rounded, and where.
#pragma once

#include "runtime/base/status.hpp"
#include "runtime/schedule/hierarchy.hpp"
#include "runtime/schedule/schedule.hpp"

namespace tutti {

// Is there a compressed form of the collective's schedules? Of those that add.
constexpr bool is_compressible(Collective collective) {
  return collective == Collective::allreduce || collective == Collective::reduce ||
         collective == Collective::reduce_scatter;
}

// The same steps, with messages to ranks of other domains in the wire dtype; all messages where there are no domains
// (null). Each location has a wire copy.
//
//   send output[3] to 1                        recv scratch.0[3] from 0
//                                              reduce output[3] = scratch.0[3] + input[3]
//
//   copy wire output[3] = output[3]            recv wire scratch.0[3] from 0
//   send wire output[3] to 1                   reduce output[3] = wire scratch.0[3] + input[3]
//
// A sent value is rounded once, and from then on the sender, too, reads the rounded one: so ranks that formed equal
// trees of additions still do. The result of an allreduce is rounded where it is formed, since other ranks may be
// sent it. A result that is left in a wire copy is copied out on a channel of its own, the last,
// so that no message waits for it. Where segments are wanted, cut them first.
// Errors: unsupported for a schedule that is lowered or compressed already, and for one that hands a value that it
// may not write on both rounded and in full.
Result<Schedule> compress(const Schedule& schedule, const Hierarchy* domains);

}  // namespace tutti
