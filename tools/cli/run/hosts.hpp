// Hosts and their slots as people write them for other launchers, and which ranks go where.
// Knows no process and no network.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.hpp"

namespace tutti {

struct HostSlots {
  std::string host;
  int slots = 1;
  bool operator==(const HostSlots&) const = default;
};

// "a:2,b" as of -H: a host without a number has one slot; a host named again gets more. IPv6 addresses in
// brackets. Errors: invalid_argument.
Result<std::vector<HostSlots>> parse_hosts(std::string_view text);
// One host per line, "a slots=2", "a:2" or "a 2"; # begins a comment. A host without a number has `default_slots`.
// Errors: invalid_argument with the line's number.
Result<std::vector<HostSlots>> parse_hostfile(std::string_view text, int default_slots = 1);

// Neighbouring ranks on each host, slots filled in order; hosts that get none are left out. 0 ranks: all
// slots. Errors: invalid_argument if there are fewer slots.
Result<std::vector<HostSlots>> place_ranks(const std::vector<HostSlots>& hosts, int rank_count);

// Where a rank stands among those of equal local rank on all hosts, one on each that has so many.
struct CrossPlace {
  int rank = 0;
  int size = 1;
  std::string host;  // of the rank
};
// `placed`: all hosts with their ranks; `first_rank`: the first one of the rank's host.
CrossPlace find_cross_place(const std::vector<HostSlots>& placed, int first_rank, int local_rank);

// "a:2,b:1"
std::string to_text(const std::vector<HostSlots>& hosts);

}  // namespace tutti
