// Rabenseifner allreduce: recursive halving and doubling of a vector of P = 2^k blocks, near partners first,
// so that the large messages stay near.
// Knows nothing of transports, dtypes, time or memory.
//
// p = 5: P = 4 groups led by 0, 2, 3, 4; rank 1 folds into rank 0. Blocks held (with whose contributions):
//                rank 0        rank 1      rank 2      rank 3      rank 4
//   split fold   0-1 (0,1)     2-3 (0,1)   0-3 (2)     0-3 (3)     0-3 (4)
//                0-3 (0,1)     .
//   distance 1   0-1 (0-2)     .           2-3 (0-2)   0-1 (3,4)   2-3 (3,4)
//   distance 2   0 (all)       .           2 (all)     1 (all)     3 (all)
// and back the same way, then rank 0 hands the result to rank 1. Blocks are numbered by reversed bits of the
// rank that finishes them, so every message is one range.
//
// input, output: count elements; scratch: 3/4 count
// rounds 2 log2 P (+ 3 unless p = P)
// bytes sent per rank 2(P-1)/P m (+ 3/2 m)
// order: rank order
// Segments pay for large vectors.
// Source: Rabenseifner, ICCS 2004, with its split fold; distances doubling.
#include "runtime/algorithms/patterns/allgather_patterns.hpp"
#include "runtime/algorithms/patterns/groups.hpp"

namespace tutti {
namespace {

// A pair adds half of the vector each; then the leader (the lower rank) gets the other half's sums, and goes
// on from its output.
void fold(Builder& b, std::uint32_t leader, std::uint32_t half) {
  const bool is_leader = b.rank() == leader;
  const std::uint32_t partner = is_leader ? leader + 1 : leader;
  const std::uint32_t kept = is_leader ? 0 : half, given = half - kept;
  const Slice arrived = b.scratch(0, kept, half), own = b.input(kept, half), sum = b.output(kept, half);
  b.send(partner, b.input(given, half));
  b.recv(partner, arrived);
  if (is_leader) {
    b.recv(partner, b.output(given, half));
    b.reduce(sum, {own, arrived});
  } else {
    b.reduce(sum, {arrived, own});
    b.send(partner, sum);
  }
}

}  // namespace

Result<Schedule> allreduce_rabenseifner(const CollectiveSpec& spec, const GroupView& view,
                                        const AlgorithmParams&) {
  const RankGroups groups{view.size, floor_power(view.size, 2).value};
  Builder b(spec, view, groups.count);
  const std::uint32_t group = groups.group_of(b.rank()), leader = groups.leader(group);
  const bool is_pair = groups.size(group) == 2;
  if (is_pair) fold(b, leader, groups.count / 2);
  if (b.rank() == leader) {
    ExchangePattern pattern = butterfly_pattern(groups.count, group, ButterflyOrder::far_first_ranges);
    for (ExchangeRound& round : pattern.rounds) {
      for (BlockMessage& message : round.sends) message.peer = groups.leader(message.peer);
      for (BlockMessage& message : round.recvs) message.peer = groups.leader(message.peer);
    }
    emit_reduce_scatter(b, pattern, is_pair ? PartialSums::from_output : PartialSums::in_output);
    emit_allgather(b, pattern, OwnBlock::in_output);
    if (is_pair) b.send(leader + 1, b.output(0, groups.count));
  } else {
    b.recv(leader, b.output(0, groups.count));
  }
  return std::move(b).finish();
}

}  // namespace tutti
