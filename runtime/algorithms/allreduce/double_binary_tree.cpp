// Double binary tree allreduce: each half of the vector goes up and down a binary tree of its own, block by
// block; no rank has children in both trees, so all links carry the same load.
// Knows nothing of transports, dtypes, time or memory.
//
// p = 5:   tree 0       0             tree 1       1
//                       |                         / \ .
//                       4                        0   3
//                      /                            / \ .
//                     2                            2   4
//                    / \ .
//                   1   3
// Tree t runs on channel t. A node at depth d starts to pass blocks down when it has sent 2d more up: that is
// when they arrive if nobody waits, so both directions flow at once.
//
// input, output: count elements, 2 * segments blocks; scratch: up to 4 blocks
// rounds 2 h + (segments-1)/2, h <= log2 p + 1 the larger height: a chain of additions passes through a
//   scratch slot every second block
// bytes sent per rank 2 m
// order: rank order (in-order trees) -> any op
// The parameter segments is the pipeline; the segment pass has nothing to add.
// Source: Sanders, Speck, Traeff 2009; NCCL's trees (patterns/trees.hpp says what differs).
#include <algorithm>
#include <vector>

#include "runtime/algorithms/catalog.hpp"
#include "runtime/algorithms/patterns/tree_steps.hpp"

namespace tutti {
namespace {

// One tree's steps of one rank, in the order in which they happen.
class TreePipeline {
 public:
  TreePipeline(Builder& b, std::uint32_t tree, std::uint32_t segments)
      : b_(b),
        first_block_(tree * segments),
        place_{double_binary_tree(tree, b.rank(), b.size()), 0, static_cast<std::uint16_t>(tree)},
        lag_(2 * double_binary_tree_depth(tree, b.rank(), b.size())) {
    const auto children = static_cast<std::uint32_t>(place_.node.children.size());
    ups_.reserve(segments);
    for (std::uint32_t s = 0; s < segments; ++s) {
      const std::int64_t block = first_block_ + s;
      // No rank has children in both trees, so they share the slots.
      ups_.emplace_back(b, place_, b.input(block), b.output(block), s % 2 * children);
    }
  }

  std::uint32_t steps() const { return static_cast<std::uint32_t>(ups_.size()) + lag_; }
  void emit(std::uint32_t step) {
    const auto segments = static_cast<std::uint32_t>(ups_.size());
    if (step == 0) receive(0);
    if (step < segments) {
      receive(step + 1);  // ahead of the addition that waits for the block before
      if (ups_[step].levels() > 0) ups_[step].add(0);
      ups_[step].finish();
    }
    if (step >= lag_ && step < lag_ + segments) {
      const Slice value = b_.output(first_block_ + step - lag_);
      emit_tree_broadcast(b_, place_, value, value);
    }
  }

 private:
  void receive(std::uint32_t s) {
    if (s < ups_.size() && ups_[s].levels() > 0) ups_[s].receive(0);
  }

  Builder& b_;
  std::uint32_t first_block_;
  TreePlace place_;
  std::uint32_t lag_;  // 2 * depth
  std::vector<TreeReduction> ups_;
};

}  // namespace

Result<Schedule> allreduce_double_binary_tree(const CollectiveSpec& spec, const GroupView& view,
                                              const AlgorithmParams& params) {
  Builder b(spec, view, 2 * params.segments);
  TreePipeline first(b, 0, params.segments), second(b, 1, params.segments);
  for (std::uint32_t step = 0; step < std::max(first.steps(), second.steps()); ++step) {
    first.emit(step);
    second.emit(step);
  }
  return std::move(b).finish();
}

}  // namespace tutti
