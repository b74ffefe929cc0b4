// Direct reduce: every rank collects one block from all, adds it in rank order, and hands it to the root.
// Knows nothing of transports, dtypes, time or memory.
//
// p = 4, root 0; what rank 2 does:
//   sends block d of its input to rank d; receives block 2 of ranks 0, 1, 3
//   block 2 = (((x0 + x1) + x2) + x3), to rank 0
//
// input: count elements; output (root): count elements; scratch: (p-1) * ceil(count/p)
// rounds 2
// bytes sent per rank m
// order: rank order for every root -> any op, same bits whatever the root.
// The linear reduce of large vectors: no rank receives more than 2 m, and every rank adds its share.
// Source: the two-shot allreduce of shared-memory and NVLink libraries, its second half to one rank only.
#include <vector>

#include "runtime/schedule/builder.hpp"

namespace tutti {

Result<Schedule> reduce_direct(const CollectiveSpec& spec, const GroupView& view, const AlgorithmParams&) {
  Builder b(spec, view, view.size);
  const std::uint32_t p = b.size(), r = b.rank();
  const bool is_root = r == b.root();
  std::vector<Slice> terms(p, b.input(r));
  for (std::uint32_t d = 1; d < p; ++d) {
    const std::uint32_t to = (r + d) % p, from = (r + p - d) % p;
    terms[from] = b.scratch(d - 1, r);
    b.recv(from, terms[from]);
    b.send(to, b.input(to));
  }
  const Slice sum = is_root || p == 1 ? b.output(r) : b.scratch(0, r);
  b.reduce(sum, terms);
  if (!is_root) b.send(b.root(), sum);
  for (std::uint32_t d = 1; is_root && d < p; ++d) b.recv((r + d) % p, b.output(r + d));
  return std::move(b).finish();
}

}  // namespace tutti
