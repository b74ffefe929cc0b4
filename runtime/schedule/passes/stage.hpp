// Staging: what a rank sends from a user's buffer it first copies into its scratch, so that peers that share
// only scratch can read it there. Knows no address and no cache line.
#pragma once

#include "runtime/schedule/schedule.hpp"

namespace tutti {

// Every send takes its data from scratch: from a new slot, written right before the first send of a slice and
// used by all later sends of it until the slice is written again. An authored schedule stays an authored one,
// with the same messages. Lowered schedules are returned as they are.
Schedule stage(const Schedule& schedule);

}  // namespace tutti
