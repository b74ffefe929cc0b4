// Resolving epochs: atoms become steps with places. Knows the layout of control blocks; runs nothing.
#include "runtime/scheduler/resolved_call.hpp"

#include <algorithm>
#include <limits>

#include "runtime/scheduler/epoch_steps.hpp"

namespace tutti {
namespace {

using Kind = LoweredStep::Kind;

class EpochResolver {
 public:
  EpochResolver(const LoweredPlan& plan, const ControlBlocks& control_blocks, std::uint64_t count,
                std::size_t element_bytes, bool streams, ResolvedEpoch* found)
      : plan_(plan),
        control_blocks_(control_blocks),
        element_bytes_(element_bytes),
        streams_(streams),
        found_(*found) {
    bind_epoch_map(map_, plan.shape, count, found->length, element_bytes);
    slot_bytes_ = slot_bytes_of(map_, element_bytes);
    // Ranks that only receive poll a flag line while it is written. With payload in it they would take the line
    // away once more before its sequence is stored.
    carries_ = map_.max_atom_count() * element_bytes <= FlagLine::kPayloadBytes &&
               waits_for_all(plan.shape.collective);
    // Payload in flag lines takes no staging.
    found_.staged_bytes = carries_ ? 0 : plan.staging_slots * slot_bytes_;
  }

  void run() {
    // Small values stay in the caches: copying one again from its first destination is as quick as one pass
    // to all of them.
    const bool is_little =
        slot_bytes_ < StagingStores::kLeastBytes && !StagingStores::is_much(slot_bytes_, found_.staged_bytes);
    for (std::uint32_t index = 0; index < plan_.steps.size(); ++index) {
      const LoweredStep& step = plan_.steps[index];
      if (step.kind == Kind::signal) {
        add_signal(step);
      } else if (step.kind == Kind::wait) {
        add_wait(step, index);
      } else {
        const std::uint32_t more_stores = is_little ? 0 : step.more_stores;
        for (std::uint32_t k = 0; k < plan_.slices[step.dst].slice.count; ++k)
          add_atom(index, k, more_stores);
        index += more_stores;
      }
    }
    found_.is_resolved = true;
  }

 private:
  struct Placed {
    ResolvedPlace at;
    std::size_t bytes = 0;
  };

  ResolvedPlace in_area(std::uint32_t rank, std::size_t offset_bytes) const {
    const bool is_staged = offset_bytes >= control_blocks_.staging_offset();
    const auto base = reinterpret_cast<std::uintptr_t>(control_blocks_.lines_at(rank, {}));
    if (rank == control_blocks_.rank())
      return {base + offset_bytes, is_staged ? ResolvedPlace::own_staging : ResolvedPlace::own_area};
    return {base + offset_bytes, is_staged ? ResolvedPlace::others_staging : ResolvedPlace::others_area};
  }

  Placed place(std::uint32_t index, std::uint32_t k) const {
    const LoweredSlice& at = plan_.slices[index];
    const Slice& slice = at.slice;
    const std::uint32_t atom = plan_.shape.atom(slice, k);
    const bool is_own = at.owner == control_blocks_.rank();
    const Range range = is_own ? map_.range(slice.buffer, atom) : map_.range_at(at.owner, slice.buffer, atom);
    const std::size_t bytes = range.count * element_bytes_;
    if (slice.buffer == Buffer::scratch) {
      const bool is_in_line = carries_ && at.line != LoweredSlice::kNoLine;
      return {
          in_area(at.owner, is_in_line ? at.line * sizeof(FlagLine) + offsetof(FlagLine, payload)
                                       : control_blocks_.staging_offset() + (slice.slot + k) * slot_bytes_),
          bytes};
    }
    const std::uint32_t side = slice.buffer == Buffer::input ? ResolvedPlace::input : ResolvedPlace::output;
    return {{range.first * element_bytes_, is_own ? side : ResolvedPlace::peer_buffers + 2 * at.owner + side},
            bytes};
  }

  bool is_by_stores(const Placed& to) const {
    return to.at.is_in_own_area() && StagingStores::is_much(to.bytes, found_.staged_bytes);
  }

  void add_signal(const LoweredStep& step) {
    ResolvedStep resolved;
    resolved.kind = Kind::signal;
    resolved.line = step.line;
    resolved.at = in_area(control_blocks_.rank(), step.line * sizeof(FlagLine));
    // In front of staged payload, because peers wait for it.
    found_.written.insert(found_.written.begin(), resolved.at);
    found_.steps.push_back(resolved);
    has_signaled_ = true;
    has_fan_in_ = false;
  }

  void add_wait(const LoweredStep& step, std::uint32_t index) {
    ResolvedStep resolved;
    resolved.kind = Kind::wait;
    resolved.is_after_signal = !found_.steps.empty() && found_.steps.back().kind == Kind::signal;
    resolved.is_receive_only = !has_signaled_;
    resolved.peer = step.peer;
    resolved.line = step.line;
    resolved.at = in_area(step.peer, step.line * sizeof(FlagLine));
    if (!carries_) find_ahead(step.peer, index, &resolved);
    const std::size_t number = found_.steps.size();
    if (has_fan_in_ && found_.steps[last_wait_].peer != step.peer &&
        number - last_wait_ <= std::numeric_limits<std::uint16_t>::max())
      found_.steps[last_wait_].next_wait = static_cast<std::uint16_t>(number - last_wait_);
    has_fan_in_ = true;
    last_wait_ = number;
    ++found_.wait_count;
    found_.steps.push_back(resolved);
  }

