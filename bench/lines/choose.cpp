// Lists the choices of the cost model on nodes that nobody here owns, for the review of default rules:
//
//   lines_choose NODE COLLECTIVE RANKS...    a row for each number of ranks, size and algorithm:
//                                            node,collective,ranks,bytes,algorithm,us,is_default
//   lines_choose --table NODE ...            a row for each number of ranks and size, as in docs/data:
//                                            node,collective,ranks,bytes,default,predicted_us,fastest,fastest_us
//
// NODE is a name of `tutti explain --node`. Algorithms that would take four times as long as the best are left out.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/config.hpp"
#include "runtime/base/rank_lists.hpp"
#include "runtime/selection/explain.hpp"
#include "runtime/selection/line_costs.hpp"
#include "tools/cli/assumed_domains.hpp"
#include "tools/cli/starting_model.hpp"
#include "topology/discovery.hpp"

namespace tutti::bench {
namespace {

constexpr std::uint64_t kSizes[] = {8, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576};
constexpr std::uint64_t kMostSteps = 60'000;  // of all ranks: longer schedules are not for short vectors

struct Entrant {
  std::string name;
  Program program;
};

std::string key_of(const NamedNode& node, const Question& question) {
  return std::string(node.name) + "," + std::string(to_string(question.collective)) + "," +
         std::to_string(question.size) + "," + std::to_string(question.bytes);
}

// Prints what the algorithms would take; `fallback`: the default rules' choice.
void print_all(const std::string& key, const std::vector<Entrant>& entrants, const std::vector<double>& us,
               const std::string& fallback) {
  const double least = *std::min_element(us.begin(), us.end());
  for (std::size_t i = 0; i < entrants.size(); ++i) {
    const bool is_default = entrants[i].name == fallback;
    if (us[i] > 4 * least && !is_default) continue;
    std::printf("%s,\"%s\",%.3f,%d\n", key.c_str(), entrants[i].name.c_str(), us[i], is_default ? 1 : 0);
  }
}
void print_best(const std::string& key, const std::vector<Entrant>& entrants, const std::vector<double>& us,
                const std::string& fallback) {
  const auto best = static_cast<std::size_t>(std::min_element(us.begin(), us.end()) - us.begin());
  for (std::size_t i = 0; i < entrants.size(); ++i) {
    if (entrants[i].name == fallback)
      std::printf("%s,\"%s\",%.3f,\"%s\",%.3f\n", key.c_str(), fallback.c_str(), us[i],
                  entrants[best].name.c_str(), us[best]);
  }
}

int choose(const NamedNode& node, Collective collective, std::uint32_t ranks, bool is_table) {
  auto topology = make_synthetic_topology(node.synthetic);
  const auto selector = Selector::make({});
  const MachineClass& machine = *find_machine_class(node.machine_class);
  const auto start = tool::starting_model(Environment(), "", false, Dtype::f32, machine);
  if (!topology || !selector || !start) return 1;
  WorldSettings settings;
  settings.topology = *std::move(topology);
  const WorldDomains domains = tool::assume_domains(settings, ranks, ranks, ranks);
  const std::vector<int> members = first_ranks(ranks);
  const Hierarchy hierarchy = domains.hierarchy_of(members);
  const Places places = domains.places_of(members);
  Question question;
  question.collective = collective;
  question.size = ranks;
  question.hierarchy = &hierarchy;
  question.spans_sockets = domains.spans_sockets(members);
  std::vector<Entrant> entrants;
  for (const AlgorithmRow& row : catalog()) {
    if (row.collective != collective || !may_run(row, ranks, true, false, true, &hierarchy)) continue;
    for (const AlgorithmParams& params : sample_params(row)) {
      const Claim claim = claim_of(row, ranks, params, &hierarchy);
      if (params.segments > 1 || claim.rounds * ranks * 3 > kMostSteps) continue;
      auto program = Program::make({&row, params, 0, &hierarchy, true}, places, false);
      if (program) entrants.push_back({to_text(row, params), *std::move(program)});
    }
  }
  for (const std::uint64_t bytes : kSizes) {
    question.bytes = bytes;
    const auto chosen = selector->choose(question);
    const std::string fallback = chosen ? to_text(*chosen->row, chosen->params) : "";
    std::vector<double> us;
    for (const Entrant& entrant : entrants) {
      const auto price = entrant.program.price(bytes, places, start->model);
      us.push_back(price ? static_cast<double>(price->total_ps) / 1e6 : 1e30);
    }
    if (us.empty()) return 1;
    (is_table ? print_best : print_all)(key_of(node, question), entrants, us, fallback);
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace tutti::bench

int main(int argc, char** argv) {
  const bool is_table = argc > 1 && std::string_view(argv[1]) == "--table";
  if (is_table) {
    --argc;
    ++argv;
  }
  const auto* const node = argc > 3 ? tutti::find_named_node(argv[1]) : nullptr;
  const auto collective = argc > 3 ? tutti::parse_collective(argv[2]) : std::nullopt;
  if (node == nullptr || !collective) {
    std::fprintf(
        stderr, "usage: lines_choose [--table] NODE COLLECTIVE RANKS... (NODE as in tutti explain --node)\n");
    return 2;
  }
  for (int i = 3; i < argc; ++i) {
    if (tutti::bench::choose(*node, *collective,
                             static_cast<std::uint32_t>(std::strtoul(argv[i], nullptr, 10)), is_table) != 0)
      return 1;
  }
  return 0;
}
