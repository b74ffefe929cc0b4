// Segmentation. Start from the order "for each step: for each segment". It cannot deadlock if the original
// does not: replay any run of the original with all segments of a step where the step was. Messages still
// match first in first out, because both sides list the segments of the first message, then those of the
// second.
// That order alone would hold back the next send of segment 0 behind the reduction of the last segment. So a
// send or recv moves to the first place in its channel where all its dependencies are complete and the
// previous message with that peer is listed. A step that cannot wait adds no wait to the steps behind it, so
// the result cannot deadlock either.
#include "runtime/schedule/passes/segment.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <tuple>
#include <vector>

#include <fmt/format.h>

namespace tutti {

namespace {

class Segmenter {
 public:
  Segmenter(const Schedule& s, std::uint32_t segments, std::uint32_t channels)
      : from_(s), segments_(segments), channels_(channels) {}

  Schedule run() {
    place_all();
    Schedule to = from_;
    to.segments = segments_;
    to.channels = from_.channels * channels_;
    to.scratch_slots = from_.scratch_slots * segments_;
    to.steps.clear();
    to.sources.clear();
    to.dependencies.clear();
    std::vector<std::uint32_t> order(place_.size());
    std::iota(order.begin(), order.end(), 0U);
    std::stable_sort(order.begin(), order.end(),
                     [this](std::uint32_t a, std::uint32_t b) { return place_[a] < place_[b]; });
    std::vector<Slice> sources;
    for (const std::uint32_t part : order) {
      const std::uint32_t segment = part % segments_;
      Step step = from_.steps[part / segments_];
      sources.clear();
      for (const Slice& source : from_.sources_of(step)) sources.push_back(cut(source, segment));
      step.dst = cut(step.dst, segment);
      step.channel = channel_of(part);
      if (step.verb == Verb::send) step.dst = {};
      to.append(step, sources, {});
    }
    infer_dependencies(to);
    return to;
  }

 private:
  // A part is segment `part % segments_` of step `part / segments_`.
  std::uint16_t channel_of(std::uint32_t part) const {
    return static_cast<std::uint16_t>(from_.steps[part / segments_].channel * channels_ +
                                      part % segments_ % channels_);
  }

  Slice cut(Slice slice, std::uint32_t segment) const {
    slice.first = slice.first * segments_ + segment;
    slice.stride = slice.stride % from_.blocks * segments_;
    if (slice.count == 1) slice.stride = 1;
    if (slice.buffer == Buffer::scratch) slice.slot += segment * from_.scratch_slots;
    return slice;
  }

  // place_[part]: the part goes behind the part of that number, ties in order of numbers.
  void place_all() {
    place_.resize(from_.steps.size() * segments_);
    std::iota(place_.begin(), place_.end(), 0U);
    // By part and channel: behind which part is it known to be complete?
    std::map<std::pair<std::uint32_t, std::uint16_t>, std::uint32_t> complete;
    std::map<std::tuple<std::uint32_t, bool, std::uint16_t>, std::uint32_t> last_message;
    for (std::uint32_t part = 0; part < place_.size(); ++part) {
      const Step& step = from_.steps[part / segments_];
      const std::uint16_t channel = channel_of(part);
      const bool is_message = step.verb == Verb::send || step.verb == Verb::recv;
      std::uint32_t earliest = 0;
      bool waits = !is_message;
      for (const std::uint32_t d : from_.dependencies_of(step)) {
        const auto known = complete.find({d * segments_ + part % segments_, channel});
        if (known == complete.end()) {
          waits = true;
        } else {
          earliest = std::max(earliest, known->second);
        }
      }
      if (is_message) {
        const auto [last, is_first] =
            last_message.try_emplace({step.peer, step.verb == Verb::send, channel}, 0);
        if (!is_first) earliest = std::max(earliest, last->second);
        if (!waits) place_[part] = earliest;
        last->second = place_[part];
      } else {
        complete[{part, channel}] = place_[part];
      }
      if (!waits) continue;
      for (const std::uint32_t d : from_.dependencies_of(step))  // whoever is behind this knows them complete
        complete.try_emplace({d * segments_ + part % segments_, channel}, place_[part]);
    }
  }

  const Schedule& from_;
  std::uint32_t segments_, channels_;
  std::vector<std::uint32_t> place_;
};

}  // namespace

Result<Schedule> segment(const Schedule& s, std::uint32_t segments, std::uint32_t channels) {
  if (segments == 0 || channels == 0) return invalid_argument("segment: at least one segment and channel");
  if (s.segments != 1) return invalid_argument("segment: the schedule is segmented already");
  for (const Step& step : s.steps) {
    if (step.verb == Verb::signal || step.verb == Verb::wait)
      return invalid_argument("segment: segments are cut before lowering");
  }
  constexpr std::uint64_t kMost = 1ULL << 28;
  if (std::uint64_t{s.blocks} * segments > kMost || std::uint64_t{s.scratch_slots} * segments > kMost ||
      std::uint64_t{s.channels} * channels > std::numeric_limits<std::uint16_t>::max())
    return invalid_argument(
        fmt::format("segment: {} segments on {} channels are too many", segments, channels));
  if (segments == 1) return s;
  return Segmenter(s, segments, std::min(channels, segments)).run();
}

}  // namespace tutti
