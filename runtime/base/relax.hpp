// What a thread does between two looks at a line that another core will write. Knows nothing of waiting
// longer.
#pragma once

namespace tutti {

// Tells the core that it spins: frees its pipeline for a sibling thread and saves power.
inline void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace tutti
