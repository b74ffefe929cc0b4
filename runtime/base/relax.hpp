// Lines of memory, and what a thread does about those that another core writes or reads, beyond loads and
// stores. Knows nothing of waiting longer.
#pragma once

#include <cstddef>

namespace tutti {

// What cores take from each other at once.
inline constexpr std::size_t kLineBytes = 64;

// Tells the core that it spins: frees its pipeline for a sibling thread and saves power.
inline void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Begins to fetch the line there for a store, which takes it away from the cores that have it.
inline void fetch_for_writing(const void* at) {
#if defined(__x86_64__)
  // What the compiler has is a fetch for reading, unless it builds for newer processors alone. Older ones do
  // nothing here.
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(at)));
#else
  __builtin_prefetch(at, 1);
#endif
}

// Returns when all that this thread has stored has left the core's store buffers: for who times stores.
inline void drain_stores() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_mfence();
#elif defined(__aarch64__)
  asm volatile("dsb ish" : : : "memory");
#endif
}

}  // namespace tutti
