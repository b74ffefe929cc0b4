// Scan and exscan along a chain: each rank adds its vector to what it receives and hands the sum on.
// Knows nothing of transports, dtypes, time or memory.
//
// p = 4, exscan; what leaves and what stays:
//   rank 0    sends x0               output untouched
//   rank 1    sends x0 + x1          output x0
//   rank 2    sends x0 + x1 + x2     output x0 + x1
//   rank 3                           output x0 + x1 + x2
// The vector travels in `segments` blocks, so that p ranks work at the same time.
//
// input, output: count elements; scratch: none to 2 * count
// rounds p-1
// bytes sent per rank m
// order: rank order -> any op, same bits as a serial loop over the ranks.
#include "runtime/schedule/builder.hpp"

namespace tutti {

Result<Schedule> scan_chain(const CollectiveSpec& spec, const GroupView& view,
                            const AlgorithmParams& params) {
  const std::uint32_t blocks = params.segments;
  Builder b(spec, view, blocks);
  const bool is_exclusive = spec.collective == Collective::exscan;
  const bool has_previous = b.rank() > 0, has_next = b.rank() + 1 < b.size();

  // Where the sum of all lower ranks arrives; the output of exscan itself, unless it still holds the input.
  const auto before = [&](std::uint32_t k) {
    return is_exclusive && !b.in_place() ? b.output(k) : b.scratch(k, k);
  };
  if (has_previous) b.recv(b.rank() - 1, before(0));
  for (std::uint32_t k = 0; k < blocks; ++k) {
    if (has_previous && k + 1 < blocks) b.recv(b.rank() - 1, before(k + 1));  // one ahead
    const Slice through = is_exclusive ? b.scratch(blocks + k, k) : b.output(k);
    if (!has_previous) {
      if (!is_exclusive) b.copy(b.output(k), b.input(k));
    } else if (!is_exclusive || has_next) {
      b.reduce(through, {before(k), b.input(k)});
    }
    if (has_next) b.send(b.rank() + 1, has_previous ? through : b.input(k));
    if (is_exclusive && has_previous) b.copy(b.output(k), before(k));
  }
  return std::move(b).finish();
}

}  // namespace tutti
