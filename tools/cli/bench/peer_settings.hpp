// How each peer's program is started, and with which settings for a request: bench/peers/settings.json as
// values. Knows no process.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/harness/harness.hpp"
#include "runtime/base/status.hpp"
#include "tools/cli/bench/peer_process.hpp"
#include "tools/cli/json.hpp"

namespace tutti::tool {

struct PeerChoice {
  std::string setting;
  std::string algorithm;  // to pass in the request; may be empty
};

class PeerSettings {
 public:
  // Values for the words in braces of a command: {program}, {environment} and {setting} are filled in here.
  using Values = std::vector<std::pair<std::string, std::string>>;

  // `across_nodes`: with what the file says for ranks on several nodes. Errors: invalid_argument, naming the
  // file.
  static Result<PeerSettings> load(const std::string& folder, bool across_nodes);

  // Why the library cannot be measured here (its program or launcher is missing, with the packages to
  // install); empty if it can.
  std::string why_unavailable(const std::string& library) const;
  // A bound of what is possible, and no peer to win against.
  bool is_floor(const std::string& library) const;
  // The first entry of "choose" that matches.
  Result<PeerChoice> choose(const std::string& library, const bench::Shape& shape, bool in_place, bool fits,
                            int ranks_per_node) const;
  // `is_bound`: each rank is bound to a CPU; if they outnumber the CPUs, evenly.
  PeerProcess::Start start_of(const std::string& library, const std::string& setting, bool fits,
                              bool is_bound, Values values) const;

 private:
  // How the library is started and set: launch, settings, choose.
  const Json& manner_of(const std::string& library) const;
  // Where tools/dev/peers puts the library's virtual environment.
  std::string environment_of(const std::string& library) const;

  std::string folder_;
  bool across_nodes_ = false;
  Json json_;
};

}  // namespace tutti::tool
