// One walk over the steps that remembers which slices have a copy in scratch.
#include "runtime/schedule/passes/stage.hpp"

#include <algorithm>
#include <vector>

#include "runtime/schedule/check_steps.hpp"

namespace tutti {

namespace {

using detail::location;

struct Staged {
  Slice original;
  Slice copy;
};

bool overlap(const Schedule& s, const Slice& a, const Slice& b) {
  for (std::uint32_t i = 0; i < a.count; ++i) {
    for (std::uint32_t k = 0; k < b.count; ++k) {
      if (location(s, a, i) == location(s, b, k)) return true;
    }
  }
  return false;
}

}  // namespace

Schedule stage(const Schedule& s) {
  if (detail::is_lowered(s)) return s;
  Schedule to = s;
  to.steps.clear();
  to.sources.clear();
  to.dependencies.clear();
  std::vector<Staged> known;
  for (const Step& step : s.steps) {
    std::vector<Slice> sources(s.sources_of(step).begin(), s.sources_of(step).end());
    if (step.verb == Verb::send && sources[0].buffer != Buffer::scratch) {
      const auto found = std::find_if(known.begin(), known.end(),
                                      [&](const Staged& at) { return at.original == sources[0]; });
      if (found != known.end()) {
        sources[0] = found->copy;
      } else {
        Slice slot = sources[0];
        slot.buffer = Buffer::scratch;
        slot.slot = to.scratch_slots;
        to.scratch_slots += slot.count;
        Step copy;
        copy.verb = Verb::copy;
        copy.channel = step.channel;
        copy.dst = slot;
        to.append(copy, sources, {});
        known.push_back({sources[0], slot});
        sources[0] = slot;
      }
    }
    if (detail::writes(step.verb)) {
      std::erase_if(known, [&](const Staged& at) { return overlap(s, at.original, step.dst); });
    }
    Step same = step;
    same.fused_with = kNotFused;
    to.append(same, sources, {});
  }
  infer_dependencies(to);
  return to;
}

}  // namespace tutti