  // The first staging of that peer that is read behind the wait.
  void find_ahead(std::uint32_t peer, std::uint32_t index, ResolvedStep* wait) const {
    for (std::uint32_t i = index + 1; i < plan_.steps.size(); ++i) {
      const LoweredStep& step = plan_.steps[i];
      if (step.kind != Kind::copy && step.kind != Kind::reduce) continue;
      for (std::uint32_t source = step.first_source; source < step.first_source + step.source_count;
           ++source) {
        const LoweredSlice& from = plan_.slices[source];
        if (from.slice.buffer != Buffer::scratch || from.owner != peer) continue;
        const Placed placed = place(source, 0);
        wait->ahead = placed.at;
        wait->ahead_bytes = placed.bytes;
        return;
      }
    }
  }

  void add_atom(std::uint32_t index, std::uint32_t k, std::uint32_t more_stores) {
    const LoweredStep& step = plan_.steps[index];
    const Placed to = place(step.dst, k);
    if (to.bytes == 0) return;
    ResolvedStep resolved;
    resolved.kind = step.source_count > 1 ? Kind::reduce : Kind::copy;
    resolved.source_count = step.source_count;
    resolved.more_stores = static_cast<std::uint16_t>(more_stores);
    resolved.is_by_stores = is_by_stores(to);
    resolved.is_plain =
        more_stores == 0 && !resolved.is_by_stores && !streams_ && to.bytes < kInterruptibleBytes;
    resolved.first_source = static_cast<std::uint32_t>(found_.sources.size());
    resolved.bytes = to.bytes;
    resolved.count = to.bytes / element_bytes_;
    resolved.at = to.at;
    note_staged(to);
    for (std::uint32_t i = 0; i < step.source_count; ++i)
      found_.sources.push_back(place(step.first_source + i, k).at);
    found_.steps.push_back(resolved);
    for (std::uint32_t i = 1; i <= more_stores; ++i) {
      const Placed also = place(plan_.steps[index + i].dst, k);
      ResolvedStep& store = found_.steps.emplace_back();
      store.at = also.at;
      store.is_by_stores = is_by_stores(also);
      note_staged(also);
    }
  }

  void note_staged(const Placed& placed) {
    if (placed.at.origin != ResolvedPlace::own_staging) return;
    ResolvedPlace line = placed.at;
    for (std::size_t offset = 0; offset < placed.bytes && found_.written.size() < ResolvedEpoch::kMostWritten;
         offset += sizeof(FlagLine), line.distance += sizeof(FlagLine))
      found_.written.push_back(line);
  }

  const LoweredPlan& plan_;
  const ControlBlocks& control_blocks_;
  const std::size_t element_bytes_;
  const bool streams_;
  ResolvedEpoch& found_;
  ChunkMap map_;
  std::size_t slot_bytes_ = 0;
  bool carries_ = false;  // payload travels in the flag lines
  bool has_signaled_ = false;
  bool has_fan_in_ = false;  // a wait came, and no signal since
  std::size_t last_wait_ = 0;
};

}  // namespace

void ResolvedCall::reset(std::shared_ptr<const LoweredPlans> plans, ControlBlocks& control_blocks,
                         const Call& call, std::size_t vector_bytes) {
  plans_ = std::move(plans);
  control_blocks_ = &control_blocks;
  count_ = call.count;
  element_bytes_ = tutti::element_bytes(call);
  is_announced_ = plans_->direct != nullptr && vector_bytes >= limits_.announce_bytes;
  streams_ = vector_bytes >= limits_.stream_bytes;
  all_ranks_write_ = waits_for_all(shape().collective);
  readers_ = control_blocks.keep_readers(plans_->staged->readers);
  if (!shape().hears_from_all) control_blocks.reserve_ended();
  length_ = epoch_length(*plans_->staged, count_, element_bytes_, control_blocks.shape().staging_bytes);
  for (ResolvedEpoch* epoch : {&staged_[0], &staged_[1], &direct_}) epoch->clear();
  if (!is_announced_) return;
  ChunkMap whole;
  bind_epoch_map(whole, plans_->direct->shape, count_, count_, element_bytes_);
  input_bytes_ = whole.extent(Buffer::input) * element_bytes_;
  output_bytes_ = whole.extent(Buffer::output) * element_bytes_;
}

const ResolvedEpoch& ResolvedCall::staged(std::uint64_t first) {
  const std::uint64_t length = std::min(length_, count_ - first);
  ResolvedEpoch& epoch = staged_[length == length_ ? 0 : 1];
  if (epoch.is_resolved) return epoch;
  epoch.length = length;
  if (is_announced_) {
    const auto line =
        reinterpret_cast<std::uintptr_t>(control_blocks_->lines_at(control_blocks_->rank(), {}));
    epoch.written.push_back({line, ResolvedPlace::own_area});
  }
  EpochResolver(*plans_->staged, *control_blocks_, count_, element_bytes_, streams_, &epoch).run();
  return epoch;
}

const ResolvedEpoch& ResolvedCall::direct() {
  if (direct_.is_resolved) return direct_;
  direct_.length = count_;
  EpochResolver(*plans_->direct, *control_blocks_, count_, element_bytes_, streams_, &direct_).run();
  return direct_;
}

Announcement ResolvedCall::announcement(const LoweredBuffers& buffers) const {
  const auto range_of = [&](const std::byte* buffer, std::size_t bytes) -> SegmentRange {
    SharedHeap::Location location;
    if (buffer == nullptr || bytes == 0) return {0, 0, 1};
    if (!control_blocks_->heap()->locate(buffer, bytes, &location)) return {};
    return {location.segment, location.offset, bytes};
  };
  return {range_of(buffers.input, input_bytes_), range_of(buffers.output, output_bytes_)};
}

}  // namespace tutti
