// Reads settings.json. Knows its format (bench/peers/README.md) and nothing of what a setting means.
#include "tools/cli/bench/peer_settings.hpp"
#include "tools/cli/arguments.hpp"
#include "tools/cli/json.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <vector>

namespace tutti::tool {
namespace {

bool is_executable(const std::string& path) { return ::access(path.c_str(), X_OK) == 0; }

bool is_in_path(const std::string& program) {
  const char* variable = std::getenv("PATH");
  std::string_view rest = variable != nullptr ? variable : "/usr/bin:/bin";
  for (;;) {
    const std::size_t colon = rest.find(':');
    if (is_executable(fmt::format("{}/{}", rest.substr(0, colon), program))) return true;
    if (colon == std::string_view::npos) return false;
    rest.remove_prefix(colon + 1);
  }
}

bool names_collective(const Json& wanted, std::string_view collective) {
  if (wanted.is_text()) return wanted.text() == collective;
  for (const Json& name : wanted) {
    if (name.text() == collective) return true;
  }
  return false;
}

int number_or(const Json& entry, std::string_view key, int otherwise) {
  const Json* const found = entry.find(key);
  return found == nullptr ? otherwise : static_cast<int>(found->natural());
}

bool matches(const Json& entry, const bench::Shape& shape, bool in_place, bool fits, int ranks_per_node) {
  const std::uint64_t bytes = shape.bytes();
  const int p = shape.ranks;
  const std::string placement = fits ? "fits" : "oversubscribed";
  return (!entry.contains("collective") ||
          names_collective(entry["collective"], to_string(shape.collective))) &&
         (!entry.contains("in_place") || entry["in_place"].boolean() == in_place) &&
         (!entry.contains("placement") || entry["placement"].text() == placement) &&
         number_or(entry, "min_ranks", 1) <= p && p <= number_or(entry, "max_ranks", p) &&
         ranks_per_node <= number_or(entry, "max_ranks_per_node", ranks_per_node) &&
         (!entry["power_of_two"].boolean() || (p & (p - 1)) == 0) && entry["from"].natural() <= bytes &&
         (!entry.contains("to") || bytes <= entry["to"].natural());
}

std::string filled(std::string word, const std::vector<std::pair<std::string, std::string>>& values) {
  for (const auto& [name, value] : values) {
    const std::string key = "{" + name + "}";
    for (std::size_t at = 0; (at = word.find(key, at)) != std::string::npos; at += value.size())
      word.replace(at, key.size(), value);
  }
  return word;
}

}  // namespace

Result<PeerSettings> PeerSettings::load(const std::string& folder, bool across_nodes) {
  const std::string path = folder + "/settings.json";
  std::ifstream file(path);
  if (!file)
    return invalid_argument(
        fmt::format("{} is missing; --peers-dir names the folder of the peers' programs", path));
  PeerSettings settings;
  settings.folder_ = folder;
  settings.across_nodes_ = across_nodes;
  std::string text;
  std::getline(file, text, '\0');
  auto parsed = parse_json(text);
  if (!parsed) return parsed.status().with_context(path);
  settings.json_ = *std::move(parsed);
  if (!settings.json_.contains("libraries"))
    return invalid_argument(fmt::format("{}: there is no \"libraries\" in it", path));
  return settings;
}

const Json& PeerSettings::manner_of(const std::string& library) const {
  const Json& entry = json_["libraries"][library];
  return across_nodes_ ? entry["across_nodes"] : entry;
}

std::string PeerSettings::environment_of(const std::string& library) const { return folder_ + "/" + library; }

std::string PeerSettings::why_unavailable(const std::string& library) const {
  const Json& libraries = json_["libraries"];
  if (!libraries.contains(library)) return "settings.json does not know it";
  const Json& entry = libraries[library];
  const std::string program = folder_ + "/" + entry["program"].text();
  std::vector<std::string> packages;
  for (const Json& package : entry["packages"]) packages.push_back(package.text());
  const std::string install =
      entry.contains("pypi") ? "tools/dev/peers " + library : "install " + joined(packages, " ");
  if (!is_executable(program)) {
    return fmt::format("{} is not there; {}{}", program, install,
                       entry.contains("pypi") ? " makes it" : " and build again");
  }
  if (across_nodes_ && !entry.contains("across_nodes")) return "settings.json has it on one node only";
  const Json& command = manner_of(library)["launch"]["command"];
  if (command.empty()) return "";
  const std::string launcher = filled(command.at(0).text(), {{"environment", environment_of(library)}});
  if (launcher.find('/') == std::string::npos ? !is_in_path(launcher) : !is_executable(launcher))
    return fmt::format("{} is not there; {}", launcher, install);
  return "";
}

bool PeerSettings::is_floor(const std::string& library) const {
  return json_["libraries"][library]["is_floor"].boolean();
}

Result<PeerChoice> PeerSettings::choose(const std::string& library, const bench::Shape& shape, bool in_place,
                                        bool fits, int ranks_per_node) const {
  for (const Json& entry : manner_of(library)["choose"]) {
    if (matches(entry, shape, in_place, fits, ranks_per_node))
      return PeerChoice{entry["setting"].text(), entry["algorithm"].text()};
  }
  return invalid_argument(
      fmt::format("settings.json chooses nothing for {} of {}", to_string(shape.collective), library));
}

PeerProcess::Start PeerSettings::start_of(const std::string& library, const std::string& setting_name,
                                          bool fits, bool is_bound, Values values) const {
  const Json& launch = manner_of(library)["launch"];
  const Json& setting = manner_of(library)["settings"][setting_name];
  values.emplace_back("program", folder_ + "/" + json_["libraries"][library]["program"].text());
  values.emplace_back("environment", environment_of(library));
  values.emplace_back("setting", setting_name);
  values.emplace_back("transport", setting["transport"].text());
  PeerProcess::Start start;
  const auto append = [&](const Json& words) {
    for (const Json& word : words) start.command.push_back(filled(word.text(), values));
  };
  append(launch["command"]);
  append(launch[fits ? "fits" : "oversubscribed"]);
  append(launch[is_bound ? "bound" : "unbound"]);
  append(setting["launch_arguments"]);
  start.command.push_back(filled("{program}", values));
  append(launch["program_arguments"]);
  append(setting["program_arguments"]);
  const Json& environment = setting["environment"];
  for (std::size_t i = 0; i < environment.size(); ++i)
    start.environment.emplace_back(environment.key(i), environment.at(i).text());
  return start;
}

}  // namespace tutti::tool
