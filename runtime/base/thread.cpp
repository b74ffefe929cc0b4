// Starting threads with all signals blocked.
#include "runtime/base/thread.hpp"

#include <string>
#include <utility>

#include "tutti/detail/process.hpp"

namespace tutti {

Result<std::thread> start_thread(const char* name, std::function<void()> body) {
  std::thread started;
  const std::string failure = detail::start_thread(&started, name, std::move(body));
  if (!failure.empty()) return Status(StatusCode::resource_exhausted, failure);
  return started;
}

}  // namespace tutti
