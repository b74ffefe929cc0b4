// Linear reduce: every rank sends its vector to the root, which adds all of them at once in rank order.
// Knows nothing of transports, dtypes, time or memory.
//
// input: count elements; output (root): count elements; scratch (root): (p-1) * count
// rounds 1
// bytes sent per rank m, received by the root (p-1) m
// order: rank order for every root, so the row serves ops that do not commute and gives the same bits
//   whatever the root.
// Source: MPI implementations' linear reduce; here one n-ary addition instead of p-1 passes over the result.
#include <vector>

#include "runtime/schedule/builder.hpp"

namespace tutti {

Result<Schedule> reduce_linear(const CollectiveSpec& spec, const GroupView& view, const AlgorithmParams&) {
  Builder b(spec, view, 1);
  if (b.rank() != b.root()) {
    b.send(b.root(), b.input(0));
    return std::move(b).finish();
  }
  std::vector<Slice> terms;
  for (std::uint32_t peer = 0, slots = 0; peer < b.size(); ++peer) {
    terms.push_back(peer == b.rank() ? b.input(0) : b.scratch(slots++, 0));
    if (peer != b.rank()) b.recv(peer, terms.back());
  }
  b.reduce(b.output(0), terms);
  return std::move(b).finish();
}

}  // namespace tutti
