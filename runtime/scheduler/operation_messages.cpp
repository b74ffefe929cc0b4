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
  const Schedule& shape = messages_.plan->shape;
  // The whole vector lies at the input; the caller's output is the own block in it.
  const bool is_scatter_root = shape.collective == Collective::scatter && shape.rank == shape.root;
  if (shape.in_place && (shape.collective == Collective::reduce_scatter || is_scatter_root)) output_ = input_;
  messages_.scratch = frame.scratch.data();
  if (const std::uint64_t count = prescaled_count(shape); count > 0)
    prescale(messages_.scratch + shape.scratch_slots * messages_.slot_bytes, count);
  frame.cursor.resize(messages_.plan->channels.size());
  for (std::size_t c = 0; c < frame.cursor.size(); ++c)
    frame.cursor[c] = messages_.plan->channels[c].first_step;
  frame.is_step_done.assign(messages_.plan->steps.size(), 0);
  messages_.remaining = static_cast<std::uint32_t>(messages_.plan->steps.size());
  messages_.is_dirty = true;
}

Status Operation::bind_counts() {
  const Schedule& shape = messages_.plan->shape;
  const std::uint64_t granule = std::max<std::uint64_t>(1, kCacheLineBytes / element_bytes_);
  map_.reset(shape);
  const auto check = [&](std::span<const std::uint64_t> list, const char* name, bool may_be_empty) -> Status {
    if (list.size() == shape.blocks || (may_be_empty && list.empty())) return {};
    return invalid_argument(
        fmt::format("{}: {} entries for {} ranks; one per rank is needed", name, list.size(), shape.blocks));
  };
  if (!call_.counts.empty()) {
    engine_.pool().reserve_lists(shape.blocks);
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
  messages_.slot_bytes = (map_.max_atom_count() * element_bytes_ + 63) & ~std::size_t{63};
  return {};
}

std::byte* Operation::address(const Slice& slice, std::uint32_t k) const {
  if (slice.is_wire) return wire_address(slice, k);
  if (slice.buffer == Buffer::scratch) return messages_.scratch + (slice.slot + k) * messages_.slot_bytes;
  const Range range = map_.range(slice.buffer, messages_.plan->shape.atom(slice, k));
  return (slice.buffer == Buffer::input ? input_ : output_) + range.first * element_bytes_;
}

std::size_t Operation::atom_bytes(const Slice& slice, std::uint32_t k) const {
  const std::size_t bytes = slice.is_wire ? messages_.wire.element_bytes : element_bytes_;
  return map_.range(slice.buffer, messages_.plan->shape.atom(slice, k)).count * bytes;
}

std::size_t Operation::gather_ranges(const PlanStep& step, std::uint32_t* range_count) {
  // Of a message that is reduced where it lies, the slice that it stands for.
  const bool is_reduced = step.kind == PlanStep::Kind::recv_reduce;
  const Slice& slice = messages_.plan->slices[is_reduced ? step.first_source + step.arriving : step.dst];
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
  *range_count = count;
  return total;
}

void Operation::compute(const PlanStep& step, std::size_t offset, std::size_t length,
                        const std::byte* arriving) {
  if (messages_.wire.element_bytes != 0) return compute_converting(step, offset, length, arriving);
  const Slice& dst = messages_.plan->slices[step.dst];
  const Slice* sources = messages_.plan->slices.data() + step.first_source;
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
      compute_run(to_address, std::span(at).first(n), to - from);
    }
    atom_start += bytes;
  }
}

void Operation::compute_run(std::byte* dst, std::span<const void* const> sources, std::size_t bytes) {
  const std::size_t n = sources.size();
  if (n == 1) {
    const auto* const from = static_cast<const std::byte*>(sources[0]);
    return run_in_parts(engine_.helpers(), bytes, bytes, [&](std::size_t first, std::size_t length) {
      copy_bytes(dst + first, from + first, length);
    });
  }
  const auto run_kernel = [&](std::size_t first, std::size_t length) {
    std::array<const void*, 256> at;
    for (std::size_t i = 0; i < n; ++i) at[i] = static_cast<const std::byte*>(sources[i]) + first;
    kernel_(&call_.op.user, dst + first, at.data(), n, length / element_bytes_);
  };
  // A function of the program is called on the program's threads alone.
  if (call_.op.op == Op::user) return run_kernel(0, bytes);
  run_in_parts(engine_.helpers(), bytes, bytes * n, run_kernel);
}

void Operation::compute_shown(const PlanStep& step, std::size_t offset, std::size_t length,
                              const std::byte* arriving) {
  const bool is_reduction = step.source_count > 1;
  if (is_reduction) recorded_.times.reduce(true);
  compute(step, offset, length, arriving);
  if (is_reduction) recorded_.times.reduce(false);
}

void Operation::run_user_step() {
  compute(messages_.plan->steps[messages_.user_step], 0, ~std::size_t{0} >> 1U, nullptr);
}

