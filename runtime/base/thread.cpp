// Starting threads with all signals blocked.
#include "runtime/base/thread.hpp"

#include <fmt/format.h>
#include <pthread.h>
#include <sys/resource.h>

#include <csignal>
#include <string>
#include <system_error>
#include <utility>

namespace tutti {
namespace {

// A thread starts with the signal mask of the one that starts it.
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
std::string limits_of_threads() {
  rlimit limit{};
  const bool is_known = ::getrlimit(RLIMIT_NPROC, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  return fmt::format(
      "the limits are the user's number of processes and threads (ulimit -u, here {}), pids.max of the "
      "cgroup, "
      "and address space (ulimit -v)",
      is_known ? std::to_string(limit.rlim_cur) : "unlimited");
}

}  // namespace

Result<std::thread> start_thread(const char* name, std::function<void()> body) {
  const SignalsBlocked blocked;
  try {
    return std::thread([name, body = std::move(body)] {
      pthread_setname_np(pthread_self(), name);
      body();
    });
  } catch (const std::system_error& error) {
    return Status(StatusCode::resource_exhausted, fmt::format("cannot start the thread '{}': {}; {}", name,
                                                              error.code().message(), limits_of_threads()));
  }
}

}  // namespace tutti
