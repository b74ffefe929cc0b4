// Ring allreduce: a reduce-scatter around the ring, then an allgather around the ring; fewest bytes, any p.
// Knows nothing of transports, dtypes, time or memory.
//
// p = 4, blocks 0..3; after step s of the first phase, whose contributions the just reduced block holds:
//            rank 0        rank 1        rank 2        rank 3
//   s = 0    3: 3,0        0: 0,1        1: 1,2        2: 2,3
//   s = 1    2: 2,3,0      3: 3,0,1      0: 0,1,2      1: 1,2,3
//   s = 2    1: all        2: all        3: all        0: all
// Rank r then owns block r+1, and p-1 further steps hand the finished blocks around.
//
// Every block is added in one order (starting at its own rank), wherever it is needed later: all ranks get
// the same bits.
// rounds 2(p-1)
// bytes sent per rank 2(p-1)/p m
// order: rotated per block -> needs a commutative op
//
// Source: Patarasuk, Yuan, JPDC 2009.
#include "runtime/schedule/builder.hpp"

namespace tutti {

Result<Schedule> allreduce_ring(const CollectiveSpec& spec, const GroupView& view, const AlgorithmParams&) {
  Builder b(spec, view, view.size);
  const std::uint32_t p = b.size(), next = (b.rank() + 1) % p, previous = (b.rank() + p - 1) % p;
  const auto r = static_cast<std::int64_t>(b.rank());
  if (p == 1) b.copy(b.output(0), b.input(0));
  for (std::uint32_t s = 0; s + 1 < p; ++s) {
    b.send(next, s == 0 ? b.input(r) : b.output(r - s));
    const Slice arrived = b.scratch(s % 2, r - s - 1);
    b.recv(previous, arrived);
    b.reduce(b.output(r - s - 1), {arrived, b.input(r - s - 1)});
  }
  for (std::uint32_t s = 0; s + 1 < p; ++s) {
    b.send(next, b.output(r + 1 - s));
    b.recv(previous, b.output(r - s));
  }
  return std::move(b).finish();
}

}  // namespace tutti
