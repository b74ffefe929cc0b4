// Broadcast as a scatter down a binomial tree and an allgather around a ring.
// Knows nothing of transports, dtypes, time or memory.
//
// p = 4, root 0; blocks held after the scatter, and what the ring still brings:
//   rank 0   0 1 2 3     -
//   rank 1   1           0 3 2
//   rank 2   2 3         1 0
//   rank 3   3           2 1 0
// What a rank already holds from the scatter is not sent to it again, the root receives nothing.
//
// input (root): count elements; output: count elements; scratch: none
// rounds p-1
// bytes sent by the root 2(p-1)/p m, by others at most (p-1)/p m plus what they scatter
// Source: Barnett, Shuler, van de Geijn, Gupta, Payne, Watts 1994; without the double deliveries, Zhou,
//   Marjanović, Niethammer, Gracia, ICPP workshops 2015.
#include "runtime/algorithms/patterns/spread.hpp"
#include "runtime/algorithms/patterns/trees.hpp"

namespace tutti {
namespace {

// How many blocks node v holds after the scatter: v, v + 1, ...
std::uint32_t held(std::uint32_t v, std::uint32_t p) {
  std::uint32_t count = 1;
  for (const TreeChild& child : knomial_tree(v, p).children) count += child.count;
  return count;
}

}  // namespace

Result<Schedule> broadcast_scatter_allgather(const CollectiveSpec& spec, const GroupView& view,
                                             const AlgorithmParams&) {
  Builder b(spec, view, view.size);
  const std::uint32_t p = b.size(), root = b.root(), r = b.rank(), v = (r + p - root) % p;
  const std::uint32_t next = (r + 1) % p, previous = (r + p - 1) % p;
  Moves moves = knomial_scatter_moves(spread_view(b), 2);
  const std::uint32_t mine = held(v, p), theirs = held((v + 1) % p, p);
  for (std::uint32_t s = 0; s + 1 < p; ++s) {
    // Block r - s goes on, block r - s - 1 arrives: each lies `offset` places above its receiver.
    const std::uint32_t offset = p - 1 - s;
    if (offset >= mine) moves.push_back({false, previous, std::int64_t{r} - s - 1, 1});
    if (offset >= theirs) moves.push_back({true, next, std::int64_t{r} - s, 1});
  }
  emit_broadcast(b, moves, p);
  return std::move(b).finish();
}

}  // namespace tutti
