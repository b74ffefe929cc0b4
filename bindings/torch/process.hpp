// Objects of which a process has one. Knows no group and no tensor.
#pragma once

#include <pthread.h>

#include <atomic>

namespace tutti::torch_binding {

// Increases by one in a child of fork(), never otherwise.
inline std::atomic<unsigned> process_fork_count{0};
inline unsigned process_generation() {
  static const bool kIsWatching = [] {
    pthread_atfork(nullptr, nullptr, [] { process_fork_count.fetch_add(1, std::memory_order_relaxed); });
    return true;
  }();
  static_cast<void>(kIsWatching);
  return process_fork_count.load(std::memory_order_relaxed);
}

// The T of this process, made when first asked for and never destroyed: Python objects may die after static
// destructors. A child of fork() gets its own: the parent's names threads that the child does not have, and
// another thread may have held its mutex during the fork.
template <class T>
T& of_process() {
  struct Made {
    unsigned generation;
    T object;
  };
  static std::atomic<Made*> current{nullptr};
  const unsigned generation = process_generation();
  Made* made = current.load(std::memory_order_acquire);
  while (made == nullptr || made->generation != generation) {
    auto* fresh = new Made{generation, {}};
    if (current.compare_exchange_strong(made, fresh, std::memory_order_acq_rel)) return fresh->object;
    delete fresh;  // another thread was first
  }
  return made->object;
}

}  // namespace tutti::torch_binding
