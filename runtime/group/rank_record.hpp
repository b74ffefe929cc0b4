// The first data of a rank that the others of its world get. Knows no transport and no group.
#pragma once

#include <sched.h>

#include <cstdint>
#include <string>
#include <tuple>

#include "runtime/group/domains.hpp"

namespace tutti {

// Exchanged by all ranks before anything else.
struct RankRecord {
  std::string process;   // equal for ranks that are threads of one process
  std::string identity;  // of rank 0: the identity of the world
  cpu_set_t cpus;
  bool is_bound = false;  // before init()
  RankDomains domains;
  std::string contract;      // encode_contract(); of no use once it is compared
  std::uint32_t tuning = 0;  // hash of the tuning file's rules; 0: none is used
  std::string problem;       // the reason why it could not be bound
  std::string transports;    // names of those that it keeps from an earlier world, "shm,tcp"; empty: none
  std::int32_t most_ranks_here = 0;  // its kept engine waits as suits so many ranks on its machine
  static auto fields(auto& self) {
    return std::tie(self.process, self.identity, self.cpus, self.is_bound, self.domains, self.contract,
                    self.tuning, self.problem, self.transports, self.most_ranks_here);
  }
};

}  // namespace tutti
