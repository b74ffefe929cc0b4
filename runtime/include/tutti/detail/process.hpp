// Per-process objects and threads of the library, for the library and its bindings. Not part of the
// interface.
#pragma once

#include <pthread.h>
#include <sys/resource.h>

#include <atomic>
#include <csignal>
#include <functional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

namespace tutti::detail {

// Increases by one in a child of fork(), never otherwise. An object made under another number belongs to the
// parent. One relaxed load. (vfork and clone without fork handlers are not seen; they must exec.)
inline std::atomic<unsigned> fork_count{0};
inline unsigned fork_generation() { return fork_count.load(std::memory_order_relaxed); }
// Registered when the library is loaded, so that no fork is missed.
[[maybe_unused]] inline const bool kCountsForks =
    pthread_atfork(nullptr, nullptr, [] { fork_count.fetch_add(1, std::memory_order_relaxed); }) == 0;

// The T of this process, made at the first call. Never destroyed: an interpreter's objects may use it after
// static destructors ran. A child of fork() gets a new one, made by T::inherit(parent) or else T(). The
// parent's object may name threads that the child lacks, and another thread may have held its mutex during
// the fork. `Tag` tells objects of the same type apart. Any thread. The address stays the same until the
// process forks.
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

// Blocks all signals while it lives: a new thread inherits the signal mask of its creator.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

// The kernel says EAGAIN for every limit, so all of them are named.
inline std::string limits_of_threads() {
  rlimit limit{};
  const bool is_known = ::getrlimit(RLIMIT_NPROC, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  return "the limits are the user's number of processes and threads (ulimit -u, here " +
         (is_known ? std::to_string(limit.rlim_cur) : "unlimited") +
         "), pids.max of the cgroup, and address space (ulimit -v)";
}

// Starts a thread that has a name (15 characters at most) and takes no signal: signals are for the program's
// threads. Returns an empty text, or the reason for failure with the limits that may have been reached.
inline std::string start_thread(std::thread* started, const char* name, std::function<void()> body) {
  const SignalsBlocked blocked;
  try {
    *started = std::thread([name, body = std::move(body)] {
      pthread_setname_np(pthread_self(), name);
      body();
    });
    return {};
  } catch (const std::system_error& error) {
    return "cannot start the thread '" + std::string(name) + "': " + error.code().message() + "; " +
           limits_of_threads();
  }
}

}  // namespace tutti::detail
