// Reads Slurm's variables. Knows no socket.
#include "runtime/job/launchers/slurm.hpp"

#include <fmt/format.h>

namespace tutti::detail {

bool is_slurm_step(const Environment& environment) {
  for (const char* name : {kSlurm.rank, kSlurm.size, "SLURM_STEP_ID"}) {
    if (!environment.find(name)) return false;
  }
  return true;
}

Result<std::string> first_host(std::string_view list) {
  const auto malformed = [&] {
    return invalid_argument(fmt::format("'{}' is not a list of hosts such as n[01-03,7],login1", list));
  };
  std::string host;
  std::string_view rest = list;
  while (!rest.empty() && rest.front() != ',') {
    const std::size_t plain = rest.find_first_of("[,]");
    host += rest.substr(0, plain);
    if (plain == std::string_view::npos) break;
    rest = rest.substr(plain);
    if (rest.front() == ',') break;
    const std::size_t close = rest.find(']');
    if (rest.front() != '[' || close == std::string_view::npos) return malformed();
    // Of the numbers in brackets the first one, up to the end of its range or itself.
    const std::string_view number = rest.substr(1, rest.find_first_of("-,]") - 1);
    if (number.empty() || number.find_first_not_of("0123456789") != std::string_view::npos)
      return malformed();
    host += number;
    rest = rest.substr(close + 1);
  }
  if (host.empty()) return malformed();
  return host;
}

Result<int> tasks_of_node(std::string_view list, int node) {
  const auto malformed = [&] {
    return invalid_argument(fmt::format("'{}' is not a list of tasks per node such as 2(x3),1", list));
  };
  std::string_view rest = list;
  for (int first = 0; !rest.empty();) {
    const std::size_t comma = rest.find(',');
    std::string_view item = rest.substr(0, comma);
    rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
    int times = 1;
    if (const std::size_t open = item.find("(x"); open != std::string_view::npos) {
      if (!item.ends_with(')')) return malformed();
      const Result<int> parsed =
          parse_int("", item.substr(open + 2, item.size() - open - 3), 1, kMaxSize, "a number of nodes");
      if (!parsed) return malformed();
      times = *parsed;
      item = item.substr(0, open);
    }
    const Result<int> tasks = parse_int("", item, 0, kMaxSize, "a number of tasks");
    if (!tasks) return malformed();
    if (node - first < times) return *tasks;
    first += times;
  }
  return malformed();
}

Result<LaunchInfo> launch_from_slurm(const Environment& environment) {
  LaunchInfo info;
  TUTTI_RETURN_IF_ERROR(read_rank(environment, kSlurm, info));
  const auto text_of = [&](const char* name) { return std::string(environment.find(name).value_or("")); };
  for (const char* name : {"SLURM_JOB_ID", "SLURM_STEP_ID"}) {
    if (const auto text = require(environment, name, info.launcher); !text) return text.status();
  }
  if (info.size == 1) return info;
  if (const auto text = environment.find("SLURM_NODEID")) {
    const Result<int> node = parse_int("SLURM_NODEID", *text, 0, kMaxSize, "the number of this node");
    if (!node) return node.status();
    info.node = *node;
  }
  const auto tasks = environment.find("SLURM_STEP_TASKS_PER_NODE");
  const auto local_rank = environment.find("SLURM_LOCALID");
  if (tasks && local_rank && info.node >= 0) {
    const Result<int> count = tasks_of_node(*tasks, info.node);
    if (!count) return count.status().with_context("SLURM_STEP_TASKS_PER_NODE");
    const Result<int> place =
        parse_int("SLURM_LOCALID", *local_rank, 0, *count - 1, "a rank below the tasks of this node");
    if (!place) return place.status();
    info.local_size = *count;
    info.local_rank = *place;
  }
  if (const auto hosts = environment.find("SLURM_STEP_NODELIST")) {
    Result<std::string> first = first_host(*hosts);
    if (!first) return first.status().with_context("SLURM_STEP_NODELIST");
    info.host = *std::move(first);
  }
  info.secret = text_of("TUTTI_SECRET");
  // The restart count tells a requeued job from processes of its earlier run.
  info.job =
      make_job("slurm", fmt::format("{}|{}|{}|{}", text_of("SLURM_CLUSTER_NAME"), text_of("SLURM_JOB_ID"),
                                    text_of("SLURM_STEP_ID"), text_of("SLURM_RESTART_COUNT")));
  return info;
}

}  // namespace tutti::detail
