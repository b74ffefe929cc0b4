// Random submitted operations of several groups at once, by a thread for each group. Through the public
// interface; knows no transport.
#pragma once

#include "tests/support/thread_ranks.hpp"

namespace tutti {

// So many operations of each of four groups of `world`, which has four ranks: a stream, one of all ranks, and
// two of three, which overlap. Ended in orders of each rank's own by waiting, testing or a callback, and
// compared with what they must give. The first complaint. TUTTI_TEST_FRACTION makes them fewer.
Verdict run_overlapping_groups(CommGroup& world, int operations);

}  // namespace tutti
