// Objects of which a process has one. Knows nothing of what they are.
#pragma once

#include <atomic>

#include "runtime/base/fork_guard.hpp"

namespace tutti {

// The T of this process, made when first asked for and never destroyed. A child of fork() gets its own, made
// of the parent's by inherit(parent), or T() where the parent has none: the parent's may name the parent, and
// another thread may have held its mutex during the fork. `Tag` tells objects of the same type apart. Any
// thread; the address is the same as long as the process does not fork.
template <class T, class Tag = T>
T& of_process() {
  struct Made {
    unsigned generation;
    T object;
  };
  static std::atomic<Made*> current{nullptr};
  const unsigned generation = fork_generation();
  Made* made = current.load(std::memory_order_acquire);
  while (made == nullptr || made->generation != generation) {
    Made* fresh = nullptr;
    if constexpr (requires(const T& parent) { T::inherit(parent); }) {
      fresh = made == nullptr ? new Made{generation, T()} : new Made{generation, T::inherit(made->object)};
    } else {
      fresh = new Made{generation, T()};
    }
    if (current.compare_exchange_strong(made, fresh, std::memory_order_acq_rel)) return fresh->object;
    delete fresh;  // another thread was first
  }
  return made->object;
}

}  // namespace tutti
