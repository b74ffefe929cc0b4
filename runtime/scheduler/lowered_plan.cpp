// Compiling lowered schedules: sequences become lines, chains of stores become one pass, and what a signal
// makes known may travel in its line.
#include "runtime/scheduler/lowered_plan.hpp"

#include <algorithm>
#include <atomic>

#include "runtime/base/relax.hpp"
#include "runtime/kernels/kernels.hpp"

namespace tutti {
namespace {

std::uint64_t round_up(std::uint64_t value, std::uint64_t to) { return (value + to - 1) / to * to; }

// Elements that fill a cache line: no two ranks write the same one.
std::uint64_t granule_of(std::size_t element_bytes) {
  return std::max<std::uint64_t>(1, kLineBytes / element_bytes);
}

bool is_store(Verb verb) { return verb == Verb::copy || verb == Verb::reduce; }

// By scratch slot of one rank: the line of the signal that follows its only write at once, or kNoLine.
std::vector<std::uint32_t> lines_of_slots(const Schedule& s) {
  std::vector<std::uint32_t> line(s.scratch_slots, LoweredSlice::kNoLine), writes(s.scratch_slots, 0);
  for (std::size_t i = 0; i < s.steps.size(); ++i) {
    const Step& step = s.steps[i];
    if (!is_store(step.verb) || step.dst.buffer != Buffer::scratch || step.dst.owner != kSelf) continue;
    for (std::uint32_t k = 0; k < step.dst.count; ++k) ++writes[step.dst.slot + k];
    const bool is_signalled = i + 1 < s.steps.size() && s.steps[i + 1].verb == Verb::signal;
    if (is_signalled && step.dst.count == 1) line[step.dst.slot] = s.steps[i + 1].sequence;
  }
  for (std::uint32_t slot = 0; slot < s.scratch_slots; ++slot) {
    if (writes[slot] != 1) line[slot] = LoweredSlice::kNoLine;
  }
  return line;
}

// Does that rank wait for flags of `owner`, or touch its scratch? With elided waits it may do only the latter.
bool reads_of(const Schedule& s, std::uint32_t owner) {
  const auto is_of_owner = [owner](const Slice& slice) {
    return slice.buffer == Buffer::scratch && slice.owner != kSelf &&
           static_cast<std::uint32_t>(slice.owner) == owner;
  };
  return std::ranges::any_of(s.sources, is_of_owner) || std::ranges::any_of(s.steps, [&](const Step& step) {
           return step.verb == Verb::wait ? step.peer == owner : is_store(step.verb) && is_of_owner(step.dst);
         });
}

class LoweredCompiler {
 public:
  LoweredCompiler(std::span<const Schedule> ranks, std::uint32_t rank) : ranks_(ranks), s_(ranks[rank]) {
    for (const Schedule& s : ranks) slot_lines_.push_back(lines_of_slots(s));
    // Slots that a rank reads or writes together must lie side by side.
    for (const Schedule& s : ranks) {
      for (const Step& step : s.steps) {
        if (is_store(step.verb)) keep_in_staging(s, step.dst);
      }
      for (const Slice& source : s.sources) keep_in_staging(s, source);
    }
  }

  Result<LoweredPlan> run(std::uint32_t max_lines) {
    for (const Schedule& s : ranks_) {
      if (s.channels != 1) return unsupported("a lowered plan of several channels");
      plan_.staging_slots = std::max(plan_.staging_slots, s.scratch_slots);
      for (const Step& step : s.steps) plan_.line_count = std::max(plan_.line_count, step.sequence + 1);
    }
    if (plan_.line_count > max_lines) return unsupported("a lowered plan of too many lines");
    for (std::size_t i = 0; i < s_.steps.size(); ++i) TUTTI_RETURN_IF_ERROR(emit(i));
    for (const Schedule& s : ranks_) {
      if (s.rank != s_.rank && reads_of(s, s_.rank)) plan_.readers.push_back(s.rank);
    }
    static std::atomic<std::uint64_t> number{0};
    plan_.number = number.fetch_add(1, std::memory_order_relaxed) + 1;
    plan_.shape = s_;
    plan_.shape.steps = {};
    plan_.shape.sources = {};
    plan_.shape.dependencies = {};
    return std::move(plan_);
  }

 private:
  void keep_in_staging(const Schedule& s, const Slice& slice) {
    if (slice.buffer != Buffer::scratch || slice.count == 1) return;
    auto& lines = slot_lines_[slice.owner == kSelf ? s.rank : static_cast<std::uint32_t>(slice.owner)];
    std::fill_n(lines.begin() + slice.slot, slice.count, LoweredSlice::kNoLine);
  }

