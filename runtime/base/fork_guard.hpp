// Guards against fork(): closes descriptors of control connections in a child, and detects use of the library
// there. Knows no group.
#pragma once

#include "tutti/detail/process.hpp"

namespace tutti {

// A child of fork() closes this descriptor at once. Otherwise it would keep the connection of a dead rank
// open, and no peer would notice the death. Call forget_on_fork before closing it.
void close_on_fork(int fd);
void forget_on_fork(int fd);

using detail::fork_generation;

}  // namespace tutti
