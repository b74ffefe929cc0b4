// Starts threads with all signals blocked.
#include "runtime/base/thread.hpp"

#include <string>
#include <utility>

#include "runtime/base/log.hpp"
#include "tutti/detail/process.hpp"

namespace tutti {

Result<std::thread> start_thread(const char* name, std::function<void()> body) {
  std::thread started;
  const std::string failure = detail::start_thread(&started, name, std::move(body));
  if (!failure.empty()) return Status(StatusCode::resource_exhausted, failure);
  return started;
}

std::vector<std::thread> start_threads(const char* name, std::uint32_t count,
                                       const std::function<void(std::uint32_t)>& body, std::string_view kind,
                                       std::string_view without) {
  std::vector<std::thread> threads;
  threads.reserve(count);
  for (std::uint32_t number = 0; number < count; ++number) {
    Result<std::thread> thread = start_thread(name, [body, number] { body(number); });
    if (!thread) {
      log_warn("{} of {} {} could be started ({}); {}", threads.size(), count, kind,
               thread.status().message(), without);
      break;
    }
    threads.push_back(*std::move(thread));
  }
  return threads;
}

}  // namespace tutti
