// Merging rules, reading and writing.
#include "tools/cli/tune/tune_file.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "runtime/selection/rules.hpp"

namespace tutti::tool {
namespace {

// Is the item for groups of that many ranks only?
bool is_for(Collective collective, const TuningItem& item, std::uint32_t rank_count) {
  const auto rules = parse_rules(collective, item.text);
  if (!rules || rules->empty() || rules->front().conditions.empty()) return false;
  const std::vector<RuleCondition>& conditions = rules->front().conditions;
  return std::all_of(conditions.begin(), conditions.end(), [&](const RuleCondition& c) {
    return c.min_size == rank_count && c.max_size == rank_count;
  });
}

// A few noisy points may fit best to a machine on which bytes cost nothing: no figures to hand on.
bool tells_bytes(const CostModel& model) {
  return std::any_of(model.links.begin(), model.links.end(),
                     [](const LinkCost& link) { return link.kib_ps > 0 || link.shared_kib_ps > 0; });
}

Status failed(const std::string& path, std::string_view what) {
  return invalid_argument(fmt::format("{}: {}: {}", path, what, std::strerror(errno)));
}

}  // namespace

void add_rules(Tuning& file, const CampaignResult& result, const TunedJob& job) {
  file.fingerprint = job.fingerprint;
  file.origin = job.origin;
  if (result.model && tells_bytes(*result.model)) {
    for (const auto& [name, value] : job.fingerprint) {
      // A job on one node knows the costs within a node better.
      if (name == "network" || (name == "node" && job.reach == Reach::node)) {
        file.costs[value] = *result.model;
      } else if (name == "node") {
        file.costs.emplace(value, *result.model);
      }
    }
  }
  for (const Outcome& outcome : result.outcomes) {
    std::vector<TuningItem>& items = file.rules_of(outcome.collective, job.reach).items;
    const auto is_old = [&](const TuningItem& item) {
      return is_for(outcome.collective, item, job.rank_count);
    };
    items.erase(std::remove_if(items.begin(), items.end(), is_old), items.end());
    // In front: an item for all numbers of ranks would hide them.
    std::vector<TuningItem> added;
    for (const std::string& rule : outcome.rules) added.push_back({rule, 0});
    items.insert(items.begin(), added.begin(), added.end());
  }
  const auto is_empty = [](const TuningRules& rules) { return rules.items.empty(); };
  file.rules.erase(std::remove_if(file.rules.begin(), file.rules.end(), is_empty), file.rules.end());
}

Result<Tuning> read_for_extension(const std::string& path, const Fingerprint& here, std::string* what) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return Tuning();
  std::ifstream file(path, std::ios::binary);
  if (!file) return failed(path, "cannot be read");
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  auto tuning = parse_tuning(text, path);
  if (!tuning) return tuning.status().with_context("not overwritten, since it is no tuning file");
  const std::string difference = describe_difference(tuning->fingerprint, here);
  if (difference.empty() && !tuning->fingerprint.empty()) return tuning;
  // Imported rules fit anywhere; measured ones do not, so the two cannot share a file.
  *what = difference.empty() ? "it holds no measured rules" : difference;
  return Tuning();
}

Status write_tuning(const std::string& path, const Tuning& tuning) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::error_code error;
  if (!folder.empty()) std::filesystem::create_directories(folder, error);
  if (error) return invalid_argument(fmt::format("{}: cannot be made: {}", folder.string(), error.message()));
  const std::string draft = fmt::format("{}.{}", path, ::getpid());
  {
    std::ofstream file(draft, std::ios::binary);
    file << to_text(tuning);
    file.flush();
    if (!file) return failed(draft, "cannot be written");
  }
  std::filesystem::rename(draft, path, error);
  if (error) return invalid_argument(fmt::format("{}: cannot be written: {}", path, error.message()));
  return {};
}

}  // namespace tutti::tool
