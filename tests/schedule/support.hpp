// Shared by the schedule tests: all ranks' schedules by name, and hand-written ones. Knows no transport.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "runtime/algorithms/prove.hpp"
#include "runtime/schedule/builder.hpp"
#include "runtime/schedule/text.hpp"
#include "runtime/schedule/verify.hpp"
#include "tests/support/catch.hpp"

namespace tutti::test {

// A row of the catalogue over p ranks, parameters at their defaults.
inline std::vector<Schedule> emit_row(Collective collective, std::string_view name, std::uint32_t p,
                                      bool in_place = false, std::uint32_t root = 0) {
  const AlgorithmRow* row = find_algorithm(collective, name);
  REQUIRE(row != nullptr);
  auto ranks = emit_all(*row, {p, root, in_place, default_params(*row)});
  INFO(ranks.status().message());
  REQUIRE(ranks.is_ok());
  return *std::move(ranks);
}

// The hierarchies for a row: all ranks alike, or domains.
inline std::vector<Hierarchy> hierarchies_of(const AlgorithmRow& row, std::uint32_t p) {
  return row.legality.needs_hierarchy ? sample_hierarchies(p) : std::vector<Hierarchy>{Hierarchy()};
}

// A row over p ranks, parameters at their defaults: nothing if it is not legal there, several if it needs a
// hierarchy.
inline std::vector<Instance> instances_of(const AlgorithmRow& row, std::uint32_t p, std::uint32_t root = 0,
                                          bool in_place = false) {
  std::vector<Instance> instances;
  for (Hierarchy& hierarchy : hierarchies_of(row, p)) {
    Instance instance{p, root, in_place, default_params(row), std::move(hierarchy)};
    if (is_legal(row, instance)) instances.push_back(std::move(instance));
  }
  return instances;
}

// Schedules of p ranks written by hand: `emit` adds the steps of one rank.
inline std::vector<Schedule> build(Collective collective, std::uint32_t p, std::uint32_t blocks,
                                   bool in_place, const std::function<void(Builder&)>& emit) {
  std::vector<Schedule> ranks;
  for (std::uint32_t r = 0; r < p; ++r) {
    CollectiveSpec spec;
    spec.collective = collective;
    spec.in_place = in_place;
    GroupView view;
    view.rank = r;
    view.size = p;
    Builder b(spec, view, blocks);
    emit(b);
    auto schedule = std::move(b).finish();
    INFO(schedule.status().message());
    REQUIRE(schedule.is_ok());
    ranks.push_back(*std::move(schedule));
  }
  return ranks;
}

// The verifier's message, or "" if it accepts.
inline std::string verdict(const std::vector<Schedule>& ranks, Algebra algebra = Algebra::multiset) {
  return verify(ranks, algebra).status().message();
}

// The same schedule after a change of its text: replaces line `index` (steps count from 0) by `line`, inserts
// it there, or drops the line. Dependencies are inferred anew unless they are the point.
inline Schedule edit(const Schedule& schedule, const std::function<void(std::vector<std::string>&)>& change,
                     bool infer = true) {
  std::vector<std::string> lines;
  for (const Step& step : schedule.steps) {
    Step shown = step;
    if (infer) shown.dependency_count = 0;
    lines.push_back(to_text(schedule, shown));
  }
  change(lines);
  Schedule header = schedule;
  header.steps.clear();
  header.sources.clear();
  header.dependencies.clear();
  std::string text = print_schedule(header);
  for (const std::string& line : lines) text += line + "\n";
  auto edited = parse_schedule(text);
  INFO(edited.status().message());
  REQUIRE(edited.is_ok());
  if (infer) infer_dependencies(*edited);
  return *std::move(edited);
}

}  // namespace tutti::test
