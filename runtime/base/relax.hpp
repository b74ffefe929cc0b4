// Cache lines, and instructions for lines that another core writes or reads: pause, prefetch, drain of
// stores. Knows nothing of longer waits.
#pragma once

#include <cstddef>

namespace tutti {

// The unit of transfer between cores.
inline constexpr std::size_t kLineBytes = 64;

// Tells the core that it spins: frees its pipeline for a sibling thread and saves power.
inline void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Prefetches the line for a store, which invalidates the copies of other cores.
inline void fetch_for_writing(const void* at) {
#if defined(__x86_64__)
  // The compiler's prefetch is one for reading, unless it builds for newer processors alone. Older processors
  // ignore this instruction.
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(at)));
#else
  __builtin_prefetch(at, 1);
#endif
}

// Returns when all stores of this thread have left the core's store buffers, to time them.
inline void drain_stores() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_mfence();
#elif defined(__aarch64__)
  asm volatile("dsb ish" : : : "memory");
#endif
}

}  // namespace tutti
