// The list of open worlds and the exit handler; see open_worlds.hpp.
#include "runtime/group/open_worlds.hpp"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <utility>
#include <vector>

#include "runtime/base/fork_guard.hpp"
#include "runtime/group/world.hpp"

namespace tutti {
namespace {

struct OpenWorlds {
  explicit OpenWorlds(unsigned made_in) : generation(made_in) {}
  const unsigned generation;  // of the process that opened them
  std::mutex mutex;
  std::vector<std::weak_ptr<WorldState>> worlds;
};

// Never freed: a child of fork() cannot lock the mutex of its parent's list, and makes a list of its own.
std::atomic<OpenWorlds*> open_worlds{nullptr};

// Destroys no world: static objects of the program may hold groups, and their threads may use them.
void leave_all() {
  OpenWorlds* const open = open_worlds.load(std::memory_order_acquire);
  if (open == nullptr || open->generation != fork_generation()) return;
  std::vector<std::weak_ptr<WorldState>> worlds;
  {
    const std::lock_guard lock(open->mutex);
    worlds.swap(open->worlds);
  }
  for (const std::weak_ptr<WorldState>& open_world : worlds) {
    if (const std::shared_ptr<WorldState> world = open_world.lock()) world->leave();
  }
}

OpenWorlds& list_of_this_process() {
  OpenWorlds* open = open_worlds.load(std::memory_order_acquire);
  while (open == nullptr || open->generation != fork_generation()) {
    auto made = std::make_unique<OpenWorlds>(fork_generation());
    if (!open_worlds.compare_exchange_strong(open, made.get(), std::memory_order_acq_rel)) continue;
    // Children of fork() have the handler already.
    if (open == nullptr) std::atexit(&leave_all);
    open = made.release();
  }
  return *open;
}

}  // namespace

void leave_at_exit(const std::shared_ptr<WorldState>& world) {
  OpenWorlds& open = list_of_this_process();
  const std::lock_guard lock(open.mutex);
  std::erase_if(open.worlds, [](const std::weak_ptr<WorldState>& other) { return other.expired(); });
  open.worlds.push_back(world);
}

std::vector<std::shared_ptr<WorldState>> list_open_worlds() {
  OpenWorlds& open = list_of_this_process();
  std::vector<std::shared_ptr<WorldState>> worlds;
  const std::lock_guard lock(open.mutex);
  for (const std::weak_ptr<WorldState>& one : open.worlds) {
    if (std::shared_ptr<WorldState> world = one.lock()) worlds.push_back(std::move(world));
  }
  return worlds;
}

}  // namespace tutti
