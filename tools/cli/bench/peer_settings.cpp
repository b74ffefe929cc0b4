// Reads settings.json. Knows its format (bench/peers/README.md) and nothing of what a setting means.
#include "tools/cli/bench/peer_settings.hpp"
#include "tools/cli/arguments.hpp"
#include "tools/cli/json_text.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

namespace tutti::tool {
namespace {

using nlohmann::json;

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

bool names_collective(const json& wanted, std::string_view collective) {
  if (wanted.is_string()) return wanted.get<std::string>() == collective;
  for (const json& name : wanted) {
    if (name.get<std::string>() == collective) return true;
  }
  return false;
}

bool matches(const json& entry, const bench::Shape& shape, bool in_place, bool fits, int ranks_per_node) {
  const std::uint64_t bytes = shape.bytes();
  const int p = shape.ranks;
  const std::string placement = fits ? "fits" : "oversubscribed";
  return (!entry.contains("collective") ||
          names_collective(entry["collective"], to_string(shape.collective))) &&
         entry.value("in_place", in_place) == in_place && entry.value("placement", placement) == placement &&
         entry.value("min_ranks", 1) <= p && p <= entry.value("max_ranks", p) &&
         ranks_per_node <= entry.value("max_ranks_per_node", ranks_per_node) &&
         (!entry.value("power_of_two", false) || (p & (p - 1)) == 0) &&
         entry.value("from", std::uint64_t{0}) <= bytes && bytes <= entry.value("to", bytes);
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

PeerSettings::PeerSettings() : json_(std::make_unique<json>()) {}
PeerSettings::~PeerSettings() = default;
PeerSettings::PeerSettings(PeerSettings&&) noexcept = default;

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
  *settings.json_ = *std::move(parsed);
  if (!settings.json_->contains("libraries"))
    return invalid_argument(fmt::format("{}: there is no \"libraries\" in it", path));
  return settings;
}

const json& PeerSettings::manner_of(const std::string& library) const {
  const json& entry = (*json_)["libraries"][library];
  return across_nodes_ ? entry["across_nodes"] : entry;
}

std::string PeerSettings::why_unavailable(const std::string& library) const {
  const json& libraries = (*json_)["libraries"];
  if (!libraries.contains(library)) return "settings.json does not know it";
  const json& entry = libraries[library];
  const std::string program = folder_ + "/" + entry["program"].get<std::string>();
  std::vector<std::string> packages = entry["packages"];
  if (!is_executable(program)) {
    return fmt::format("{} is not there; install {} and build again", program, joined(packages, " "));
  }
  if (across_nodes_ && !entry.contains("across_nodes")) return "settings.json has it on one node only";
  const json& command = manner_of(library)["launch"]["command"];
  if (!command.empty() && !is_in_path(command[0].get<std::string>()))
    return fmt::format("{} is not there; install {}", command[0].get<std::string>(), joined(packages, " "));
  return "";
}

bool PeerSettings::is_floor(const std::string& library) const {
  return (*json_)["libraries"][library].value("is_floor", false);
}

Result<PeerChoice> PeerSettings::choose(const std::string& library, const bench::Shape& shape, bool in_place,
                                        bool fits, int ranks_per_node) const {
  for (const json& entry : manner_of(library)["choose"]) {
    if (matches(entry, shape, in_place, fits, ranks_per_node))
      return PeerChoice{entry["setting"].get<std::string>(), entry.value("algorithm", std::string())};
  }
  return invalid_argument(
      fmt::format("settings.json chooses nothing for {} of {}", to_string(shape.collective), library));
}

PeerProcess::Start PeerSettings::start_of(const std::string& library, const std::string& setting_name,
                                          bool fits, bool is_bound, Values values) const {
  const json& launch = manner_of(library)["launch"];
  const json& setting = manner_of(library)["settings"][setting_name];
  values.emplace_back("program",
                      folder_ + "/" + (*json_)["libraries"][library]["program"].get<std::string>());
  values.emplace_back("setting", setting_name);
  values.emplace_back("transport", setting["transport"].get<std::string>());
  PeerProcess::Start start;
  const auto append = [&](const json& words) {
    for (const json& word : words) start.command.push_back(filled(word.get<std::string>(), values));
  };
  append(launch["command"]);
  append(launch[fits ? "fits" : "oversubscribed"]);
  append(launch.value(is_bound ? "bound" : "unbound", json::array()));
  append(setting["launch_arguments"]);
  start.command.push_back(filled("{program}", values));
  append(launch["program_arguments"]);
  append(setting["program_arguments"]);
  for (const auto& [name, value] : setting["environment"].items())
    start.environment.emplace_back(name, value.get<std::string>());
  return start;
}

}  // namespace tutti::tool
