// The verifier: runs the schedules of all ranks symbolically and proves their promise, or names the mistake.
// Knows no transport and no memory. Executes the issue rule of schedule.hpp with rendezvous sends, so that an
// accepted schedule cannot deadlock on any transport, whatever it buffers.
//
// Proved: every output atom has the contents that the collective promises; messages match and keep their
// shape; freedom from deadlock; no two unordered steps touch one location when one writes; bounds; no read of
// unwritten memory.
// A *compressed* schedule (wire copies) rounds what it sends to another dtype. There equal trees are equal with
// their roundings, sums are formed in the dtype itself, and a value is rounded only for a message that carries it.
// A *lowered* schedule (signal, wait, slices of other ranks) runs each channel of each rank as one sequential
// thread. There the same is proved across ranks by happens-before. Besides, no rank touches another's memory
// before that rank has entered the operation or after it may have left it.
#pragma once

#include <span>
#include <string>

#include "runtime/base/status.hpp"
#include "runtime/schedule/schedule.hpp"

namespace tutti {

// How values are represented while a schedule runs symbolically.
enum class Algebra : std::uint8_t {
  multiset,  // which contributions were added; adding one twice is an error (commutative ops)
  word,      // contributions in the order they were combined; must be rank order (non-commutative ops, scan)
  expression,  // the tree of additions, a + b = b + a: equal trees on all ranks mean equal bits. Proves order
               // and deadlock freedom as the others do, but which contributions arrived is for them to prove
};

struct VerifyReport {
  std::uint64_t rounds = 0;          // longest chain of messages (lowered: of waits)
  std::uint64_t max_sent_atoms = 0;  // most atoms that one rank sends
  std::uint64_t messages = 0;        // of all ranks (lowered: signals)
  bool same_bits = false;            // expression algebra: ranks promised the same value hold equal trees
  std::uint32_t roundings = 0;       // expression algebra: most roundings between a contribution and a result
  bool v_safe = true;                // usable with unequal counts; only alltoall can lack it
  std::string not_v_safe;            // the first step that says why not
};

// `ranks[r]` is rank r's schedule; all of one collective, size, root, placement and grid.
// Errors: internal, with a message that names rank, step, peer and what was expected; invalid_argument for
// send_recv, which promises nothing over a group.
// Cost: proportional to the atoms moved; lowered schedules also ranks x channels per wait.
Result<VerifyReport> verify(std::span<const Schedule> ranks, Algebra algebra);

}  // namespace tutti
