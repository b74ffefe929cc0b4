// Leaving a CPU for another one.
#include "runtime/scheduler/cpu_choice.hpp"

namespace tutti {

std::optional<CpuChoice> CpuChoice::besides(std::uint32_t own, const cpu_set_t& taken) {
  CpuChoice choice;
  if (::sched_getaffinity(0, sizeof choice.allowed_, &choice.allowed_) != 0) return std::nullopt;
  choice.cpus_ = choice.allowed_;
  for (std::uint32_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (cpu == own || CPU_ISSET(cpu, &taken)) CPU_CLR(cpu, &choice.cpus_);
  }
  if (CPU_COUNT(&choice.cpus_) > 0) return choice;
  choice.cpus_ = choice.allowed_;
  if (own < CPU_SETSIZE) CPU_CLR(own, &choice.cpus_);
  if (CPU_COUNT(&choice.cpus_) == 0) return std::nullopt;
  return choice;
}

bool CpuChoice::move_there() const {
  if (::sched_setaffinity(0, sizeof cpus_, &cpus_) != 0) return false;
  return ::sched_setaffinity(0, sizeof allowed_, &allowed_) == 0;
}

}  // namespace tutti
