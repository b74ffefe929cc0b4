// Staging: a rank first copies into its scratch the data that it sends from a user's buffer, so that peers
// which share only scratch can read it. Knows no address and no cache line.
#pragma once

#include "runtime/schedule/schedule.hpp"

namespace tutti {

// Every send takes its data from scratch: from a new slot, written right before the first send of a slice.
// Later sends use it until the slice is written again. An authored schedule stays an authored one, with the
// same messages. Lowered schedules are returned as they are.
Schedule stage(const Schedule& schedule);

}  // namespace tutti
