// What must not survive fork(): descriptors of control connections, and the use of the library itself.
// Knows no group.
#pragma once

#include "tutti/detail/process.hpp"

namespace tutti {

// A child of fork() closes this descriptor at once; otherwise the connection of a dead rank would stay open
// as long as any child of it lives, and nobody would notice the death. Undone by forget_on_fork before
// closing it oneself.
void close_on_fork(int fd);
void forget_on_fork(int fd);

using detail::fork_generation;

}  // namespace tutti
