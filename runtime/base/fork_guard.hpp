// What must not survive fork(): descriptors of control connections, and the use of the library itself.
// Knows no group.
#pragma once

#include <atomic>

namespace tutti {

// A child of fork() closes this descriptor at once; otherwise the connection of a dead rank would stay open
// as long as any child of it lives, and nobody would notice the death. Undone by forget_on_fork before
// closing it oneself.
void close_on_fork(int fd);
void forget_on_fork(int fd);

// Increases by one in a child of fork(), never otherwise: what was made under another number belongs to the
// parent. One relaxed load. (vfork and clone without fork handlers are not seen; they must exec.)
inline std::atomic<unsigned> fork_count{0};
inline unsigned fork_generation() { return fork_count.load(std::memory_order_relaxed); }

}  // namespace tutti
