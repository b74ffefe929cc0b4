// Numbers the steps, and finds the other side of messages and flags. See step_graph.hpp.
#include "runtime/selection/step_graph.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

namespace tutti::detail {

Result<StepGraph> StepGraph::make(std::span<const Schedule> ranks, Symmetry symmetry, std::uint32_t size) {
  StepGraph graph(ranks);
  graph.index_steps();
  TUTTI_RETURN_IF_ERROR(graph.match_messages(symmetry, size));
  TUTTI_RETURN_IF_ERROR(graph.match_flags());
  return graph;
}

void StepGraph::index_steps() {
  std::uint32_t channels = 1;
  for (std::uint32_t r = 0; r < ranks_.size(); ++r) {
    first_step_.push_back(size());
    rank_of_.insert(rank_of_.end(), ranks_[r].steps.size(), r);
    channels = std::max(channels, ranks_[r].channels);
  }
  const StepId count = size();
  waits_.assign(count, 0);
  next_.assign(count, kNone);
  partner_.assign(count, kNone);
  dependents_begin_.assign(count + 1, 0);
  std::vector<StepId> last(channels, kNone);
  for (StepId id = 0; id < count; ++id) {
    if (is_first_of_rank(id)) std::fill(last.begin(), last.end(), kNone);
    const Step& step = step_of(id);
    const auto dependencies = schedule_of(id).dependencies_of(step);
    waits_[id] = static_cast<std::uint32_t>(dependencies.size());
    for (const std::uint32_t d : dependencies) ++dependents_begin_[first_step_[rank_of_[id]] + d + 1];
    StepId& before = last[step.channel];
    if (before != kNone) {
      next_[before] = id;
      ++waits_[id];
    }
    before = id;
  }
  for (StepId i = 0; i < count; ++i) dependents_begin_[i + 1] += dependents_begin_[i];
  dependents_.resize(dependents_begin_[count]);
  std::vector<std::uint32_t> at(dependents_begin_.begin(), dependents_begin_.end() - 1);
  for (StepId id = 0; id < count; ++id) {
    for (const std::uint32_t d : schedule_of(id).dependencies_of(step_of(id)))
      dependents_[at[first_step_[rank_of_[id]] + d]++] = id;
  }
}

// First in, first out per (sender, receiver, channel).
Status StepGraph::match_messages(Symmetry symmetry, std::uint32_t size) {
  struct End {
    std::uint32_t from, to, distance, channel;  // from and to: who stands for them
    StepId id;
    auto edge() const { return std::tuple(from, to, distance, channel); }
  };
  const auto stand_ins = static_cast<std::uint32_t>(ranks_.size());
  const auto far = [&](std::uint32_t from, std::uint32_t to) {
    return displacement(symmetry, from, to, size);
  };
  std::vector<End> sends, recvs;
  for (StepId id = 0; id < rank_of_.size(); ++id) {
    const Step& step = step_of(id);
    const std::uint32_t rank = rank_of_[id], peer = step.peer % stand_ins;
    if (step.verb == Verb::send) sends.push_back({rank, peer, far(rank, step.peer), step.channel, id});
    if (step.verb == Verb::recv) recvs.push_back({peer, rank, far(step.peer, rank), step.channel, id});
  }
  const auto less = [](const End& a, const End& b) {
    return std::tuple(a.edge(), a.id) < std::tuple(b.edge(), b.id);
  };
  std::sort(sends.begin(), sends.end(), less);
  std::sort(recvs.begin(), recvs.end(), less);
  const auto is_edge = [](const End& a, const End& b) { return a.edge() == b.edge(); };
  if (!std::equal(sends.begin(), sends.end(), recvs.begin(), recvs.end(), is_edge))
    return invalid_argument("messages without a partner");
  for (std::size_t i = 0; i < sends.size(); ++i) {
    partner_[sends[i].id] = recvs[i].id;
    partner_[recvs[i].id] = sends[i].id;
  }
  return {};
}

// Sequences of a flag line are numbered through.
Status StepGraph::match_flags() {
  using Line = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, StepId>;  // rank, channel, sequence
  std::vector<Line> lines;
  bool has_waits = false;
  for (StepId id = 0; id < rank_of_.size(); ++id) {
    const Step& step = step_of(id);
    has_waits = has_waits || step.verb == Verb::wait;
    if (step.verb == Verb::signal) lines.emplace_back(rank_of_[id], step.channel, step.sequence, id);
  }
  if (lines.empty() && !has_waits) return {};
  std::sort(lines.begin(), lines.end());
  waiters_.resize(rank_of_.size());
  signal_of_.assign(rank_of_.size(), kNone);
  for (StepId id = 0; id < rank_of_.size(); ++id) {
    const Step& step = step_of(id);
    if (step.verb != Verb::wait) continue;
    const auto wanted = std::tuple(step.peer, std::uint32_t{step.channel}, step.sequence, StepId{0});
    const auto found = std::lower_bound(lines.begin(), lines.end(), wanted);
    if (found == lines.end() || std::get<0>(*found) != step.peer || std::get<1>(*found) != step.channel ||
        std::get<2>(*found) != step.sequence)
      return invalid_argument("a wait of what nobody signals");
    signal_of_[id] = std::get<3>(*found);
    waiters_[signal_of_[id]].push_back(id);
    ++waits_[id];
  }
  return {};
}

}  // namespace tutti::detail
