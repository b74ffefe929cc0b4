// The measurements of `tutti tune`, and their order: races between the legal algorithms at each size, as long
// as the budget lasts, steered by a model that is fitted on the way. Knows no group, no clock and no output:
// times and seconds come through `Course`, so that tests can invent a machine.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "runtime/selection/explain.hpp"
#include "tools/cli/tune/fit.hpp"
#include "tools/cli/tune/ranges.hpp"

namespace tutti::tool {

// Where races are run.
class Course {
 public:
  virtual ~Course() = default;
  // The time of one call by these rules (empty: the default ones), in microseconds, from a measurement of
  // about so many seconds. nullopt: it cannot run here.
  virtual std::optional<double> time(Collective collective, std::uint64_t bytes, const std::string& rules,
                                     double seconds) = 0;
  virtual double now() = 0;  // in seconds, from anywhere
};

struct CampaignPlan {
  // Each with its sizes, in ascending order, as bytes of the full vector.
  std::vector<std::pair<Collective, std::vector<std::uint64_t>>> sizes;
  double budget_seconds = 180;
  double shortest_turn = 0.002, longest_turn = 0.008;  // seconds of one contender in one round
  // The group: its size, hierarchy and reach (collective and bytes are the campaign's).
  Question group;
  Setting setting;
};

// The results for one collective.
struct Outcome {
  Collective collective = Collective::allreduce;
  std::vector<Point> points;        // in order of size
  std::vector<std::string> chosen;  // for each point; empty: the default choice
  std::vector<std::string> rules;   // items for the tuning file
};

struct CampaignResult {
  std::vector<Outcome> outcomes;
  std::optional<CostModel> model;  // fitted to everything that was measured
};

// `show` hears what goes on: a part of the whole from 0 to 1, and words.
CampaignResult run_campaign(const CampaignPlan& plan, Course& course,
                            const std::function<void(double, const std::string&)>& show);

// Tuned rules against none, in turns: the standing of the tuned ones at each point where a rule was chosen.
struct Verified {
  Collective collective = Collective::allreduce;
  std::uint64_t bytes = 0;
  std::string algorithm;
  Standing tuned;
  bool is_slower() const { return tuned.ratio * (1 - tuned.noise) > 1; }
};
std::vector<Verified> verify_rules(const CampaignPlan& plan, const CampaignResult& result, Course& course,
                                   double budget_seconds);

}  // namespace tutti::tool
