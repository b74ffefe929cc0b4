// Busy processes beside a benchmark, as other programs on a shared machine would be. Knows no measurement.
#pragma once

#include <sys/types.h>

#include <vector>

#include "runtime/base/status.hpp"

namespace tutti::tool {

// Computes on all CPUs that this process may use until its end, without system calls and without memory.
class BusyNeighbours {
 public:
  BusyNeighbours() = default;
  BusyNeighbours(BusyNeighbours&& other) noexcept { processes_.swap(other.processes_); }
  BusyNeighbours& operator=(BusyNeighbours&&) = delete;
  ~BusyNeighbours();

  // Starts `count` processes, each in a session of its own: Linux shares CPUs out by sessions first. They end
  // with this object, and with the calling thread at the latest. Not while other threads run.
  // Errors: resource_exhausted if a process cannot be started.
  static Result<BusyNeighbours> start(int count);

 private:
  std::vector<pid_t> processes_;
};

}  // namespace tutti::tool
