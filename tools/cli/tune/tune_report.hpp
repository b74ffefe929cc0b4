// The final report of `tutti tune`: a line for each collective and size, and the sums. Knows no measurement.
#pragma once

#include <string>
#include <vector>

#include "tools/cli/json.hpp"
#include "tools/cli/tune/campaign.hpp"

namespace tutti::tool {

// How good the default choices are where they were measured.
struct DefaultSummary {
  std::size_t point_count = 0, good_count = 0;  // good: within 10 % of the best, noise included
  double worst = 1;                             // the largest ratio of default choice to best
  std::string worst_point;
};
DefaultSummary summarise(const CampaignResult& result);

void print_result(const CampaignResult& result);
void print_verified(const std::vector<Verified>& verified);
Json to_json(const CampaignResult& result);
Json to_json(const std::vector<Verified>& verified);

}  // namespace tutti::tool
