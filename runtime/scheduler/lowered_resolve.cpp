// One epoch of a staged plan worked out for one count: every step with the places that it works on, for
// persistent calls. Runs nothing.
#include "runtime/scheduler/lowered_run.hpp"

namespace tutti {

bool LoweredRun::resolve(const LoweredPlans& plans, ControlBlocks& control_blocks,
                         const LoweredLimits& limits, ResolvedEpoch* found) {
  begin(plans, control_blocks, limits);
  plan_ = plans.staged.get();
  is_mapped_ = false;
  area_ = {};
  bind_bases();
  bind_window();
  if (window_count_ != work_.call->count) return false;
  found->staged_bytes = staged_bytes_;
  found->is_announced = is_announcing_;
  if (is_announcing_) {
    found->written.push_back(resolve({first_area + control_blocks.rank(), 0, sizeof(FlagLine)}));
    found->input_bytes = extents().input_bytes;
    found->output_bytes = extents().output_bytes;
  }
  // Little that stays in the caches is copied once more from where it went as quickly as in one pass.
  const bool is_little =
      slot_bytes_ < StagingStores::kLeastBytes && !StagingStores::is_much(slot_bytes_, found->staged_bytes);
  bool has_published = false;
  for (std::uint32_t index = 0; index < plan_->steps.size(); ++index) {
    const LoweredStep& step = plan_->steps[index];
    const bool is_wait = step.kind == LoweredStep::Kind::wait;
    if (is_wait || step.kind == LoweredStep::Kind::signal) {
      const Placed line{first_area + (is_wait ? step.peer : control_blocks.rank()),
                        step.line * sizeof(FlagLine), sizeof(FlagLine)};
      ResolvedStep resolved;
      resolved.kind = step.kind;
      resolved.is_after_publish =
          is_wait && !found->steps.empty() && found->steps.back().kind == LoweredStep::Kind::signal;
      resolved.is_receive_only = is_wait && !has_published;
      resolved.index = index;
      resolved.at = resolve(line);
      if (is_wait) {
        resolve_ahead(step, index, &resolved);
      } else {  // in front of what is staged: peers wait for it
        found->written.insert(found->written.begin(), resolved.at);
      }
      found->steps.push_back(resolved);
      has_published = has_published || !is_wait;
      continue;
    }
    const std::uint32_t more_stores = is_little ? 0 : step.more_stores;
    for (std::uint32_t k = 0; k < plan_->slices[step.dst].slice.count; ++k)
      resolve_atom(index, k, more_stores, found);
    index += more_stores;
  }
  return true;
}

void LoweredRun::resolve_ahead(const LoweredStep& await, std::uint32_t index, ResolvedStep* found) const {
  if (carries_) return;
  for (std::uint32_t i = index + 1; i < plan_->steps.size(); ++i) {
    const LoweredStep& step = plan_->steps[i];
    if (step.kind != LoweredStep::Kind::copy && step.kind != LoweredStep::Kind::reduce) continue;
    for (std::uint32_t source = step.first_source; source < step.first_source + step.source_count; ++source) {
      const Placed from = placed(source, 0);
      if (from.base != first_area + await.peer) continue;
      found->ahead = resolve(from);
      found->ahead_bytes = from.bytes;
      return;
    }
  }
}

ResolvedPlace LoweredRun::resolve(const Placed& placed) const {
  if (placed.base == own_input) return {placed.offset_bytes, ResolvedPlace::input};
  if (placed.base == own_output) return {placed.offset_bytes, ResolvedPlace::output};
  const bool is_staged = placed.offset_bytes >= control_blocks_->staging_offset();
  const auto distance = reinterpret_cast<std::uintptr_t>(address(placed));
  if (is_own_area(placed))
    return {distance, is_staged ? ResolvedPlace::own_staging : ResolvedPlace::own_area};
  return {distance, is_staged ? ResolvedPlace::others_staging : ResolvedPlace::others_area};
}

void LoweredRun::resolve_atom(std::uint32_t index, std::uint32_t k, std::uint32_t more_stores,
                              ResolvedEpoch* found) const {
  const LoweredStep& step = plan_->steps[index];
  const Placed to = placed(step.dst, k);
  if (to.bytes == 0) return;
  ResolvedStep resolved;
  resolved.kind = step.source_count > 1 ? LoweredStep::Kind::reduce : LoweredStep::Kind::copy;
  resolved.source_count = step.source_count;
  resolved.more_stores = static_cast<std::uint16_t>(more_stores);
  resolved.is_by_stores = is_by_stores(to);
  resolved.is_plain = more_stores == 0 && to.bytes < StagingStores::kLeastBytes && !resolved.is_by_stores;
  resolved.index = index;
  resolved.first_source = static_cast<std::uint32_t>(found->sources.size());
  resolved.bytes = to.bytes;
  resolved.count = to.bytes / work_.element_bytes;
  resolved.at = resolve(to);
  note_staged(resolved.at, to.bytes, found);
  for (std::uint32_t i = 0; i < step.source_count; ++i)
    found->sources.push_back(resolve(placed(step.first_source + i, k)));
  found->steps.push_back(resolved);
  for (std::uint32_t i = 1; i <= more_stores; ++i) {
    ResolvedStep& store = found->steps.emplace_back();
    const Placed also = placed(plan_->steps[index + i].dst, k);
    store.at = resolve(also);
    store.is_by_stores = is_by_stores(also);
    note_staged(store.at, to.bytes, found);
  }
}

void LoweredRun::note_staged(ResolvedPlace at, std::size_t bytes, ResolvedEpoch* found) {
  if (at.origin != ResolvedPlace::own_staging) return;
  for (std::size_t offset = 0; offset < bytes && found->written.size() < ResolvedEpoch::kMostWritten;
       offset += sizeof(FlagLine), at.distance += sizeof(FlagLine))
    found->written.push_back(at);
}

}  // namespace tutti
