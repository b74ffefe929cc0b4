// Measurements as a tuning file: added to one of the same machine and job, or a new one. Knows no rank and no
// measurement.
#pragma once

#include <string>

#include "runtime/selection/tuning.hpp"
#include "tools/cli/tune/campaign.hpp"

namespace tutti::tool {

// The machine and the job of a campaign.
struct TunedJob {
  Fingerprint fingerprint;
  std::uint32_t rank_count = 0;
  Reach reach = Reach::node;
  std::string origin;  // for people
};

// Adds the rules to those of other numbers of ranks, collectives and reaches; those of the same are replaced.
// `file` is of the same fingerprint, or empty.
void add_rules(Tuning& file, const CampaignResult& result, const TunedJob& job);

}  // namespace tutti::tool
