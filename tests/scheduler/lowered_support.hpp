// Shared by the tests of lowered operations: the forms of a row, the number of epochs on a rank's control
// blocks. Knows no transport's inside.
#pragma once

#include <string>
#include <vector>

#include "runtime/algorithms/prove.hpp"
#include "runtime/schedule/passes/lower.hpp"
#include "runtime/scheduler/lowered_plan.hpp"
#include "tests/support/world.hpp"

namespace tutti::test {

// The forms in which the native backend runs an algorithm where memory is shared.
struct Forms {
  bool is_staged = false;
  bool is_mapped = false;
};

inline std::vector<Schedule> lowered_row(const AlgorithmRow& row, std::uint32_t p, std::uint32_t root,
                                         Sharing sharing, const Hierarchy& hierarchy = {}) {
  Instance instance;
  instance.size = p;
  instance.root = root;
  instance.params = default_params(row);
  instance.hierarchy = hierarchy;
  auto ranks = emit_all(row, instance);
  if (!ranks) return {};
  auto lowered = lower_for_shared_memory(*ranks, sharing);
  return lowered ? *std::move(lowered) : std::vector<Schedule>{};
}

inline Forms forms_of(const AlgorithmRow& row, std::uint32_t p, std::uint32_t root,
                      const Hierarchy& hierarchy = {}) {
  const auto has_plan = [&](Sharing sharing) {
    const auto lowered = lowered_row(row, p, root, sharing, hierarchy);
    if (lowered.empty() || !is_right_in_place(lowered)) return false;
    const auto plan = compile_lowered(lowered, 0, GroupContext::Options{}.shape(BlockKind::small).lines);
    return plan.is_ok() && (sharing == Sharing::scratch || plan->staging_slots == 0);
  };
  Forms forms;
  forms.is_staged = has_plan(Sharing::scratch);
  forms.is_mapped = forms.is_staged && has_plan(Sharing::buffers);
  return forms;
}

// Epochs that this rank has ended on its control blocks, of all kinds: one for a mapped operation, one for each
// window of a staged one.
inline std::uint64_t epochs_of(const Member& member) {
  std::uint64_t epochs = 0;
  for (const BlockKind kind : kBlockKinds) {
    const ControlBlocks& control_blocks = member.group->shown_control_blocks(kind);
    if (control_blocks.state() != ControlBlocks::State::linked) continue;
    for (std::uint32_t slot = 0; slot < control_blocks.shape().slots; ++slot)
      epochs += control_blocks.ended(member.rank, slot).load(std::memory_order_acquire);
  }
  return epochs;
}
// Those of mapped operations.
inline std::uint64_t direct_epochs_of(const Member& member) {
  std::uint64_t epochs = 0;
  for (const BlockKind kind : kBlockKinds) epochs += member.group->shown_control_blocks(kind).direct_count();
  return epochs;
}

}  // namespace tutti::test
