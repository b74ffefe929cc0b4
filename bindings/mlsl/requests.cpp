// Starting, waiting and splitting of communications. See requests.hpp.
#include "bindings/mlsl/requests.hpp"

#include <algorithm>
#include <exception>
#include <utility>

#include "bindings/mlsl/data_types.hpp"
#include "bindings/mlsl/environment.hpp"
#include "bindings/mlsl/failure.hpp"

namespace tutti::mlsl {

Request::~Request() {
  for (const Work& work : works_) {
    try {
      work.wait();
    } catch (const std::exception&) {  // nobody asks for its outcome; after a failure no memory is in use
    }
  }
}

void Request::begin() {
  if (is_active_) fail(name_ + " was started again before its wait");
  is_active_ = true;
  if (is_logged(LogLevel::trace)) log(LogLevel::trace, name_ + " started");
}

void Request::wait() {
  if (!is_active_) return;
  guarded(name_.c_str(), [this] { wait_all(works_); });
  end();
}

bool Request::test() {
  if (!is_active_) return true;
  if (!guarded(name_.c_str(), [this] {
        return std::all_of(works_.begin(), works_.end(), [](const Work& work) { return work.test(); });
      }))
    return false;
  wait();  // throws the error of a failed one
  return true;
}

void Request::end() {
  works_.clear();
  is_active_ = false;
  if (const auto finish = std::exchange(finish_, nullptr)) finish();
}

void add_allreduce(Request& request, const CommGroup& group, const void* input, void* output,
                   std::size_t count, Dtype dtype, const Reduction& reduction) {
  const Settings& settings = environment().settings();
  const std::size_t element_bytes = bytes_of(dtype);
  const std::size_t chunk_count =
      count * element_bytes > settings.large_message_bytes ? settings.large_message_chunks : 1;
  std::size_t first = 0;
  for (std::size_t chunk = 0; chunk < chunk_count; ++chunk) {
    const std::size_t end = count * (chunk + 1) / chunk_count;
    request.add(group.iallreduce(static_cast<const char*>(input) + first * element_bytes,
                                 static_cast<char*>(output) + first * element_bytes, end - first, dtype,
                                 reduction));
    first = end;
  }
}

}  // namespace tutti::mlsl
