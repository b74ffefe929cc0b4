// `tutti schedule`: prints the schedules of an algorithm, transformed or exported as asked, or checks a file
// of them. Knows no transport.
#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "runtime/algorithms/prove.hpp"
#include "runtime/schedule/export.hpp"
#include "runtime/schedule/passes/fuse.hpp"
#include "runtime/schedule/passes/lower.hpp"
#include "runtime/schedule/passes/segment.hpp"
#include "runtime/schedule/text.hpp"
#include "runtime/selection/rules.hpp"
#include "tools/cli/arguments.hpp"
#include "tools/cli/commands.hpp"

namespace tutti::tool {
namespace {

struct ScheduleOptions {
  std::string collective, algorithm, domains, check_path;
  std::uint32_t rank_count = 4, root = 0, segments = 0, channels = 1;
  int rank = -1;
  bool in_place = false, is_lowered = false, is_staged = false, is_fused = false, is_rolled = false,
       is_goal = false, is_dot = false;
};

constexpr std::uint32_t kMostRanks = 4096;

// "2,2,3": domains of so many neighbours. Empty: flat.
Result<Hierarchy> parse_domains(const ScheduleOptions& options) {
  if (options.domains.empty()) return Hierarchy();
  const auto sizes = parse_sizes(options.domains);
  if (!sizes) return sizes.status().with_context("--domains");
  Hierarchy hierarchy = Hierarchy::of_sizes(*sizes);
  if (hierarchy.size() == options.rank_count) return hierarchy;
  return invalid_argument(fmt::format("--domains {}: {} ranks; expected those of -n, {}", options.domains,
                                      hierarchy.size(), options.rank_count));
}

// The row and parameters that "ring" or "bruck(radix=4)" means.
Result<RuleItem> parse_algorithm(const ScheduleOptions& options) {
  const auto collective = parse_collective(options.collective);
  if (!collective) return select_rows(options.collective, "").status();
  auto rules = parse_rules(*collective, options.algorithm);
  if (!rules) return rules.status();
  if (rules->size() != 1 || rules->front().row == nullptr || !rules->front().conditions.empty())
    return invalid_argument(
        fmt::format("'{}': expected one algorithm, without conditions", options.algorithm));
  return rules->front();
}

Result<std::vector<Schedule>> make_schedules(const ScheduleOptions& options) {
  auto item = parse_algorithm(options);
  if (!item) return item.status();
  if (is_rooted(item->row->collective) ? options.root >= options.rank_count : options.root != 0) {
    return invalid_argument(
        is_rooted(item->row->collective)
            ? fmt::format("--root {}: the ranks are 0 to {}", options.root, options.rank_count - 1)
            : fmt::format("--root: {} has no root", options.collective));
  }
  auto hierarchy = parse_domains(options);
  if (!hierarchy) return hierarchy.status();
  const Instance instance{options.rank_count, options.root, options.in_place, item->params,
                          *std::move(hierarchy)};
  TUTTI_RETURN_IF_ERROR(
      check_legality(*item->row, options.rank_count, true, options.in_place, true, &instance.hierarchy));
  auto ranks = emit_all(*item->row, instance);
  if (!ranks) return ranks.status();
  if (options.segments > 0) {
    for (Schedule& schedule : *ranks) {
      auto cut = segment(schedule, options.segments, options.channels);
      if (!cut) return cut.status();
      schedule = *std::move(cut);
    }
  }
  if (options.is_lowered) return lower_for_shared_memory(*ranks, Sharing::buffers);
  if (options.is_staged) return lower_for_shared_memory(*ranks, Sharing::scratch);
  if (options.is_fused) {
    for (Schedule& schedule : *ranks) schedule = fuse(std::move(schedule));
  }
  return ranks;
}

Status print_schedules(const ScheduleOptions& options, const std::vector<Schedule>& ranks) {
  if (options.is_goal) {
    const auto text = export_goal(ranks);
    if (!text) return text.status();
    fmt::print("{}", *text);
    return {};
  }
  if (options.is_dot) {
    fmt::print("{}", export_dot(ranks));
    return {};
  }
  for (const Schedule& schedule : ranks) {
    if (options.rank >= 0 && schedule.rank != static_cast<std::uint32_t>(options.rank)) continue;
    fmt::print("{}", print_schedule(schedule, options.is_rolled ? TextForm::rolled : TextForm::plain));
  }
  return {};
}

// All three algebras: what arrived, in which order, and whether all ranks get equal bits.
int check_file(const std::string& path) {
  std::ifstream file;
  if (path != "-") file.open(path);
  std::istream& in = path == "-" ? std::cin : file;
  if (!in)
    return usage_error("schedule",
                       invalid_argument(fmt::format("--check {}: {}", path, std::strerror(errno))));
  const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  const auto ranks = parse_schedules(text);
  if (!ranks) return usage_error("schedule", ranks.status().with_context(path));
  if (ranks->empty()) return usage_error("schedule", invalid_argument(path + ": there is no schedule in it"));
  const auto report = verify(*ranks, Algebra::multiset);
  if (!report) {
    fmt::print("FAILED {}: {}\n", path, report.status().message());
    return 1;
  }
  const Schedule& first = ranks->front();
  const auto in_order = verify(*ranks, Algebra::word);
  const auto bits = verify(*ranks, Algebra::expression);
  fmt::print("proved {}: {} over {} ranks, {} rounds, at most {} of {} atoms sent by a rank, {} messages\n",
             path, to_string(first.collective), first.size, report->rounds, report->max_sent_atoms,
             first.atoms(), report->messages);
  fmt::print("  rank order kept: {}\n  same bits on all ranks: {}\n  unequal counts: {}\n",
             in_order ? "yes" : "no, " + in_order.status().message(), bits && bits->same_bits ? "yes" : "no",
             report->v_safe ? "yes" : "no, " + report->not_v_safe);
  return 0;
}

void add_options(ArgumentParser& app, ScheduleOptions& options) {
  app.footer(
      "Examples:\n"
      "  tutti schedule allreduce ring -n 4 --loops\n"
      "  tutti schedule allgather 'bruck(radix=3)' -n 9 --rank 0\n"
      "  tutti schedule allreduce 'hierarchical(leaders=1)' -n 7 --domains 2,2,3\n"
      "  tutti schedule allreduce two_shot -n 4 --lowered > lowered.txt; tutti schedule --check lowered.txt\n"
      "  tutti schedule broadcast binomial -n 8 --dot | dot -Tsvg > tree.svg");
  app.add_option("collective", options.collective,
                 "allreduce, allgather, ... (`tutti info --algorithms` lists them)");
  app.add_option("algorithm", options.algorithm,
                 "a name of the catalogue, with parameters if wanted: bruck(radix=4)");
  app.add_option("-n,--ranks", options.rank_count, "number of ranks").show_default();
  app.add_option("--rank", options.rank, "this rank only");
  app.add_option("--root", options.root, "root of rooted collectives").show_default();
  app.add_option("--domains", options.domains,
                 "for hierarchical: sizes of domains of neighbouring ranks, such as 2,2,3");
  app.add_flag("--in-place", options.in_place, "the output is also the input");
  app.add_option("--segments", options.segments, "cut every block into so many segments");
  app.add_option("--channels", options.channels, "channels that the segments are spread over").show_default();
  Argument lowered =
      app.add_flag("--lowered", options.is_lowered, "lower to shared memory: loads, stores, signal, wait");
  Argument staged = app.add_flag("--staged", options.is_staged,
                                 "lower to ranks that share their scratch only: buffers lie anywhere");
  staged.excludes(lowered);
  app.add_flag("--fused", options.is_fused, "mark the steps that may run in one pass over the data")
      .excludes(lowered)
      .excludes(staged);
  Argument loops = app.add_flag("--loops", options.is_rolled, "write repetition as loops");
  Argument goal =
      app.add_flag("--goal", options.is_goal, "write GOAL, for LogGOPSim and ATLAHS").excludes(loops);
  app.add_flag("--dot", options.is_dot, "write a Graphviz graph").excludes(loops).excludes(goal);
  app.add_option("--check", options.check_path, "verify the schedules in this file (- is standard input)");
}

}  // namespace

int schedule_command(int argc, char** argv) {
  ScheduleOptions options;
  ArgumentParser app(
      "Prints the schedules of an algorithm: what every rank sends, receives, copies and reduces, in order. "
      "Or checks\n"
      "schedules that were saved in this form.",
      "tutti schedule");
  add_options(app, options);
  int status = 0;
  if (!app.parse(argc, argv, &status)) return status;

  if (!options.check_path.empty()) {
    if (!options.collective.empty())
      return usage_error("schedule", invalid_argument("--check takes a file and no collective"));
    return check_file(options.check_path);
  }
  if (options.collective.empty())
    return usage_error(
        "schedule",
        invalid_argument("name a collective and an algorithm (`tutti info --algorithms` lists them)"));
  if (options.algorithm.empty()) {
    const auto rows = select_rows(options.collective, "");
    if (!rows) return usage_error("schedule", rows.status());
    std::vector<std::string_view> names;
    for (const AlgorithmRow* row : *rows) names.push_back(row->name);
    return usage_error("schedule", invalid_argument(fmt::format("name an algorithm of {}; there are: {}",
                                                                options.collective, joined(names, " "))));
  }
  if (options.rank_count < 1 || options.rank_count > kMostRanks)
    return usage_error("schedule", invalid_argument(fmt::format("-n: expected 1 to {} ranks", kMostRanks)));
  if (options.rank >= static_cast<int>(options.rank_count))
    return usage_error("schedule", invalid_argument(fmt::format("--rank {}: the ranks are 0 to {}",
                                                                options.rank, options.rank_count - 1)));
  const auto ranks = make_schedules(options);
  if (!ranks) return usage_error("schedule", ranks.status());
  const Status printed = print_schedules(options, *ranks);
  return printed ? 0 : usage_error("schedule", printed);
}

}  // namespace tutti::tool
