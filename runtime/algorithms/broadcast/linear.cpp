// Linear broadcast: the root sends to every rank itself.
// Knows nothing of transports, dtypes, time or memory.
//
// p = 4, root 0:   0 -> 1, 0 -> 2, 0 -> 3, all at once
//
// input (root): count elements; output: count elements; scratch: none
// rounds 1
// bytes sent by the root (p-1) m
// Where ranks read the root's memory themselves (shared memory) they do so side by side, and the root only
// says where it lies.
// Source: textbook.
#include "runtime/schedule/builder.hpp"

namespace tutti {

Result<Schedule> broadcast_linear(const CollectiveSpec& spec, const GroupView& view, const AlgorithmParams&) {
  Builder b(spec, view, 1);
  if (b.rank() != b.root()) {
    b.recv(b.root(), b.output(0));
    return std::move(b).finish();
  }
  for (std::uint32_t d = 1; d < b.size(); ++d) b.send((b.root() + d) % b.size(), b.input(0));
  b.copy(b.output(0), b.input(0));
  return std::move(b).finish();
}

}  // namespace tutti
