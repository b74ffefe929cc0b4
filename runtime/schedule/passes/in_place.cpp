// Renaming the input; see in_place.hpp.
#include "runtime/schedule/passes/in_place.hpp"

#include <vector>

#include "runtime/schedule/check_steps.hpp"

namespace tutti {

Schedule put_input_into_output(const Schedule& schedule) {
  const auto rename = [](Slice& slice) {
    if (slice.buffer == Buffer::input) slice.buffer = Buffer::output;
  };
  Schedule to = schedule;
  to.in_place = true;
  to.steps.clear();
  to.sources.clear();
  to.dependencies.clear();
  for (Step step : schedule.steps) {
    std::vector<Slice> sources(schedule.sources_of(step).begin(), schedule.sources_of(step).end());
    for (Slice& source : sources) rename(source);
    if (detail::writes(step.verb)) rename(step.dst);
    if (step.verb == Verb::copy && sources[0] == step.dst) continue;
    step.fused_with = kNotFused;
    to.append(step, sources, {});
  }
  infer_dependencies(to);
  return to;
}

}  // namespace tutti
