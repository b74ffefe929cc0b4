// Where a thread may run beside the CPU that it shares with a rank it waits for. Knows no control block and no
// operation.
//
// Ranks that are not bound can end up on one CPU, and stay there beside other busy processes. Each of them sleeps
// or yields too often to count as load, so the system's scheduler sees nothing to balance. Every call then takes
// as long as the neighbours' time slices.
#pragma once

#include <sched.h>

#include <cstdint>
#include <optional>

namespace tutti {

class CpuChoice {
 public:
  // The CPUs that the calling thread may use, without `own` and `taken`, or without `own` alone if that leaves
  // none. nullopt: there is no other CPU, or the system does not say.
  static std::optional<CpuChoice> besides(std::uint32_t own, const cpu_set_t& taken);

  // Moves the calling thread to one of them. It may use the same CPUs as before afterwards. False if the
  // system refuses. Costs two system calls, and waiting for a turn on the new CPU.
  bool move_there() const;
  const cpu_set_t& cpus() const { return cpus_; }

 private:
  cpu_set_t cpus_{}, allowed_{};
};

}  // namespace tutti
