// Segmentation: cuts every block into segments that travel on their own, so that moving one overlaps with
// reducing another. Knows no counts: how large a segment is follows from the chunk map.
#pragma once

#include "runtime/base/status.hpp"
#include "runtime/schedule/schedule.hpp"

namespace tutti {

// The grid becomes blocks x segments: a slice of blocks becomes, for segment s, the strided slice of their
// segments s. Segment s of channel c runs on channel c * channels + s mod channels. Every segment has its own
// scratch slots (as many bytes in all as before). Rounds and bytes sent do not change.
// Order within a channel: "send k + 1 while reducing k"; free of deadlock whenever `schedule` is (segment.cpp
// has the argument).
// Errors: invalid_argument for a schedule that is segmented or lowered already, for zero segments or channels
// and for a grid or channel number out of range.
Result<Schedule> segment(const Schedule& schedule, std::uint32_t segments, std::uint32_t channels = 1);

}  // namespace tutti
