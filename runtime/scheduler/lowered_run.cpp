// The executor of lowered plans: epochs, announcements, local steps.
#include "runtime/scheduler/lowered_run.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>

#include "runtime/base/relax.hpp"

namespace tutti {
namespace {

// From here on a pass over the data is made in pieces, between which others may have the lane: they wait for
// it no longer than a turn takes.
constexpr std::size_t kInterruptibleBytes = std::size_t{512} << 10U;
constexpr std::size_t kTurnBytes = std::size_t{64} << 10U;

}  // namespace

void LoweredRun::begin(const LoweredPlans& plans, ControlBlocks& control_blocks,
                       const LoweredLimits& limits) {
  plans_ = &plans;
  control_blocks_ = &control_blocks;
  limits_ = &limits;
  done_count_ = 0;
  is_mismatch_ = false;
  is_announcing_ = plans.mapped != nullptr && work_.vector_bytes >= limits.announce_bytes;
}

void LoweredRun::start(const LoweredPlans& plans, ControlBlocks& control_blocks,
                       const LoweredLimits& limits) {
  begin(plans, control_blocks, limits);
  begin_epoch();
}

void LoweredRun::begin_epoch() {
  control_blocks_->next_epoch(work_.slot);
  bind_epoch();
}

void LoweredRun::resume(const LoweredPlans& plans, ControlBlocks& control_blocks, const LoweredLimits& limits,
                        std::uint32_t step) {
  begin(plans, control_blocks, limits);
  bind_epoch();
  bind_window();
  pc_ = step;
  peer_ = plan_->steps[step].peer;
  phase_ = Phase::run;
}

void LoweredRun::bind_epoch() {
  plan_ = plans_->staged.get();
  is_mapped_ = false;
  epoch_ = control_blocks_->epoch(work_.slot);
  area_ = control_blocks_->area(work_.slot, epoch_);
  pc_ = 0;
  atom_ = 0;
  offset_ = 0;
  peer_ = 0;
  bind_bases();
  phase_ = control_blocks_->heard_from_all(work_.slot) ? Phase::announce : Phase::enter;
}

void LoweredRun::bind_bases() {
  bases_.resize(first_area + 3 * std::size_t{control_blocks_->size()});
  bases_[own_input] = work_.input;
  bases_[own_output] = work_.output;
  const Collective collective = work_.call->collective;
  is_over_input_ = work_.call->in_place && (is_reducing(collective) || collective == Collective::alltoall);
}

void LoweredRun::bind_window() {
  streams_ = work_.vector_bytes >= limits_->stream_bytes;
  find_window();
  // What lies in lines stays where they are.
  staged_bytes_ = carries_ ? 0 : plan_->staging_slots * slot_bytes_;
  const std::size_t place =
      carries_ ? 0 : control_blocks_->place_of(epoch_, staged_bytes_, waits_for_all(plan_->shape.collective));
  for (std::uint32_t r = 0; r < control_blocks_->size(); ++r)
    bases_[first_area + r] = reinterpret_cast<std::byte*>(control_blocks_->lines_at(r, area_)) + place;
}

// The elements of this epoch: all of them if mapped, else as many as the staging memory holds.
void LoweredRun::find_window() {
  const Window wanted{plan_->number, work_.call->count, done_count_, work_.element_bytes};
  if (window_ == wanted) return;
  window_ = wanted;
  const Schedule& shape = plan_->shape;
  const std::uint64_t count = work_.call->count;
  window_count_ = std::min(count - done_count_, epoch_length(*plan_, count, work_.element_bytes,
                                                             control_blocks_->shape().staging_bytes));
  bind_epoch_map(map_, shape, count, window_count_, work_.element_bytes);
  slot_bytes_ = slot_bytes_of(map_, work_.element_bytes);
  const std::size_t atom_bytes = map_.max_atom_count() * work_.element_bytes;
  // Where some only listen, they look at a line again and again while it is written: payload in it would let
  // them take it away once more before it is stamped.
  carries_ = atom_bytes <= FlagLine::kPayloadBytes && waits_for_all(shape.collective);
  placed_.clear();
  for (const LoweredSlice& slice : plan_->slices) placed_.push_back(place(slice, 0));
}

LoweredRun::Placed LoweredRun::place(const LoweredSlice& at, std::uint32_t k) const {
  const Slice& slice = at.slice;
  const std::uint32_t atom = plan_->shape.atom(slice, k);
  const bool is_own = at.owner == control_blocks_->rank();
  Range range = is_own ? map_.range(slice.buffer, atom) : map_.range_at(at.owner, slice.buffer, atom);
  const std::size_t bytes = range.count * work_.element_bytes;
  if (slice.buffer == Buffer::scratch) {
    const bool is_in_line = carries_ && at.line != LoweredSlice::kNoLine;
    const std::size_t offset_bytes = is_in_line
                                         ? at.line * sizeof(FlagLine) + offsetof(FlagLine, payload)
                                         : control_blocks_->staging_offset() + (slice.slot + k) * slot_bytes_;
    return {first_area + at.owner, offset_bytes, bytes};
  }
  range.first += done_count_;
  const std::uint32_t side = slice.buffer == Buffer::input ? own_input : own_output;
  return {is_own ? side : first_area + control_blocks_->size() + 2 * at.owner + side,
          range.first * work_.element_bytes, bytes};
}

bool LoweredRun::has_come(const FlagLine& line) {
  if (line.is_of(epoch_, work_.digest)) return true;
  // Nobody gets ahead in an area that this rank still uses: a peer that has makes another call.
  is_mismatch_ = line.sequence.load(std::memory_order_acquire) >= epoch_ && !line.is_of(epoch_, work_.digest);
  return false;
}

void LoweredRun::publish(FlagLine& line) {
  line.publish(epoch_, work_.digest);
  control_blocks_->wake_sleepers();
}

bool LoweredRun::may_enter() {
  peer_ = control_blocks_->first_behind(work_.slot, epoch_, peer_);
  return peer_ == control_blocks_->size();
}

const LoweredRun::Extents& LoweredRun::extents() {
  const Window wanted{plans_->mapped->number, work_.call->count, 0, work_.element_bytes};
  if (extents_.of == wanted) return extents_;
  const Schedule& shape = plans_->mapped->shape;
  ChunkMap whole(shape);
  if (has_rank_blocks(shape.collective)) {
    whole.bind_equal(work_.call->count);
  } else {
    whole.bind_vector(work_.call->count);
  }
  extents_ = {wanted, whole.extent(Buffer::input) * work_.element_bytes,
              whole.extent(Buffer::output) * work_.element_bytes};
  return extents_;
}

void LoweredRun::announce() {
  Announcement said;
  const auto place_of = [&](const std::byte* buffer, std::size_t bytes) -> SegmentRange {
    SharedHeap::Location place;
    if (buffer == nullptr || bytes == 0) return {0, 0, 1};
    if (!control_blocks_->heap()->locate(buffer, bytes, &place)) return {};
    return {place.segment, place.offset, bytes};
  };
  said.input = place_of(work_.input, extents().input_bytes);
  said.output = place_of(work_.output, extents().output_bytes);
  all_mapped_ = said.input.bytes != 0 && said.output.bytes != 0;
  FlagLine& line = control_blocks_->lines_at(control_blocks_->rank(), area_)[0];
  static_assert(sizeof said <= FlagLine::kPayloadBytes);
  std::memcpy(line.payload.data(), &said, sizeof said);
  publish(line);
  peer_ = 0;
}

void LoweredRun::tell_unshared(FlagLine& line) {
  const Announcement said;
  std::memcpy(line.payload.data(), &said, sizeof said);
}

bool LoweredRun::find_buffers(std::uint32_t peer, const Announcement& said) {
  std::byte** const found = bases_.data() + first_area + control_blocks_->size() + 2 * std::size_t{peer};
  const auto find = [&](const SegmentRange& place, std::byte** base) {
    *base = nullptr;
    if (place.segment == 0 && place.offset == 0) return true;  // the rank has no such buffer
    *base = control_blocks_->map(peer, place);
    return *base != nullptr;
  };
  return find(said.input, found) && find(said.output, found + 1);
}

// Have all ranks announced? False while one has not. The first that cannot be mapped ends the waiting.
bool LoweredRun::collect() {
  for (; peer_ < control_blocks_->size() && all_mapped_; ++peer_) {
    if (peer_ == control_blocks_->rank()) continue;
    const FlagLine& line = control_blocks_->lines_at(peer_, area_)[0];
    if (!has_come(line)) return false;
    Announcement said;
    std::memcpy(&said, line.payload.data(), sizeof said);
    if (said.input.bytes == 0 || said.output.bytes == 0) {
      all_mapped_ = false;
    } else if (!find_buffers(peer_, said)) {
      return false;
    }
  }
  return true;
}

LoweredRun::Progress LoweredRun::advance(std::uint32_t polls) {
  has_moved_ = false;
  std::uint32_t left = polls;
  const auto is_blocked = [&] {
    if (is_mismatch_ || left == 0) return true;
    if (left-- + kPollsWithoutPause <= polls) relax();
    return false;
  };
  const auto blocked = [&] { return is_mismatch_ ? Progress::mismatch : Progress::blocked; };
  for (;;) {
    switch (phase_) {
      case Phase::enter:
        while (!may_enter())
          if (is_blocked()) return blocked();
        phase_ = Phase::announce;
        [[fallthrough]];
      case Phase::announce:
        if (!is_announcing_) {
          bind_window();
          phase_ = Phase::run;
          break;
        }
        announce();
        has_moved_ = true;
        phase_ = Phase::collect;
        [[fallthrough]];
      case Phase::collect:
        while (!collect())
          if (is_blocked()) return blocked();
        has_moved_ = true;
        is_mapped_ = all_mapped_;
        if (is_mapped_) {
          plan_ = plans_->mapped.get();
          control_blocks_->count_mapped();
        }
        bind_window();
        phase_ = Phase::run;
        break;
      case Phase::run:
        while (pc_ < plan_->steps.size()) {
          if (has_moved_ && is_wanted()) return Progress::blocked;
          const LoweredStep& next = plan_->steps[pc_];
          if (next.kind == LoweredStep::Kind::wait) {
            peer_ = next.peer;
            const FlagLine& line = control_blocks_->lines_at(peer_, area_)[next.line];
            while (!has_come(line))
              if (is_blocked()) return blocked();
            ++pc_;
          } else if (step(next) == StepEnd::revoked) {
            return Progress::revoked;
          }
          has_moved_ = true;
          left = polls;
        }
        done_count_ += window_count_;
        phase_ = Phase::leave;
        [[fallthrough]];
      case Phase::leave: {
        control_blocks_->end_epoch(work_.slot, is_mapped_ || plan_->shape.hears_from_all);
        has_moved_ = true;
        if (done_count_ >= work_.call->count) {
          plan_ = nullptr;
          return Progress::complete;
        }
        is_announcing_ = false;
        begin_epoch();
        break;
      }
    }
  }
}

bool LoweredRun::has_news() const {
  if (control_blocks_ == nullptr || plan_ == nullptr) return true;
  if (phase_ == Phase::enter)
    return control_blocks_->ended(peer_, work_.slot).load(std::memory_order_acquire) + 2 >= epoch_;
  // Where it made way for others it can go on.
  if (phase_ == Phase::run && plan_->steps[pc_].kind != LoweredStep::Kind::wait) return true;
  const std::uint32_t line = phase_ == Phase::collect ? 0 : plan_->steps[pc_].line;
  return control_blocks_->lines_at(peer_, area_)[line].sequence.load(std::memory_order_acquire) >= epoch_;
}

// A publish, or local work with all stores that belong to one pass.
LoweredRun::StepEnd LoweredRun::step(const LoweredStep& step) {
  if (step.kind == LoweredStep::Kind::signal) {
    publish(control_blocks_->lines_at(control_blocks_->rank(), area_)[step.line]);
    ++pc_;
    return StepEnd::done;
  }
  bool is_done = false;
  if (!is_mapped_) {
    is_done = compute(step);
  } else {
    std::atomic<std::uint32_t>& is_touching = control_blocks_->head(control_blocks_->rank()).is_touching;
    is_touching.store(1, std::memory_order_seq_cst);
    const bool may = may_touch();
    if (may) is_done = compute(step);
    is_touching.store(0, std::memory_order_release);
    if (!may) return StepEnd::revoked;
  }
  if (!is_done) return StepEnd::interrupted;
  pc_ += 1U + step.more_stores;
  return StepEnd::done;
}

bool LoweredRun::may_touch() {
  for (std::uint32_t r = 0; r < control_blocks_->size(); ++r) {
    if (control_blocks_->head(r).is_revoked.load(std::memory_order_seq_cst) == 0) continue;
    peer_ = r;
    return false;
  }
  return true;
}

bool LoweredRun::compute(const LoweredStep& step) {
  std::array<const void*, 256> from;
  for (; atom_ < plan_->slices[step.dst].slice.count; ++atom_) {
    const std::uint32_t k = atom_;
    const Placed to = placed(step.dst, k);
    if (to.bytes == 0) continue;
    if (step.more_stores != 0 || streams_ || to.bytes >= kInterruptibleBytes || is_by_stores(to)) {
      if (!compute_pieces(step, k, to.bytes)) return false;
    } else if (step.source_count == 1) {
      copy_bytes(address(to), address(placed(step.first_source, k)), to.bytes);
    } else {
      for (std::uint32_t i = 0; i < step.source_count; ++i)
        from[i] = address(placed(step.first_source + i, k));
      work_.kernel(&work_.call->op.user, address(to), from.data(), step.source_count,
                   to.bytes / work_.element_bytes);
    }
  }
  atom_ = 0;
  return true;
}

// Where atom k of a step stores, and how.
LoweredRun::Stores LoweredRun::stores_of(const LoweredStep& step, std::uint32_t k,
                                         std::span<const std::byte* const> from) const {
  Stores stores;
  stores.count = 1U + step.more_stores;
  const bool is_sum = from.size() > 1;
  for (std::uint32_t j = 0; j < stores.count; ++j) {
    const Placed place = placed(plan_->steps[pc_ + j].dst, k);
    std::byte* const at = address(place);
    StoreWay way = is_by_stores(place) ? StoreWay::chosen : StoreWay::cached;
    if (streams_ && is_sum && way == StoreWay::chosen)
      way = control_blocks_->stores().is_streaming() ? StoreWay::streamed : StoreWay::cached;
    // In place the lines are in this core's cache when they are written; past it they would have to leave it.
    const bool is_warm =
        (place.base == own_output && is_over_input_) || std::ranges::find(from, at) != from.end();
    if (streams_ && !is_own_area(place) && !is_warm) way = StoreWay::streamed;
    stores.at[j] = at;
    stores.ways[j] = way;
    if (!streams_ || way != StoreWay::cached) continue;
    std::swap(stores.at[j], stores.at[stores.cached_count]);
    std::swap(stores.ways[j], stores.ways[stores.cached_count++]);
  }
  return stores;
}

// What computes a sum and stores it everywhere at once, past the caches where it should; null where that is
// not to be.
StreamKernelFn LoweredRun::stream_kernel(const LoweredStep& step, const Stores& stores) const {
  if (!streams_ || step.source_count < 2) return nullptr;
  const std::span streamed(stores.at.data() + stores.cached_count, stores.count - stores.cached_count);
  const auto in_line = [](const std::byte* at) { return reinterpret_cast<std::uintptr_t>(at) % kLineBytes; };
  const auto is_elsewhere = [&](const std::byte* at) { return in_line(at) != in_line(streamed[0]); };
  if (streamed.empty()) {
    // In place. Beside a place in staging memory, a second pass over pieces was as fast or up to 10 % faster;
    // without one a single pass was up to a quarter faster.
    if (!is_mapped_ || stores.count == 1) return nullptr;
  } else if (in_line(streamed[0]) % work_.element_bytes != 0 || std::ranges::any_of(streamed, is_elsewhere)) {
    return nullptr;
  }
  return select_kernels(work_.call->op.op, work_.call->dtype).stream;
}

// Atom k of a step that stores to several places, past the caches, or much where others will read it.
bool LoweredRun::compute_pieces(const LoweredStep& step, std::uint32_t k, std::size_t bytes) {
  std::array<const std::byte*, 256> from;
  std::array<const void*, 256> sources;
  const std::uint32_t n = step.source_count;
  for (std::uint32_t i = 0; i < n; ++i) from[i] = address(placed(step.first_source + i, k));
  const Stores stores = stores_of(step, k, {from.data(), n});
  std::uint32_t sum_at = 0;  // where a sum is computed: the first place that is written through the caches
  while (sum_at < stores.count &&
         (stores.ways[sum_at] == StoreWay::streamed ||
          (stores.ways[sum_at] == StoreWay::chosen && control_blocks_->stores().is_streaming())))
    ++sum_at;
  const StreamKernelFn stream = stream_kernel(step, stores);
  std::array<void*, 256> places;
  alignas(64) std::array<std::byte, LoweredLimits::kMostPieceBytes> piece;
  const bool is_streamed = streams_ && stores.cached_count < stores.count;
  const std::size_t piece_bytes = stream != nullptr ? kTurnBytes
                                  : is_streamed     ? limits_->streamed_piece_bytes
                                                    : limits_->piece_bytes;
  const std::size_t first = offset_;
  for (std::size_t offset = first; offset < bytes; offset += piece_bytes) {
    if (offset - first >= kTurnBytes && is_wanted()) {
      offset_ = offset;
      return false;
    }
    const std::size_t length = std::min(piece_bytes, bytes - offset);
    const std::byte* value = from[0] + offset;
    for (std::uint32_t i = 0; i < n; ++i) sources[i] = from[i] + offset;
    if (stream != nullptr) {
      for (std::uint32_t j = 0; j < stores.count; ++j) places[j] = stores.at[j] + offset;
      stream(places.data(), stores.count, stores.cached_count, sources.data(), n,
             length / work_.element_bytes);
      continue;
    }
    if (n > 1) {
      std::byte* const sum = sum_at == stores.count ? piece.data() : stores.at[sum_at] + offset;
      work_.kernel(&work_.call->op.user, sum, sources.data(), n, length / work_.element_bytes);
      value = sum;
    }
    for (std::uint32_t j = 0; j < stores.count; ++j) {
      if (n > 1 && j == sum_at) continue;
      std::byte* const to = stores.at[j] + offset;
      switch (stores.ways[j]) {
        case StoreWay::cached:
          copy_bytes(to, value, length);
          break;
        case StoreWay::streamed:
          copy_bytes_streaming(to, value, length);
          break;
        case StoreWay::chosen:
          control_blocks_->stores().copy(to, value, length);
          break;
      }
    }
  }
  offset_ = 0;
  return true;
}

}  // namespace tutti
