// Dissemination barrier: in step j every rank tells the ranks radix^j, 2 radix^j, ... places up what it
// knows.
// Knows nothing of transports, dtypes, time or memory.
//
// p = 5, radix 2; whose arrival each rank knows of after step j:
//            rank 0       rank 1       rank 2       rank 3       rank 4
//   j = 0    4-0          0-1          1-2          2-3          3-4
//   j = 1    2-0          3-1          4-2          0-3          1-4
//   j = 2    all          all          all          all          all
//
// One empty atom, so that a message is a flag.
// rounds ceil(log_radix p) of up to radix-1 messages; bytes 0.
// Source: Hensgen, Finkel, Manber, IJPP 1988; radix > 2 as in MPICH's k-way dissemination.
#include <algorithm>
#include <vector>

#include "runtime/schedule/builder.hpp"

namespace tutti {

Result<Schedule> barrier_dissemination(const CollectiveSpec& spec, const GroupView& view,
                                       const AlgorithmParams& params) {
  Builder b(spec, view, 1);
  const std::uint64_t p = b.size(), r = b.rank(), radix = std::max(params.radix, 2U);
  Slice known = b.input(0);
  if (p == 1) b.copy(b.output(0), known);
  std::uint32_t slots = 0;
  for (std::uint64_t weight = 1; weight < p; weight *= radix) {
    std::vector<Slice> arrivals = {known};
    for (std::uint64_t d = weight; d < std::min(weight * radix, p); d += weight) {
      arrivals.push_back(b.scratch(slots++, 0));
      b.recv(static_cast<std::uint32_t>((r + p - d) % p), arrivals.back());
      b.send(static_cast<std::uint32_t>((r + d) % p), known);
    }
    known = b.output(0);
    b.reduce(known, arrivals);
  }
  return std::move(b).finish();
}

}  // namespace tutti
