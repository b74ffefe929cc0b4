// Operations whose steps are messages: binding a plan to memory, issuing its steps in order, what arrives.
#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "runtime/kernels/kernels.hpp"
#include "runtime/scheduler/group_context.hpp"
#include "runtime/scheduler/operation.hpp"

namespace tutti {
namespace {

constexpr std::uint64_t kCacheLineBytes = 64;

}  // namespace

void Operation::enter_messages() {
  SlotFrame& frame = *frame_;
  const Schedule& shape = plan_->shape;
  // The whole vector lies at the input; the caller's output is the own block in it.
  const bool is_scatter_root = shape.collective == Collective::scatter && shape.rank == shape.root;
  if (shape.in_place && (shape.collective == Collective::reduce_scatter || is_scatter_root)) output_ = input_;
  scratch_ = frame.scratch.data();
  if (const std::uint64_t count = prescaled_count(shape); count > 0)
    prescale(scratch_ + shape.scratch_slots * slot_bytes_, count);
  frame.cursor.resize(plan_->channels.size());
  for (std::size_t c = 0; c < frame.cursor.size(); ++c) frame.cursor[c] = plan_->channels[c].first_step;
  frame.is_step_done.assign(plan_->steps.size(), 0);
  remaining_ = static_cast<std::uint32_t>(plan_->steps.size());
  is_dirty_ = true;
}

Status Operation::bind_counts() {
  const Schedule& shape = plan_->shape;
  const std::uint64_t granule = std::max<std::uint64_t>(1, kCacheLineBytes / element_bytes_);
  map_.reset(shape);
  const auto check = [&](std::span<const std::uint64_t> list, const char* name, bool may_be_empty) -> Status {
    if (list.size() == shape.blocks || (may_be_empty && list.empty())) return {};
    return invalid_argument(
        fmt::format("{}: {} entries for {} ranks; one per rank is needed", name, list.size(), shape.blocks));
  };
  if (!call_.counts.empty()) {
    engine_->reserve_lists(shape.blocks);
    call_.count =
        std::accumulate(call_.counts.begin(), call_.counts.end(), std::uint64_t{0});  // for messages
    TUTTI_RETURN_IF_ERROR(check(call_.counts, "counts", false));
    TUTTI_RETURN_IF_ERROR(check(call_.displacements, "displacements", true));
    if (call_.collective == Collective::alltoall) {
      TUTTI_RETURN_IF_ERROR(check(call_.output_counts, "output counts", false));
      TUTTI_RETURN_IF_ERROR(check(call_.output_displacements, "output displacements", true));
      map_.bind_alltoall(call_.counts, call_.displacements, call_.output_counts, call_.output_displacements,
                         granule);
    } else {
      map_.bind_counts(call_.counts, call_.displacements, granule);
    }
  } else if (has_rank_blocks(shape.collective)) {
    map_.bind_equal(call_.count, granule);
  } else {
    map_.bind_vector(call_.count, granule);
  }
  call_.counts = call_.displacements = call_.output_counts =
      call_.output_displacements = {};  // the caller's memory
  slot_bytes_ = (map_.max_atom_count() * element_bytes_ + 63) & ~std::size_t{63};
  return {};
}

std::byte* Operation::address(const Slice& slice, std::uint32_t k) const {
  if (slice.buffer == Buffer::scratch) return scratch_ + (slice.slot + k) * slot_bytes_;
  const Range range = map_.range(slice.buffer, plan_->shape.atom(slice, k));
  return (slice.buffer == Buffer::input ? input_ : output_) + range.first * element_bytes_;
}

std::size_t Operation::atom_bytes(const Slice& slice, std::uint32_t k) const {
  return map_.range(slice.buffer, plan_->shape.atom(slice, k)).count * element_bytes_;
}

std::size_t Operation::gather_ranges(const PlanStep& step) {
  const Slice& slice = plan_->slices[step.dst];
  ConstByteRange* const first = frame_->ranges.data() + step.first_range;
  std::uint32_t count = 0;
  std::size_t total = 0;
  for (std::uint32_t k = 0; k < slice.count; ++k) {
    const std::size_t bytes = atom_bytes(slice, k);
    const std::byte* at = address(slice, k);
    total += bytes;
    if (count > 0 && first[count - 1].data() + first[count - 1].size() == at) {
      first[count - 1] = {first[count - 1].data(), first[count - 1].size() + bytes};
    } else if (bytes > 0) {
      first[count++] = {at, bytes};
    }
  }
  range_total_ = count;
  return total;
}

void Operation::compute(const PlanStep& step, std::size_t offset, std::size_t length,
                        const std::byte* arriving) {
  const Slice& dst = plan_->slices[step.dst];
  const Slice* sources = plan_->slices.data() + step.first_source;
  const std::uint32_t n = step.source_count;
  std::array<const void*, 256> at;
  std::size_t atom_start = 0;  // offset of atom k in the slice
  const std::size_t end = offset + length;
  for (std::uint32_t k = 0; k < dst.count && atom_start < end; ++k) {
    const std::size_t bytes = atom_bytes(dst, k);
    const std::size_t from = std::max(offset, atom_start), to = std::min(end, atom_start + bytes);
    if (from < to) {
      const std::size_t in_atom = from - atom_start;
      for (std::uint32_t i = 0; i < n; ++i) {
        const bool is_message = arriving != nullptr && i == step.arriving;
        at[i] = is_message ? arriving + (from - offset) : address(sources[i], k) + in_atom;
      }
      std::byte* to_address = address(dst, k) + in_atom;
      if (n == 1) {
        copy_bytes(to_address, at[0], to - from);
      } else {
        kernel_(&call_.op.user, to_address, at.data(), n, (to - from) / element_bytes_);
      }
    }
    atom_start += bytes;
  }
}

void Operation::run_user_step() { compute(plan_->steps[user_step_], 0, ~std::size_t{0} >> 1U, nullptr); }

void Operation::finish_user_step() {
  has_user_step_ = false;
  is_dirty_ = true;
  finish_step(user_step_);
}

void Operation::deliver(void* context, std::size_t offset, ConstByteRange data) {
  const auto& delivery = *static_cast<const SlotFrame::Delivery*>(context);
  Operation& operation = *delivery.operation;
  operation.compute(operation.plan_->steps[delivery.step], offset, data.size(), data.data());
}

bool Operation::is_ready(const PlanStep& step) const {
  const std::uint32_t* waits = plan_->waits.data() + step.first_wait;
  for (std::uint32_t i = 0; i < step.wait_count; ++i) {
    if (frame_->is_step_done[waits[i]] == 0) return false;
  }
  return true;
}

bool Operation::advance_messages() {
  bool has_moved = false;
  if (has_user_step_) return false;  // goes on when the user's function has returned
  is_dirty_ = false;
  std::vector<std::uint32_t>& cursor = frame_->cursor;
  for (std::size_t c = 0; c < cursor.size(); ++c) {
    const std::uint32_t end = plan_->channels[c].end_step;
    while (cursor[c] < end) {
      const std::uint32_t index = cursor[c];
      const PlanStep& step = plan_->steps[index];
      if (!is_ready(step)) break;
      const Issue result = issue(index, step);
      if (result == Issue::again) {
        is_dirty_ = true;
        break;
      }
      if (result == Issue::user) {
        has_user_step_ = true;
        is_user_step_taken_ = false;
        user_step_ = index;
        ++cursor[c];
        return true;
      }
      if (!status_) return true;
      ++cursor[c];
      has_moved = true;
      // A local step or an immediate completion may let an earlier channel go on.
      if (result == Issue::done) {
        finish_step(index);
        is_dirty_ = is_dirty_ || cursor.size() > 1;
      }
    }
  }
  return has_moved;
}

Operation::Issue Operation::issue(std::uint32_t index, const PlanStep& step) {
  switch (step.kind) {
    case PlanStep::Kind::copy:
    case PlanStep::Kind::reduce: {
      // A user's function may take its time, or call tutti: it never runs while the lane is held.
      if (call_.op.op == Op::user && step.kind == PlanStep::Kind::reduce) return Issue::user;
      compute(step, 0, ~std::size_t{0} >> 1U, nullptr);
      return Issue::done;
    }
    default:
      return issue_message(index, step);
  }
}

Operation::Issue Operation::issue_message(std::uint32_t index, const PlanStep& step) {
  Status status;
  Endpoint* endpoint = group_->endpoint(slot_, step.peer, &status);
  if (endpoint == nullptr) {
    group_->fail(status);
    fail(status);
    return Issue::pending;
  }
  const std::size_t total = gather_ranges(step);
  const RequestId request_id = this->request_id(index);
  Post post = Post::pending;
  if (step.kind == PlanStep::Kind::send) {
    post = endpoint->send(step.channel, word_, {frame_->ranges.data() + step.first_range, range_total_},
                          request_id);
  } else {
    Sink sink;
    sink.total_bytes = total;
    if (step.kind == PlanStep::Kind::recv_reduce) {
      frame_->deliveries[index] = {this, index};
      sink.deliver = &Operation::deliver;
      sink.context = &frame_->deliveries[index];
    } else {
      // The ranges describe memory of this operation's output or scratch; the list is shared with sends,
      // which only read.
      sink.ranges = {reinterpret_cast<const ByteRange*>(frame_->ranges.data() + step.first_range),
                     range_total_};
    }
    post = endpoint->recv(step.channel, word_, sink, request_id);
  }
  if (post == Post::again) return Issue::again;
  return post == Post::done ? Issue::done : Issue::pending;
}

void Operation::finish_step(std::uint32_t index) {
  frame_->is_step_done[index] = 1;
  --remaining_;
}

void Operation::on_event(const Event& event) {
  if (is_complete()) return;
  const auto index = static_cast<std::uint32_t>(event.request);
  is_dirty_ = true;
  if (event.kind == Event::Kind::sent || event.kind == Event::Kind::received) return finish_step(index);
  const std::uint32_t peer = plan_->steps[index].peer;
  if (event.kind == Event::Kind::mismatch) {
    fail_mismatch(peer, event);
  } else {
    fail_gone(peer);
  }
}

std::uint32_t Operation::first_awaited_sender() const {
  if (is_unmatched_) return call_.root == kFromAnyRank ? group_->rank() : call_.root;
  if (frame_ == nullptr) return group_->rank();  // waits for the operation in front of it
  for (std::size_t c = 0; c < frame_->cursor.size(); ++c) {
    for (std::uint32_t i = plan_->channels[c].first_step; i < frame_->cursor[c]; ++i) {
      if (frame_->is_step_done[i] == 0) return plan_->steps[i].peer;
    }
  }
  return group_->rank();
}

}  // namespace tutti
