// GOAL and Graphviz text.
#include "runtime/schedule/export.hpp"

#include <algorithm>
#include <map>
#include <tuple>
#include <vector>

#include <fmt/format.h>

#include "runtime/schedule/check_steps.hpp"
#include "runtime/schedule/text.hpp"

namespace tutti {

namespace {

constexpr std::uint32_t kNone = ~0U;

// The step before each one in its channel.
std::vector<std::uint32_t> previous_in_channel(const Schedule& s) {
  std::vector<std::uint32_t> previous, last(s.channels, kNone);
  for (std::uint32_t i = 0; i < s.steps.size(); ++i) {
    previous.push_back(last[s.steps[i].channel]);
    last[s.steps[i].channel] = i;
  }
  return previous;
}

std::string goal_action(const Schedule& s, const Step& step, const GoalOptions& options) {
  const auto bytes = [&](const Slice& slice) { return slice.count * options.atom_bytes; };
  switch (step.verb) {
    case Verb::send:
      return fmt::format("send {}b to {} tag {}", bytes(s.sources_of(step)[0]), step.peer, step.channel);
    case Verb::recv:
      return fmt::format("recv {}b from {} tag {}", bytes(step.dst), step.peer, step.channel);
    case Verb::reduce:
      return fmt::format("calc {}",
                         bytes(step.dst) * (step.source_count - 1) * options.reduce_ns_per_kib / 1024);
    default:
      return fmt::format("calc {}", bytes(step.dst) * options.copy_ns_per_kib / 1024);
  }
}

}  // namespace

Result<std::string> export_goal(std::span<const Schedule> ranks, const GoalOptions& options) {
  std::string text = fmt::format("num_ranks {}\n", ranks.size());
  for (const Schedule& s : ranks) {
    if (detail::is_lowered(s)) return unsupported("GOAL: a lowered schedule exchanges no messages");
    text += fmt::format("\nrank {} {{\n", s.rank);
    const std::vector<std::uint32_t> previous = previous_in_channel(s);
    for (std::uint32_t i = 0; i < s.steps.size(); ++i) {
      text += fmt::format("l{}: {}\n", i + 1, goal_action(s, s.steps[i], options));
      for (const std::uint32_t d : s.dependencies_of(s.steps[i]))
        text += fmt::format("l{} requires l{}\n", i + 1, d + 1);
      const std::uint32_t before = previous[i];
      if (before == kNone) continue;
      const bool is_message = detail::is_message(s.steps[before].verb);
      text += fmt::format("l{} {} l{}\n", i + 1, is_message ? "irequires" : "requires", before + 1);
    }
    text += "}\n";
  }
  return text;
}

std::string export_dot(std::span<const Schedule> ranks) {
  std::string text = "digraph schedule {\n  rankdir=LR;\n  node [shape=box, fontname=monospace];\n", edges;
  // Ends of messages by (sender, receiver, channel), and signals by (rank, channel, sequence).
  std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>, std::vector<std::string>> sends, recvs;
  std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>, std::string> signals;
  const auto name = [](const Schedule& s, std::uint32_t i) { return fmt::format("r{}s{}", s.rank, i); };
  for (const Schedule& s : ranks) {
    text += fmt::format("  subgraph cluster_{} {{\n    label=\"rank {}\";\n", s.rank, s.rank);
    const std::vector<std::uint32_t> previous = previous_in_channel(s);
    for (std::uint32_t i = 0; i < s.steps.size(); ++i) {
      const Step& step = s.steps[i];
      Step shown = step;
      shown.dependency_count = 0;  // drawn as edges
      text += fmt::format("    {} [label=\"{}: {}\"];\n", name(s, i), i, to_text(s, shown));
      for (const std::uint32_t d : s.dependencies_of(step))
        edges += fmt::format("  {} -> {};\n", name(s, d), name(s, i));
      if (previous[i] != kNone)
        edges += fmt::format("  {} -> {} [style=dashed, color=gray];\n", name(s, previous[i]), name(s, i));
      if (step.verb == Verb::send) sends[{s.rank, step.peer, step.channel}].push_back(name(s, i));
      if (step.verb == Verb::recv) recvs[{step.peer, s.rank, step.channel}].push_back(name(s, i));
      if (step.verb == Verb::signal) signals[{s.rank, step.channel, step.sequence}] = name(s, i);
    }
    text += "  }\n";
  }
  for (const auto& [edge, from] : sends) {
    const auto to = recvs.find(edge);
    for (std::size_t k = 0; to != recvs.end() && k < std::min(from.size(), to->second.size()); ++k)
      edges += fmt::format("  {} -> {} [style=bold, color=blue];\n", from[k], to->second[k]);
  }
  for (const Schedule& s : ranks) {
    for (std::uint32_t i = 0; i < s.steps.size(); ++i) {
      const Step& step = s.steps[i];
      if (step.verb != Verb::wait) continue;
      const auto from = signals.find({step.peer, step.channel, step.sequence});
      if (from != signals.end())
        edges += fmt::format("  {} -> {} [style=bold, color=blue];\n", from->second, name(s, i));
    }
  }
  return text + edges + "}\n";
}

}  // namespace tutti
