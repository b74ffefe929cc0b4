// Scan and exscan by recursive doubling (Hillis, Steele): in step d every rank hands the sum of the d ranks
// that end with it to the rank d places up.
// Knows nothing of transports, dtypes, time or memory.
//
// p = 5; which ranks' contributions each rank has summed after step d:
//            rank 0   rank 1   rank 2   rank 3   rank 4
//   start    0        1        2        3        4
//   d = 1    0        0-1      1-2      2-3      3-4
//   d = 2    0        0-1      0-2      0-3      1-4
//   d = 4    0        0-1      0-2      0-3      0-4
// Exscan adds what arrived, without the own contribution, in one pass at the end; rank 0 writes nothing.
//
// input, output: count elements; scratch: ceil(log2 p) * count, exscan twice that
// rounds floor(log2 p) (the last step's message often needs no earlier one)
// bytes sent per rank ceil(log2 p) m
// order: rank order -> any op; the grouping of additions differs from rank to rank.
// Source: Hillis, Steele, CACM 1986.
#include <vector>

#include "runtime/schedule/builder.hpp"

namespace tutti {

Result<Schedule> scan_recursive_doubling(const CollectiveSpec& spec, const GroupView& view,
                                         const AlgorithmParams&) {
  Builder b(spec, view, 1);
  const bool is_exclusive = spec.collective == Collective::exscan;
  const std::uint64_t p = b.size(), r = b.rank();
  Slice sum = b.input(0);      // of the ranks that end here
  std::vector<Slice> arrived;  // latest first, which is rank order
  std::uint32_t slots = 0;
  for (std::uint64_t d = 1; d < p; d *= 2) {
    if (r >= d) {
      arrived.insert(arrived.begin(), b.scratch(slots++, 0));
      b.recv(static_cast<std::uint32_t>(r - d), arrived.front());
    }
    if (r + d < p) b.send(static_cast<std::uint32_t>(r + d), sum);
    if (r < d || (is_exclusive && r + 2 * d >= p)) continue;  // exscan keeps sums only to hand them on
    // Never into the place of the old sum: that would wait until it has left.
    const bool is_last = r < 2 * d;
    const Slice next_sum = is_exclusive ? b.scratch(slots++, 0) : is_last ? b.output(0) : arrived.front();
    b.reduce(next_sum, {arrived.front(), sum});
    sum = next_sum;
  }
  if (is_exclusive && !arrived.empty()) b.reduce(b.output(0), arrived);
  if (!is_exclusive && r == 0) b.copy(b.output(0), b.input(0));
  return std::move(b).finish();
}

}  // namespace tutti
