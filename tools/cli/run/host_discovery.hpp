// Runs the user's script that lists the hosts of an elastic job. Knows nothing of ranks.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/owned_fd.hpp"
#include "runtime/base/status.hpp"
#include "tools/cli/run/hosts.hpp"

namespace tutti {

class HostDiscovery {
 public:
  HostDiscovery() = default;
  // A shell command. Hosts that it lists without a number have `default_slots`.
  HostDiscovery(std::string script, int default_slots)
      : script_(std::move(script)), default_slots_(default_slots) {}

  // Starts the script, unless it still runs. The caller reaps it. Errors: resource_exhausted.
  Status start();
  // For poll(2): readable while the script runs; -1: it does not.
  int fd() const { return output_.get(); }
  // Reads what there is. At the end of the output: the hosts, or invalid_argument where there are none.
  std::optional<Result<std::vector<HostSlots>>> read();
  // Runs it once and waits for it.
  Result<std::vector<HostSlots>> run();

 private:
  std::string script_;
  int default_slots_ = 1;
  pid_t pid_ = -1;
  OwnedFd output_;
  std::string text_;
};

}  // namespace tutti
