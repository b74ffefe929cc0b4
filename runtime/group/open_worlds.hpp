// Worlds that are open when the process ends: exit() and a return from main leave them, as their destructors
// would. Knows of a world only that it can be left.
#pragma once

#include <memory>

namespace tutti {

class WorldState;

// Has the world left when the process ends, if it is still open then. Not in a child of fork(), whose parent
// has the world.
void leave_at_exit(const std::shared_ptr<WorldState>& world);

}  // namespace tutti
