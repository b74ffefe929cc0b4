// Recursive doubling barrier: in step j pairs of ranks 2^j apart tell each other what they know.
// Knows nothing of transports, dtypes, time or memory.
//
// p = 5 is folded into 4 groups, {0 1} {2} {3} {4}; rank 1 reports to rank 0 and waits for its word:
//   1 -> 0      0 <-> 2, 3 <-> 4      0 <-> 3, 2 <-> 4      0 -> 1
//
// One empty atom, so that a message is a flag.
// rounds floor(log2 p), and 2 where p is no power of two; bytes 0.
// Each rank talks to one partner per step, in both directions; dissemination needs fewer rounds for most p.
#include "runtime/algorithms/patterns/groups.hpp"
#include "runtime/schedule/builder.hpp"

namespace tutti {

Result<Schedule> barrier_recursive_doubling(const CollectiveSpec& spec, const GroupView& view,
                                            const AlgorithmParams&) {
  Builder b(spec, view, 1);
  const Power power = floor_power(b.size(), 2);
  const RankGroups groups{b.size(), power.value};
  const std::uint32_t r = b.rank(), group = groups.group_of(r), leader = groups.leader(group);
  if (b.size() == 1) b.copy(b.output(0), b.input(0));
  if (r != leader) {
    b.send(leader, b.input(0));
    b.recv(leader, b.output(0));
    return std::move(b).finish();
  }
  Slice known = b.input(0);
  std::uint32_t slots = 0;
  const auto learn_from = [&](std::uint32_t peer, bool answers) {
    const Slice arrival = b.scratch(slots++, 0);
    b.recv(peer, arrival);
    if (answers) b.send(peer, known);
    b.reduce(b.output(0), {known, arrival});
    known = b.output(0);
  };
  const bool has_member = groups.size(group) > 1;
  if (has_member) learn_from(r + 1, false);
  for (std::uint32_t j = 0; j < power.exponent; ++j) learn_from(groups.leader(group ^ (1U << j)), true);
  if (has_member) b.send(r + 1, known);
  return std::move(b).finish();
}

}  // namespace tutti
