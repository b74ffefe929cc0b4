// Reads rank and size from environment variables of launchers, with errors that name the variable. Knows no
// launcher.
#pragma once

#include <string>
#include <string_view>

#include "runtime/base/config.hpp"
#include "runtime/base/status.hpp"
#include "runtime/job/launchers/launch.hpp"

namespace tutti::detail {

inline constexpr int kMaxSize = 1 << 20;

// The names of one launcher's variables. The local ones may be null.
struct RankVariables {
  const char* launcher;
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* local_size;
};

// `meaning` ends the sentence "expected ...".
Result<int> parse_int(std::string_view name, std::string_view text, int low, int high,
                      std::string_view meaning);
Result<std::string> require(const Environment& environment, const char* name, std::string_view launcher);
// Sets launcher, rank, size, local_rank and local_size. Rank and size are required; the local ones may be
// missing, as in variables set by hand.
Status read_rank(const Environment& environment, const RankVariables& names, LaunchInfo& info);
// invalid_argument if two launchers' ranks or sizes are set and differ; `first` is the launcher in use.
Status check_agreement(const Environment& environment, const RankVariables& first,
                       const RankVariables& second);
// The name of a job: hashed, because the text may be long and have odd characters.
std::string make_job(std::string_view kind, std::string_view text);

}  // namespace tutti::detail
