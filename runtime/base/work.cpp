// Completion callbacks, and what must not be done in them.
#include "runtime/base/work.hpp"

namespace tutti {
namespace {

thread_local bool is_callback_running = false;

}  // namespace

bool is_in_callback() { return is_callback_running; }

void call_back(const CompletionCallback& callback, const Status& status) {
  const bool was_running = std::exchange(is_callback_running, true);
  callback(status);
  is_callback_running = was_running;
}

}  // namespace tutti
