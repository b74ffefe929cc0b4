// Windows of the collectives, and the inference of dependencies from program order.
#include "runtime/schedule/schedule.hpp"

#include <algorithm>
#include <array>

namespace tutti {

std::string_view to_string(Verb verb) {
  static constexpr std::array<std::string_view, 6> kNames = {"send",   "recv",   "copy",
                                                             "reduce", "signal", "wait"};
  return kNames[static_cast<std::size_t>(verb)];
}

void Schedule::append(Step step, std::span<const Slice> step_sources,
                      std::span<const std::uint32_t> step_dependencies) {
  step.first_source = static_cast<std::uint32_t>(sources.size());
  step.source_count = static_cast<std::uint32_t>(step_sources.size());
  step.first_dependency = static_cast<std::uint32_t>(dependencies.size());
  step.dependency_count = static_cast<std::uint32_t>(step_dependencies.size());
  sources.insert(sources.end(), step_sources.begin(), step_sources.end());
  dependencies.insert(dependencies.end(), step_dependencies.begin(), step_dependencies.end());
  steps.push_back(step);
}

Window contribution_window(const Schedule& s) {
  switch (s.collective) {
    case Collective::broadcast:
    case Collective::scatter:
      return s.rank == s.root ? Window{0, s.atoms()} : Window{};
    case Collective::allgather:
    case Collective::gather:
      return {s.rank * s.segments, s.segments};
    default:
      return {0, s.atoms()};
  }
}

Window window(const Schedule& s, Buffer buffer) {
  if (buffer == Buffer::scratch) return {0, s.scratch_slots};
  if (buffer == Buffer::input) return s.in_place ? Window{} : contribution_window(s);
  const Window all{0, s.atoms()}, none{}, own{s.rank * s.segments, s.segments};
  const bool is_root = s.rank == s.root;
  switch (s.collective) {
    case Collective::reduce:
      return is_root || s.in_place ? all : none;
    case Collective::reduce_scatter:
      return s.in_place ? all : own;
    case Collective::gather:
      return is_root ? all : (s.in_place ? own : none);
    case Collective::scatter:
      return s.in_place && is_root ? all : own;
    default:
      return all;
  }
}

Window result_window(const Schedule& s) {
  const Window all{0, s.atoms()}, own{s.rank * s.segments, s.segments};
  switch (s.collective) {
    case Collective::reduce:
    case Collective::gather:
      return s.rank == s.root ? all : Window{};
    case Collective::reduce_scatter:
    case Collective::scatter:
      return own;
    case Collective::exscan:
      return s.rank == 0 ? Window{} : all;  // MPI leaves rank 0's result undefined
    default:
      return all;
  }
}

namespace {

// Last writer and active readers of one location (an atom of a user buffer, a scratch slot, or a wire copy).
struct AtomUse {
  static constexpr std::uint32_t kNobody = ~0U;
  std::uint32_t writer = kNobody;
  std::vector<std::uint32_t> readers;
};

class DependencyTracker {
 public:
  explicit DependencyTracker(const Schedule& s) : schedule_(s) {
    // Nothing may be assumed of a schedule that was not built but read: make room for what it names.
    std::uint32_t slots = s.scratch_slots;
    bool has_wire_copies = s.has_wire_copies;
    const auto reach = [&](const Slice& slice) {
      has_wire_copies = has_wire_copies || slice.is_wire;
      if (slice.buffer == Buffer::scratch && slice.owner == kSelf)
        slots = std::max(slots, slice.slot + slice.count);
    };
    for (const Step& step : s.steps) reach(step.dst);
    for (const Slice& source : s.sources) reach(source);
    for (std::size_t i = 0; i < (has_wire_copies ? 2U : 1U); ++i) {
      memory_[i].input.resize(s.atoms());
      memory_[i].output.resize(s.atoms());
      memory_[i].scratch.resize(slots);
    }
  }

  void visit(const Slice& slice, bool is_written, std::uint32_t step, std::vector<std::uint32_t>& found) {
    if (slice.owner != kSelf) return;  // another rank's memory is ordered by signal and wait
    for (std::uint32_t k = 0; k < slice.count; ++k) {
      AtomUse& at = location(slice, k);
      if (at.writer != AtomUse::kNobody && at.writer != step) found.push_back(at.writer);
      if (!is_written) continue;
      for (std::uint32_t reader : at.readers) {
        if (reader != step) found.push_back(reader);
      }
    }
  }
  void record_read(const Slice& slice, std::uint32_t step) {
    if (slice.owner != kSelf) return;
    for (std::uint32_t k = 0; k < slice.count; ++k) location(slice, k).readers.push_back(step);
  }
  void record_write(const Slice& slice, std::uint32_t step) {
    if (slice.owner != kSelf) return;
    for (std::uint32_t k = 0; k < slice.count; ++k) {
      AtomUse& at = location(slice, k);
      at.writer = step;
      at.readers.clear();
    }
  }

 private:
  AtomUse& location(const Slice& slice, std::uint32_t k) {
    Memory& memory = memory_[slice.is_wire ? 1 : 0];
    if (slice.buffer == Buffer::scratch) return memory.scratch[slice.slot + k];
    return (slice.buffer == Buffer::input ? memory.input : memory.output)[schedule_.atom(slice, k)];
  }

  struct Memory {
    std::vector<AtomUse> input, output, scratch;
  };
  const Schedule& schedule_;
  std::array<Memory, 2> memory_;  // the locations, and their wire copies
};

bool writes(Verb verb) { return verb == Verb::recv || verb == Verb::copy || verb == Verb::reduce; }

}  // namespace

void infer_dependencies(Schedule& s) {
  DependencyTracker tracker(s);
  s.dependencies.clear();
  std::vector<std::uint32_t> found;
  for (std::uint32_t i = 0; i < s.steps.size(); ++i) {
    Step& step = s.steps[i];
    found.clear();
    for (const Slice& source : s.sources_of(step)) tracker.visit(source, false, i, found);
    if (writes(step.verb)) tracker.visit(step.dst, true, i, found);
    std::sort(found.begin(), found.end());
    found.erase(std::unique(found.begin(), found.end()), found.end());
    step.first_dependency = static_cast<std::uint32_t>(s.dependencies.size());
    step.dependency_count = static_cast<std::uint32_t>(found.size());
    s.dependencies.insert(s.dependencies.end(), found.begin(), found.end());
    for (const Slice& source : s.sources_of(step)) tracker.record_read(source, i);
    if (writes(step.verb)) tracker.record_write(step.dst, i);
  }
}

}  // namespace tutti
