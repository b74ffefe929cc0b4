// Waiting ranks that share a CPU: noticing it, and leaving it.
#include <chrono>
#include <optional>

#include <sched.h>

#include "runtime/scheduler/engine.hpp"

namespace tutti {
namespace {

// Least time between two moves of a thread: bounds the cost of moving. Shorter than a scheduler tick (4 ms), so
// that a pair which the scheduler puts on one CPU again parts within that tick.
constexpr std::chrono::milliseconds kBetweenMoves{1};

}  // namespace

void Engine::note_blocked(ControlBlocks& control_blocks, std::uint32_t peer) {
  if (!options_.waiting.watches_cpus || peer >= control_blocks.size()) return;
  const std::uint32_t cpu = control_blocks.tell_cpu();
  const bool is_beside_peer = peer != control_blocks.rank() && control_blocks.told_cpu(peer) == cpu;
  is_beside_peer_.store(is_beside_peer, std::memory_order_relaxed);
  if (!is_beside_peer || must_leave_cpu_.load(std::memory_order_relaxed)) return;
  const Clock::time_point now = Clock::now();
  if (now < may_leave_at_) return;
  may_leave_at_ = now + kBetweenMoves;
  cpu_set_t taken;
  CPU_ZERO(&taken);
  for (std::uint32_t r = 0; r < control_blocks.size(); ++r) {
    const std::uint32_t told = control_blocks.told_cpu(r);
    if (r != control_blocks.rank() && told != 0 && told <= CPU_SETSIZE) CPU_SET(told - 1, &taken);
  }
  const std::optional<CpuChoice> choice = CpuChoice::besides(cpu - 1, taken);
  if (!choice) return;
  other_cpus_ = *choice;
  // The peer gets this CPU now, and must not leave it, too.
  control_blocks.tell_no_cpu();
  must_leave_cpu_.store(true, std::memory_order_relaxed);
}

void Engine::leave_shared_cpu() {
  if (!lock_.try_acquire()) return;
  const CpuChoice choice = other_cpus_;
  const bool is_mine = must_leave_cpu_.exchange(false, std::memory_order_relaxed);
  is_beside_peer_.store(false, std::memory_order_relaxed);
  lock_.release();
  if (is_mine && !choice.move_there()) ::sched_yield();
}

}  // namespace tutti
