// Signals between the ranks of a test program: who has reported tells the others, and who must stay alive until then waits for that.
// Knows process ids only, so that it works after groups have failed.
#pragma once

#include <signal.h>
#include <unistd.h>

#include <ctime>
#include <span>
#include <vector>

#include "tutti/tutti.hpp"

namespace tutti::test {

class RankSignals {
 public:
  // Call it before tutti::init(), because the threads started there must not take the signals.
  static void block() {
    const sigset_t set = signals();
    ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
  }

  // All ranks of `world`, processes of one machine.
  explicit RankSignals(const CommGroup& world)
      : pids_(static_cast<std::size_t>(world.size())), own_(::getpid()) {
    world.allgather(std::span(&own_, 1), std::span(pids_));
  }

  void tell_others() const {
    for (const int pid : pids_) {
      if (pid != own_) ::kill(pid, SIGRTMIN);  // queued, so that none is lost
    }
  }

  // Returns when so many ranks have told, or after a minute in which none did.
  void wait_for(int count) const {
    const sigset_t set = signals();
    const timespec minute{60, 0};
    for (int told = 0; told < count; ++told) {
      if (::sigtimedwait(&set, nullptr, &minute) != SIGRTMIN) return;
    }
  }

 private:
  static sigset_t signals() {
    sigset_t set;
    ::sigemptyset(&set);
    ::sigaddset(&set, SIGRTMIN);
    return set;
  }

  std::vector<int> pids_;
  int own_;
};

}  // namespace tutti::test
