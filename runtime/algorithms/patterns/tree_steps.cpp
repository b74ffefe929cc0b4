// Emission of one node's share of a reduction up and a broadcast down a tree.
#include "runtime/algorithms/patterns/tree_steps.hpp"

#include <algorithm>

namespace tutti {
namespace {

std::uint32_t member(const Builder& b, const TreePlace& place, std::uint32_t node) {
  return (node + place.root) % b.size();
}

}  // namespace

TreeReduction::TreeReduction(Builder& builder, const TreePlace& place, const Slice& own, const Slice& sum,
                             std::uint32_t first_slot)
    : builder_(builder), place_(place), own_(own), sum_(sum), first_slot_(first_slot), level_begin_{0} {
  const std::vector<TreeChild>& children = place.node.children;
  for (std::size_t i = 1; i <= children.size(); ++i) {
    if (i == children.size() || children[i].level != children[i - 1].level) level_begin_.push_back(i);
  }
}

std::uint32_t TreeReduction::slots_per_level() const {
  std::size_t most = 0;
  for (std::size_t i = 0; i < levels(); ++i) most = std::max(most, level_begin_[i + 1] - level_begin_[i]);
  return static_cast<std::uint32_t>(most);
}

Slice TreeReduction::arrived(std::size_t level, std::size_t child) const {
  const auto row = static_cast<std::uint32_t>(level % 2) * slots_per_level();
  const auto position = static_cast<std::uint32_t>(child - level_begin_[level]);
  return builder_.scratch(first_slot_ + (row + position) * own_.count, own_.first, own_.count, own_.stride);
}

void TreeReduction::receive(std::size_t level) {
  for (std::size_t c = level_begin_[level]; c < level_begin_[level + 1]; ++c)
    builder_.recv(member(builder_, place_, place_.node.children[c].node), arrived(level, c), place_.channel);
}

void TreeReduction::add(std::size_t level) {
  std::vector<Slice> sources;
  const auto below = [this](const TreeChild& child) { return child.node < place_.node.node; };
  const auto first = place_.node.children.begin() + static_cast<std::ptrdiff_t>(level_begin_[level]);
  const auto last = place_.node.children.begin() + static_cast<std::ptrdiff_t>(level_begin_[level + 1]);
  const auto lower_count = static_cast<std::size_t>(std::count_if(first, last, below));
  for (std::size_t c = level_begin_[level]; c < level_begin_[level + 1]; ++c)
    sources.push_back(arrived(level, c));
  sources.insert(sources.begin() + static_cast<std::ptrdiff_t>(lower_count), level == 0 ? own_ : sum_);
  builder_.reduce(sum_, sources, place_.channel);
}

void TreeReduction::finish() {
  const bool is_leaf = place_.node.children.empty();
  if (place_.node.parent != TreeNode::kNone)
    builder_.send(member(builder_, place_, place_.node.parent), is_leaf ? own_ : sum_, place_.channel);
  else if (is_leaf)
    builder_.copy(sum_, own_, place_.channel);
}

void emit_tree_reduce(Builder& b, const TreePlace& place, const Slice& own, const Slice& sum,
                      std::uint32_t first_slot) {
  TreeReduction reduction(b, place, own, sum, first_slot);
  if (reduction.levels() > 0) reduction.receive(0);
  for (std::size_t level = 0; level < reduction.levels(); ++level) {
    if (level + 1 < reduction.levels()) reduction.receive(level + 1);
    reduction.add(level);
  }
  reduction.finish();
}

void emit_tree_broadcast(Builder& b, const TreePlace& place, const Slice& value, const Slice& dst) {
  const TreeNode& node = place.node;
  const bool is_root = node.parent == TreeNode::kNone;
  if (!is_root) b.recv(member(b, place, node.parent), dst, place.channel);
  for (auto child = node.children.rbegin(); child != node.children.rend(); ++child)
    b.send(member(b, place, child->node), is_root ? value : dst, place.channel);
  if (is_root) b.copy(dst, value, place.channel);
}

}  // namespace tutti
