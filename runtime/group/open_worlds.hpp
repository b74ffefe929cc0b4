// The worlds that this process has open. exit() and a return from main leave them in an orderly way. Knows of
// a world only that it can be left.
#pragma once

#include <memory>
#include <vector>

namespace tutti {

class WorldState;

// Makes the end of the process leave the world, if it is still open then. Not in a child of fork(), whose
// parent has the world.
void leave_at_exit(const std::shared_ptr<WorldState>& world);

// The open worlds of this process, in the order in which they were made.
std::vector<std::shared_ptr<WorldState>> list_open_worlds();

}  // namespace tutti