bool Operation::take_user_step() {
  if (messages_.user != UserStep::due) return false;
  messages_.user = UserStep::running;
  return true;
}

void Operation::finish_user_step() {
  messages_.user = UserStep::none;
  messages_.is_dirty = true;
  finish_step(messages_.user_step);
}

void Operation::deliver(void* context, std::size_t offset, ConstByteRange data) {
  const auto& delivery = *static_cast<const SlotFrame::Delivery*>(context);
  Operation& operation = *delivery.operation;
  operation.compute_shown(operation.messages_.plan->steps[delivery.step], offset, data.size(), data.data());
}

bool Operation::is_ready(const PlanStep& step) const {
  const std::uint32_t* waits = messages_.plan->waits.data() + step.first_wait;
  for (std::uint32_t i = 0; i < step.wait_count; ++i) {
    if (frame_->is_step_done[waits[i]] == 0) return false;
  }
  return true;
}

bool Operation::advance_messages() {
  bool has_moved = false;
  if (messages_.user != UserStep::none) return false;  // goes on when the user's function has returned
  messages_.is_dirty = false;
  std::vector<std::uint32_t>& cursor = frame_->cursor;
  for (std::size_t c = 0; c < cursor.size(); ++c) {
    const std::uint32_t end = messages_.plan->channels[c].end_step;
    while (cursor[c] < end) {
      const std::uint32_t index = cursor[c];
      const PlanStep& step = messages_.plan->steps[index];
      if (!is_ready(step)) break;
      const Issue result = issue(index, step);
      if (result == Issue::again) {
        messages_.is_dirty = true;
        break;
      }
      if (result == Issue::user) {
        messages_.user = UserStep::due;
        messages_.user_step = index;
        ++cursor[c];
        return true;
      }
      if (!status_) return true;
      ++cursor[c];
      has_moved = true;
      // A local step or an immediate completion may let an earlier channel go on.
      if (result == Issue::done) {
        finish_step(index);
        messages_.is_dirty = messages_.is_dirty || cursor.size() > 1;
      }
    }
  }
  return has_moved;
}

Operation::Issue Operation::issue(std::uint32_t index, const PlanStep& step) {
  switch (step.kind) {
    case PlanStep::Kind::copy:
    case PlanStep::Kind::reduce: {
      // A user's function may take its time, or call tutti: it never runs while the progress lock is held.
      if (call_.op.op == Op::user && step.kind == PlanStep::Kind::reduce) return Issue::user;
      compute_shown(step, 0, ~std::size_t{0} >> 1U, nullptr);
      return Issue::done;
    }
    default:
      return issue_message(index, step);
  }
}

Operation::Issue Operation::issue_message(std::uint32_t index, const PlanStep& step) {
  Status status;
  Endpoint* endpoint = group_->endpoint(queued_.slot, step.peer, &status);
  if (endpoint == nullptr) {
    group_->fail(status);
    fail(status);
    return Issue::pending;
  }
  std::uint32_t range_count = 0;
  const std::size_t total = gather_ranges(step, &range_count);
  const RequestId request_id = this->request_id(index);
  Post post = Post::pending;
  if (step.kind == PlanStep::Kind::send) {
    post = endpoint->send(step.channel, word_, {frame_->ranges.data() + step.first_range, range_count},
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
                     range_count};
    }
    post = endpoint->recv(step.channel, word_, sink, request_id);
  }
  if (post == Post::again) return Issue::again;
  group_->count_traffic(step.peer, step.kind == PlanStep::Kind::send, total);
  return post == Post::done ? Issue::done : Issue::pending;
}

void Operation::finish_step(std::uint32_t index) {
  frame_->is_step_done[index] = 1;
  --messages_.remaining;
}

void Operation::on_event(const Event& event) {
  if (is_complete()) return;
  const auto index = static_cast<std::uint32_t>(event.request);
  messages_.is_dirty = true;
  if (event.kind == Event::Kind::received && !recorded_.has_heard) {
    recorded_.has_heard = true;
    recorded_.times.go_on();
  }
  if (event.kind == Event::Kind::sent || event.kind == Event::Kind::received) return finish_step(index);
  const std::uint32_t peer = messages_.plan->steps[index].peer;
  if (event.kind == Event::Kind::mismatch) {
    fail_mismatch(peer, event);
  } else {
    fail_gone(peer);
  }
}

std::uint32_t Operation::first_awaited_sender() const {
  if (queued_.is_unmatched) return call_.root == kFromAnyRank ? group_->rank() : call_.root;
  if (frame_ == nullptr) return group_->rank();  // waits for the operation in front of it
  for (std::size_t c = 0; c < frame_->cursor.size(); ++c) {
    for (std::uint32_t i = messages_.plan->channels[c].first_step; i < frame_->cursor[c]; ++i) {
      if (frame_->is_step_done[i] == 0) return messages_.plan->steps[i].peer;
    }
  }
  return group_->rank();
}

}  // namespace tutti
