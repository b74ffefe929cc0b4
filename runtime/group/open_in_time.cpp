// Waiting for a library with a deadline; see open_in_time.hpp.
#include "runtime/group/open_in_time.hpp"

#include <condition_variable>
#include <mutex>
#include <optional>
#include <utility>

#include "runtime/base/thread.hpp"

namespace tutti {
namespace {

struct Opening {
  std::mutex mutex;
  std::condition_variable changed;
  std::optional<Result<std::unique_ptr<Transport>>> made;
  bool is_abandoned = false;
};

}  // namespace

Result<std::unique_ptr<Transport>> open_in_time(OpenTransport open, Clock::time_point deadline) {
  const auto opening = std::make_shared<Opening>();
  Result<std::thread> thread = start_thread("tutti-opening", [opening, open = std::move(open)] {
    Result<std::unique_ptr<Transport>> made = open();
    const std::lock_guard lock(opening->mutex);
    if (!opening->is_abandoned) opening->made = std::move(made);
    opening->changed.notify_all();
  });
  if (!thread) return thread.status();
  std::unique_lock lock(opening->mutex);
  if (wait_until(opening->changed, lock, deadline, [&] { return opening->made.has_value(); })) {
    lock.unlock();
    thread->join();
    return *std::move(opening->made);
  }
  opening->is_abandoned = true;
  lock.unlock();
  thread->detach();
  return Status(StatusCode::timeout, "its library has not opened it within the timeout (TUTTI_TIMEOUT)");
}

}  // namespace tutti
