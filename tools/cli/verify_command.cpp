// `tutti verify`: proves catalogue rows for ranges of group sizes, with progress and one line per row.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>

#include "runtime/algorithms/prove.hpp"
#include "runtime/schedule/passes/lower.hpp"
#include "tools/cli/arguments.hpp"
#include "tools/cli/commands.hpp"

namespace tutti::tool {
namespace {

constexpr std::uint32_t kAllRootsUpTo = 17;  // beyond, the first, the middle and the last rank stand for all

constexpr std::uint32_t kAllRootsLowered = 17;

struct Tally {
  std::uint64_t instances = 0;
  std::uint64_t steps = 0;
  std::string failure;
};

std::vector<std::uint32_t> roots_of(const AlgorithmRow& row, std::uint32_t size) {
  if (!is_rooted(row.collective)) return {0};
  std::vector<std::uint32_t> roots;
  for (std::uint32_t r = 0; r < size; ++r) {
    if (size <= kAllRootsUpTo || r == 0 || r == size / 2 || r + 1 == size) roots.push_back(r);
  }
  return roots;
}

// Makes the first reduction add its first source twice, or forgets the first send: mistakes that a proof must
// find.
void seed_fault(std::vector<Schedule>& ranks) {
  for (Schedule& schedule : ranks) {
    for (const Step& step : schedule.steps) {
      if (step.verb != Verb::reduce || step.source_count < 2) continue;
      schedule.sources[step.first_source + 1] = schedule.sources[step.first_source];
      infer_dependencies(schedule);
      return;
    }
  }
  for (Schedule& schedule : ranks) {
    const auto send = std::find_if(schedule.steps.begin(), schedule.steps.end(),
                                   [](const Step& s) { return s.verb == Verb::send; });
    if (send == schedule.steps.end()) continue;
    schedule.steps.erase(send);
    infer_dependencies(schedule);
    return;
  }
}

// Defaults, in turn with other numbers of leaders and every row that may run across, in all combinations.
AlgorithmParams hierarchical_params(const AlgorithmRow& row, std::uint32_t turn) {
  AlgorithmParams params = default_params(row);
  for (const ParamRow& param : row.params) {
    if (param.name == "leaders") params.leaders = turn % 4;
    if (param.name == "across") params.across = turn / 4 % (param.max_value + 1);
    if (param.name == "mates") params.mates = turn / 16 % 2;
  }
  return params;
}

// Flat rows see no hierarchy; the others run over some of each size.
std::vector<Instance> instances_of(const AlgorithmRow& row, std::uint32_t size) {
  std::vector<Instance> instances;
  std::vector<Hierarchy> hierarchies = {Hierarchy()};
  if (row.legality.needs_hierarchy) hierarchies = sample_hierarchies(size);
  for (const std::uint32_t root : roots_of(row, size)) {
    for (const bool in_place : {false, true}) {
      for (std::uint32_t i = 0; i < hierarchies.size(); ++i) {
        const Instance instance{size, root, in_place, hierarchical_params(row, size + root + i),
                                hierarchies[i]};
        if (is_legal(row, instance)) instances.push_back(instance);
      }
    }
  }
  return instances;
}

void prove_row(const AlgorithmRow& row, std::uint32_t size, bool has_fault, Tally& tally) {
  for (const Instance& instance : instances_of(row, size)) {
    auto ranks = emit_all(row, instance);
    Status status = ranks.status();
    if (ranks) {
      if (has_fault) seed_fault(*ranks);
      status = prove(row, instance, *ranks);
      // Lowering looks at all ranks at once: one root of many is enough, as for all roots it is the same
      // walk.
      std::uint64_t steps = 0;
      for (const Schedule& schedule : *ranks) steps += schedule.steps.size();
      const bool is_lowered_too = steps <= most_lowered_steps(size) && !instance.in_place &&
                                  (size <= kAllRootsLowered || instance.root == 0);
      if (status && is_lowered_too) status = prove_lowered(row, instance, *ranks);
      if (status) status = prove_compressed(row, instance, *ranks);
      tally.steps += steps;
    }
    ++tally.instances;
    if (!status) {
      tally.failure = status.message();
      return;
    }
  }
}

}  // namespace

int verify_command(int argc, char** argv) {
  std::string collective, algorithm, sizes = "1..16";
  bool is_all = false, has_fault = false;
  ArgumentParser app(
      "Proves that schedules do what their collective promises: every element from every rank exactly once, "
      "no deadlock under "
      "any buffering, no race, and the rounds and bytes that the catalogue claims.",
      "tutti verify");
  app.add_option("collective", collective, "prove the rows of this collective only");
  app.add_option("algorithm", algorithm, "prove this row only");
  app.add_flag("--all", is_all, "prove every row of the catalogue");
  app.add_option("-n,--ranks", sizes, "numbers of ranks: 8, 1..64 or 2,3,100").show_default();
  app.add_flag("--seed-fault", has_fault, "break each schedule first; every proof must then fail");
  int status = 0;
  if (!app.parse(argc, argv, &status)) return status;

  const auto size_list = parse_sizes(sizes);
  if (!size_list) return usage_error("verify", size_list.status());
  const auto rows = select_rows(collective, algorithm);
  if (!rows) return usage_error("verify", rows.status());
  if (!is_all && collective.empty()) {
    return usage_error("verify",
                       invalid_argument("name a collective, a collective and an algorithm, or give --all"));
  }

  const auto start = std::chrono::steady_clock::now();
  const bool has_terminal = isatty(STDERR_FILENO) == 1;
  std::uint64_t failed = 0;
  for (std::size_t i = 0; i < rows->size(); ++i) {
    const AlgorithmRow& row = *(*rows)[i];
    Tally tally;
    for (const std::uint32_t size : *size_list) {
      if (has_terminal)
        fmt::print(stderr, "\r[{}/{}] {} {}, {} ranks   ", i + 1, rows->size(), to_string(row.collective),
                   row.name, size);
      prove_row(row, size, has_fault, tally);
      if (!tally.failure.empty()) break;
    }
    if (has_terminal) fmt::print(stderr, "\r\x1b[K");
    fmt::print("{:<6} {:<15} {:<22} {:>6} schedules, {:>10} steps  {}\n",
               tally.failure.empty() ? "proved" : "FAILED", to_string(row.collective), row.name,
               tally.instances, tally.steps, tally.failure);
    std::fflush(stdout);
    failed += tally.failure.empty() ? 0U : 1U;
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  fmt::print("{} of {} rows proved for {} ranks in {:.1f} s\n", rows->size() - failed, rows->size(), sizes,
             seconds);
  return failed == 0 ? 0 : 1;
}

}  // namespace tutti::tool
