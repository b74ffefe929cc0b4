// Merging rules.
#include "tools/cli/tune/tune_file.hpp"

#include <algorithm>

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

}  // namespace tutti::tool
