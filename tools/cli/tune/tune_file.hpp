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

// The file that rules will be added to. An empty one where there is none yet, or only one of another machine
// or job (`*what` then says so). Errors: invalid_argument for another kind of file.
Result<Tuning> read_for_extension(const std::string& path, const Fingerprint& here, std::string* what);
// Makes the folder, and never leaves half a file. Errors: invalid_argument.
Status write_tuning(const std::string& path, const Tuning& tuning);

}  // namespace tutti::tool
