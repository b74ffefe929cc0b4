// Collecting every rank's paths at rank 0 and printing them. See peers_text.hpp.
#include "tools/cli/peers_text.hpp"

#include <fmt/format.h>

#include <map>
#include <string>
#include <vector>

#include "runtime/base/config.hpp"
#include "runtime/base/version.hpp"
#include "runtime/group/world.hpp"
#include "tools/cli/json.hpp"

namespace tutti::tool {
namespace {

Json paths_of(const WorldState& world) {
  Json paths = Json::array();
  for (const TransportPath& path : world.paths())
    paths.push_back({{"transport", path.transport}, {"reason", path.reason}});
  return {{"interface", world.info().interface},
          {"interface_reason", world.info().interface_reason},
          {"to", paths}};
}

// "0-3, 6"
std::string join_ranges(const std::vector<int>& ranks) {
  std::string text;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t end = i;
    while (end + 1 < ranks.size() && ranks[end + 1] == ranks[end] + 1) ++end;
    text += fmt::format("{}{}", text.empty() ? "" : ", ", ranks[i]);
    if (end > i) text += fmt::format("-{}", ranks[end]);
    i = end + 1;
  }
  return text;
}

void print_rank(const WorldInfo& info, int rank, const Json& own) {
  const auto at = static_cast<std::size_t>(rank);
  fmt::print("rank {} on {} (node {}){}\n", rank, info.host_of_rank[at], info.node_of_rank[at],
             own["interface"].text().empty()
                 ? ""
                 : fmt::format(", between nodes through {} ({})", own["interface"].text(),
                               own["interface_reason"].text()));
  std::map<std::pair<std::string, std::string>, std::vector<int>> ranks_by;
  int peer = 0;
  for (const Json& path : own["to"]) {
    if (peer != rank) ranks_by[{path["transport"].text(), path["reason"].text()}].push_back(peer);
    ++peer;
  }
  for (const auto& [path, ranks] : ranks_by) {
    fmt::print("  {} to {} {}{}\n", path.first, ranks.size() == 1 ? "rank" : "ranks", join_ranges(ranks),
               path.second.empty() ? "" : fmt::format(" ({})", path.second));
  }
}

}  // namespace

int print_peers(bool is_json) {
  const Environment environment = Environment::of_process();
  auto settings = read_settings(environment);
  if (!settings) {
    fmt::print(stderr, "tutti info: {}\n", settings.status().message());
    return 2;
  }
  BootstrapOptions options;
  options.environment = environment;
  options.build_id = build_id();
  options.timeout = settings->timeout;
  const auto timeout = settings->timeout;
  const auto world = WorldState::make(options, *std::move(settings));
  const auto all = world ? (*world)->control().allgather(paths_of(**world).dump(), Clock::now() + timeout)
                         : Result<std::vector<std::string>>(world.status());
  if (!all) {
    fmt::print(stderr, "tutti info: {}\n", all.status().message());
    return 1;
  }
  const WorldInfo& info = (*world)->info();
  if (info.rank == 0) {
    Json ranks = Json::array();
    for (const std::string& text : *all) ranks.push_back(json_of(text));
    for (int rank = 0; rank < info.size && !is_json; ++rank)
      print_rank(info, rank, ranks.at(static_cast<std::size_t>(rank)));
    if (is_json) {
      const Json result = {{"launcher", info.launcher},
                           {"hosts", info.host_of_rank},
                           {"nodes", info.node_of_rank},
                           {"ranks", ranks}};
      fmt::print("{}\n", result.dump(1));
    }
  }
  // Rank 0 must not be gone while others still read.
  static_cast<void>((*world)->control().barrier(Clock::now() + timeout));
  return 0;
}

}  // namespace tutti::tool
