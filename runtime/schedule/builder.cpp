// Builder: turns an author's verbs into checked steps; dependencies are inferred when it finishes.
#include "runtime/schedule/builder.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace tutti {

Builder::Builder(const CollectiveSpec& spec, const GroupView& view, std::uint32_t blocks) : view_(view) {
  schedule_.collective = spec.collective;
  schedule_.rank = view.rank;
  schedule_.size = view.size;
  schedule_.root = spec.root;
  schedule_.in_place = spec.in_place;
  schedule_.blocks = std::max(blocks, 1U);
  if (view.rank >= view.size) fail(fmt::format("rank {} of a view of {} members", view.rank, view.size));
  if (is_rooted(spec.collective) && spec.root >= view.size)
    fail(fmt::format("root {} of {} members", spec.root, view.size));
}

Slice Builder::make(Buffer buffer, std::int64_t first, std::uint32_t count, std::uint32_t stride,
                    std::uint32_t slot) const {
  const auto blocks = static_cast<std::int64_t>(schedule_.blocks);
  const std::int64_t wrapped = ((first % blocks) + blocks) % blocks;
  return {buffer, static_cast<std::uint32_t>(wrapped), count, stride, slot, kSelf};
}

Slice Builder::input(std::int64_t first, std::uint32_t count, std::uint32_t stride) const {
  return make(schedule_.in_place ? Buffer::output : Buffer::input, first, count, stride, 0);
}
Slice Builder::output(std::int64_t first, std::uint32_t count, std::uint32_t stride) const {
  return make(Buffer::output, first, count, stride, 0);
}
Slice Builder::scratch(std::uint32_t slot, std::int64_t first, std::uint32_t count,
                       std::uint32_t stride) const {
  return make(Buffer::scratch, first, count, stride, slot);
}

void Builder::fail(const std::string& what) {
  if (status_) status_ = internal_error(fmt::format("step {}: {}", schedule_.steps.size(), what));
}

void Builder::check_slice(const Slice& slice, bool is_written) {
  if (slice.count == 0) return fail("a slice of no blocks");
  if (slice.count > schedule_.blocks)
    return fail(fmt::format("{} blocks of a grid of {}", slice.count, schedule_.blocks));
  if (slice.buffer == Buffer::scratch) {
    schedule_.scratch_slots = std::max(schedule_.scratch_slots, slice.slot + slice.count);
    return;
  }
  if (is_written && slice.buffer == Buffer::input) return fail("writes to the input");
  const Window here = window(schedule_, slice.buffer);
  for (std::uint32_t k = 0; k < slice.count; ++k) {
    if (const std::uint32_t atom = schedule_.atom(slice, k); !here.contains(atom)) {
      return fail(fmt::format("block {} of {}, which rank {} does not hold", atom,
                              slice.buffer == Buffer::input ? "input" : "output", schedule_.rank));
    }
  }
}

void Builder::add(Verb verb, std::uint32_t peer, const Slice* dst, std::span<const Slice> sources,
                  std::uint16_t channel) {
  Step step;
  step.verb = verb;
  step.channel = channel;
  if (verb == Verb::send || verb == Verb::recv) {
    if (peer >= view_.size || peer == view_.rank)
      return fail(fmt::format("{} with member {}", to_string(verb), peer));
    step.peer = view_.group_rank(peer);
  }
  for (const Slice& source : sources) check_slice(source, false);
  if (dst != nullptr) {
    check_slice(*dst, true);
    step.dst = *dst;
    for (const Slice& source : sources) {
      if (source.count != dst->count)
        fail(fmt::format("{} of {} blocks into {}", to_string(verb), source.count, dst->count));
    }
  }
  schedule_.channels = std::max<std::uint32_t>(schedule_.channels, channel + 1U);
  schedule_.append(step, sources, {});
}

void Builder::send(std::uint32_t peer, const Slice& source, std::uint16_t channel) {
  add(Verb::send, peer, nullptr, {&source, 1}, channel);
}
void Builder::recv(std::uint32_t peer, const Slice& dst, std::uint16_t channel) {
  add(Verb::recv, peer, &dst, {}, channel);
}

void Builder::copy(const Slice& dst, const Slice& source, std::uint16_t channel) {
  if (dst == source) return;
  add(Verb::copy, 0, &dst, {&source, 1}, channel);
}

void Builder::reduce(const Slice& dst, std::span<const Slice> sources, std::uint16_t channel) {
  if (sources.empty()) return fail("a reduce without sources");
  if (sources.size() == 1) return copy(dst, sources[0], channel);
  add(Verb::reduce, 0, &dst, sources, channel);
}

Result<Schedule> Builder::finish() && {
  if (!status_) return status_;
  infer_dependencies(schedule_);
  return std::move(schedule_);
}

}  // namespace tutti