  std::uint32_t add_slice(const Slice& slice) {
    LoweredSlice at{slice, s_.rank, LoweredSlice::kNoLine};
    if (slice.owner != kSelf) at.owner = static_cast<std::uint32_t>(slice.owner);
    if (slice.buffer == Buffer::scratch && slice.count == 1) at.line = slot_lines_[at.owner][slice.slot];
    plan_.slices.push_back(at);
    return static_cast<std::uint32_t>(plan_.slices.size() - 1);
  }

  // Steps behind this one that a chain of fusion marks ties to it: copies of the value it stores.
  std::uint16_t stores_behind(std::size_t i) const {
    std::uint16_t count = 0;
    while (s_.steps[i].fused_with == i + 1 && s_.steps[i + 1].verb == Verb::copy && count < 255) {
      ++count;
      ++i;
    }
    return count;
  }

  // A rank that signals before it does anything says that it has come. In the direct form that is
  // known: every rank has announced them, and waited for all others' announcements, before its first step.
  bool is_announced(std::uint32_t rank, std::uint32_t sequence) const {
    const Schedule& s = ranks_[rank];
    return !s.is_staged && !s.steps.empty() && s.steps[0].verb == Verb::signal &&
           s.steps[0].sequence == sequence;
  }

  Status emit(std::size_t i) {
    const Step& step = s_.steps[i];
    if (step.verb == Verb::signal && is_announced(s_.rank, step.sequence)) return {};
    if (step.verb == Verb::wait && is_announced(step.peer, step.sequence)) return {};
    LoweredStep out;
    switch (step.verb) {
      case Verb::signal:
        out.kind = LoweredStep::Kind::signal;
        out.line = step.sequence;
        break;
      case Verb::wait:
        out.kind = LoweredStep::Kind::wait;
        out.line = step.sequence;
        out.peer = step.peer;
        break;
      case Verb::copy:
      case Verb::reduce: {
        const auto sources = s_.sources_of(step);
        if (sources.size() > 255) return unsupported("a reduction of more than 255 sources in one step");
        out.kind = step.verb == Verb::copy ? LoweredStep::Kind::copy : LoweredStep::Kind::reduce;
        out.source_count = static_cast<std::uint8_t>(sources.size());
        out.more_stores = stores_behind(i);
        out.dst = add_slice(step.dst);
        out.first_source = static_cast<std::uint32_t>(plan_.slices.size());
        for (const Slice& source : sources) add_slice(source);
        break;
      }
      default:
        return internal_error("an authored schedule is no lowered plan");
    }
    plan_.steps.push_back(out);
    return {};
  }

  std::span<const Schedule> ranks_;
  const Schedule& s_;
  std::vector<std::vector<std::uint32_t>> slot_lines_;
  LoweredPlan plan_;
};

}  // namespace

Result<LoweredPlan> compile_lowered(std::span<const Schedule> ranks, std::uint32_t rank,
                                    std::uint32_t max_lines) {
  return LoweredCompiler(ranks, rank).run(max_lines);
}

std::uint64_t epoch_length(const LoweredPlan& plan, std::uint64_t count, std::size_t element_bytes,
                           std::size_t staging_bytes) {
  if (plan.staging_slots == 0) return count;
  const Schedule& shape = plan.shape;
  const bool has_blocks = has_rank_blocks(shape.collective);
  const std::size_t bytes_per_slot = (staging_bytes / plan.staging_slots) & ~(kLineBytes - 1);
  std::uint64_t fits = bytes_per_slot / element_bytes;
  if (!has_blocks) fits *= shape.blocks;
  if (count <= fits) return count;
  const std::uint64_t epochs = (count + fits - 1) / fits;
  const std::uint64_t unit = granule_of(element_bytes) * (has_blocks ? 1 : shape.blocks);
  return std::min(fits, round_up((count + epochs - 1) / epochs, unit));
}

void bind_epoch_map(ChunkMap& map, const Schedule& shape, std::uint64_t count, std::uint64_t length,
                    std::size_t element_bytes) {
  map.reset(shape);
  if (has_rank_blocks(shape.collective)) {
    map.bind_equal_part(count, 0, length, granule_of(element_bytes));
  } else {
    map.bind_vector(length, granule_of(element_bytes));
  }
}

std::size_t slot_bytes_of(const ChunkMap& map, std::size_t element_bytes) {
  return round_up(map.max_atom_count() * element_bytes, kLineBytes);
}

bool is_prescaled(const Call& call) { return is_reducing(call.collective) && scales_before(call.op.op); }

Call as_carried_out(const Call& call, std::uint32_t rank) {
  Call carried = call;
  if (!is_prescaled(call) || !call.in_place) return carried;
  if (call.collective == Collective::reduce_scatter)
    carried.output = static_cast<std::byte*>(call.output) + block_offset(call, rank) * element_bytes(call);
  carried.in_place = false;
  return carried;
}

}  // namespace tutti
