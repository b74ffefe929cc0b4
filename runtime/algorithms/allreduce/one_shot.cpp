// One-shot allreduce: everybody gets everybody's vector and adds all p in rank order; one round.
// Knows nothing of transports, dtypes, time or memory.
//
// It is the recursive exchange of radix p: one group of all ranks. Lowered over shared memory, one published
// line reaches all peers and the sum reads theirs in place.
//
// input, output: count elements; scratch: (p-1) * count
// rounds 1
// bytes sent per rank (p-1) m
// order: rank order -> any op, same bits on all ranks
// Segments do not pay (tiny vectors only).
// Source: vLLM and TensorRT-LLM custom allreduce; faster than two_shot while alpha > m beta (p-1)(p-2)/p.
#include "runtime/algorithms/patterns/recursive_exchange.hpp"

namespace tutti {

Result<Schedule> allreduce_one_shot(const CollectiveSpec& spec, const GroupView& view,
                                    const AlgorithmParams&) {
  Builder b(spec, view, 1);
  emit_recursive_exchange(b, view.size);
  return std::move(b).finish();
}

}  // namespace tutti
