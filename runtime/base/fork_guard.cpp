// Fork handlers. Knows no group.
#include "runtime/base/fork_guard.hpp"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <vector>

namespace tutti {
namespace {

// Never destroyed: fork may happen while the process exits.
struct Registry {
  std::mutex mutex;
  std::vector<int> fds;
};

Registry& registry() {
  static auto* const kRegistry = new Registry;
  return *kRegistry;
}

// Registered at load time: forks count even before the first descriptor.
[[maybe_unused]] const bool kIsWatching = [] {
  registry();
  return pthread_atfork([] { registry().mutex.lock(); }, [] { registry().mutex.unlock(); },
                        [] {
                          for (const int fd : registry().fds) ::close(fd);
                          registry().fds.clear();
                          registry().mutex.unlock();
                        }) == 0;
}();

}  // namespace

void close_on_fork(int fd) {
  const std::lock_guard lock(registry().mutex);
  registry().fds.push_back(fd);
}

void forget_on_fork(int fd) {
  const std::lock_guard lock(registry().mutex);
  auto& fds = registry().fds;
  const auto found = std::find(fds.begin(), fds.end(), fd);
  if (found == fds.end()) return;
  *found = fds.back();
  fds.pop_back();
}

}  // namespace tutti
