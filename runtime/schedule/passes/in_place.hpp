// The form of a schedule for calls in place, where input and output are the same memory. Knows no address.
#pragma once

#include "runtime/schedule/schedule.hpp"

namespace tutti {

// The schedule of a call that is not in place, with its input where its output is: the same steps but for
// copies of a place onto itself, and dependencies that follow from the new places. It writes what the given
// one writes and nothing else: an in-place reduce_scatter leaves the blocks of other ranks alone. Whether it
// computes the same is for the verifier to say; it does where no step writes a place whose input a later one
// reads.
Schedule put_input_into_output(const Schedule& schedule);

}  // namespace tutti
