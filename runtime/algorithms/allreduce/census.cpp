// Census allreduce: whole vectors, each rank's sum covers a window of ranks that ends at itself and doubles;
// ceil(log2 p) rounds for any p, the fewest there are.
// Knows nothing of transports, dtypes, time or memory.
//
// A = sum over the n ranks ending here, B = the same without this rank's own. p = 5, windows 1 2 3 5:
//   n = 1 -> 2   A from r-1                    A: r-1..r   B: r-1
//   n = 2 -> 3   B from r-1 (its r-2)          A: r-2..r   B: r-2..r-1
//   n = 3 -> 5   B from r-2 (its r-4..r-3)     A: all
//
// input, output: count elements; scratch: 2 * count
// rounds ceil(log2 p)
// bytes sent per rank m ceil(log2 p)
// order: by distance, another on each rank -> needs a commutative op, and the ranks' results may differ in
//   their last bits.
// Segments do not pay (tiny vectors only).
// Source: Bar-Noy, Kipnis, Schieber, 1993.
#include "runtime/algorithms/patterns/allgather_patterns.hpp"

namespace tutti {

Result<Schedule> allreduce_census(const CollectiveSpec& spec, const GroupView& view, const AlgorithmParams&) {
  Builder b(spec, view, 1);
  const std::uint32_t p = b.size();
  const auto windows = circulant_windows(p);
  const Slice without_own = b.scratch(0, 0), arrived = b.scratch(1, 0);
  Slice sum = b.input(0);
  if (p == 1) b.copy(b.output(0), sum);
  for (std::size_t i = 0; i + 1 < windows.size(); ++i) {
    const std::uint32_t n = windows[i], next = windows[i + 1];
    const bool is_doubling = next == 2 * n, is_last = i + 2 == windows.size();
    const std::uint32_t distance = is_doubling ? n : n - 1;
    const Slice received = i == 0 ? without_own : arrived;
    b.send((b.rank() + distance) % p, is_doubling ? sum : without_own);
    b.recv((b.rank() + p - distance) % p, received);
    b.reduce(b.output(0), {received, sum});
    sum = b.output(0);
    if (i > 0 && !is_last) b.reduce(without_own, {received, without_own});
  }
  return std::move(b).finish();
}

}  // namespace tutti
