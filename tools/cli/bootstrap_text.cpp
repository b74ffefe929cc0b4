// Words for launchers and places. Knows no launcher by name.
#include "tools/cli/bootstrap_text.hpp"

#include <fmt/format.h>

#include "runtime/job/bootstrap.hpp"
#include "runtime/job/launchers/launch.hpp"
#include "tools/cli/json.hpp"

namespace tutti::tool {
namespace {

std::string shown_value(const Environment& environment, std::string_view name) {
  const Variable* variable = find_variable(name);
  if (variable != nullptr && variable->is_secret) return "(set)";
  return std::string(environment.find(name).value_or(""));
}

// Where the secret by which ranks prove that they belong to the job comes from.
std::string_view secret_source(const LaunchInfo& info) {
  if (!info.secret.empty()) return "told";
  if (info.store != nullptr) return "rank 0 makes one and puts it in the store";
  return "none: only processes of this user on this node can join";
}

std::string place_text(const LaunchInfo& info) {
  const std::string local = info.local_size > 0
                                ? fmt::format("local rank {} of {}", info.local_rank, info.local_size)
                                : "local rank not told";
  const std::string node = info.node >= 0 ? fmt::format("node {}", info.node) : "node not told";
  return fmt::format("rank {} of {}, {}, {}", info.rank, info.size, local, node);
}

Json place_json(const LaunchInfo& info) {
  return {{"launcher", info.launcher},
          {"rank", info.rank},
          {"size", info.size},
          {"local_rank", info.local_size > 0 ? Json(info.local_rank) : Json(nullptr)},
          {"local_size", info.local_size > 0 ? Json(info.local_size) : Json(nullptr)},
          {"node", info.node >= 0 ? Json(info.node) : Json(nullptr)},
          {"job", info.job},
          {"host", info.host},
          {"store", info.store != nullptr ? Json(info.store->describe()) : Json(nullptr)},
          {"has_secret", !info.secret.empty()}};
}

}  // namespace

int print_bootstrap(bool is_json) {
  const Environment environment = Environment::of_process();
  Json seen = Json::array();
  std::string text = "launchers seen, the first one counts unless TUTTI_LAUNCHER names one:\n";
  for (const LauncherSight& sight : list_launchers(environment)) {
    if (!sight.is_seen) continue;
    std::string variables;
    Json values = Json::object();
    for (const std::string_view name : sight.variables) {
      const std::string value = shown_value(environment, name);
      variables += fmt::format("{}{}={}", variables.empty() ? "" : ", ", name, value);
      values[std::string(name)] = value;
    }
    text += fmt::format("  {}: {}\n", sight.name, variables);
    seen.push_back({{"launcher", sight.name}, {"variables", values}});
  }
  if (seen.empty()) text += "  none\n";
  text += fmt::format("followed: {}{}\n", find_launcher(environment),
                      environment.find("TUTTI_LAUNCHER") ? " (TUTTI_LAUNCHER)" : "");
  Json all = {{"seen", seen},
              {"followed", find_launcher(environment)},
              {"node_identity", node_identity(environment)},
              {"place", nullptr},
              {"error", nullptr}};
  const Result<LaunchInfo> info = detect_launch(environment);
  if (!info) {
    text += fmt::format("error: {}\n", info.status().to_string());
    all["error"] = info.status().to_string();
  } else {
    text += fmt::format("place: {}\nnode identity: {}\n", place_text(*info), node_identity(environment));
    all["place"] = place_json(*info);
    if (info->size > 1) {
      text += fmt::format("job: {}\nhost of rank 0: {}\nstore: {}\nsecret: {}\n", info->job,
                          info->host.empty() ? "not told" : info->host,
                          info->store != nullptr ? info->store->describe() : "none", secret_source(*info));
    }
  }
  fmt::print("{}", is_json ? all.dump(1) + "\n" : text);
  return info ? 0 : 1;
}

}  // namespace tutti::tool
