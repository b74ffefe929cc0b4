// The life of a call on a stream, whoever carries it out.
#include "backends/cuda/stream_backend.hpp"

#include <fmt/format.h>

#include "backends/cuda/memory.hpp"

namespace tutti::cuda {

Result<WorkRef> StreamBackend::start(const Call& call, const Choice& choice) {
  TUTTI_RETURN_IF_ERROR(supports(call));
  TUTTI_RETURN_IF_ERROR(prepare(call, choice));
  TUTTI_RETURN_IF_ERROR(services_.failure());
  TUTTI_RETURN_IF_ERROR(watch_.failure());
  const Result<ContextScope> context = ContextScope::enter(device_);
  if (!context) return context.status();
  auto* const stream = static_cast<CUstream>(call.stream);
  TUTTI_RETURN_IF_ERROR(refuse_capture(stream, "a call among peers", "each call has a number of its own"));
  Result<WorkRef> work =
      watch_.begin(fmt::format("{} by {} on GPU {}", describe_call(call), by_, device_), -1, stream);
  if (!work) return work.status();
  Status status = put(call, stream);
  if (status) status = watch_.add(*work, stream);
  if (status) return work;
  // The others have made the call, or will: they must not wait for this rank.
  watch_.fail(status);
  return watch_.failure();
}

}  // namespace tutti::cuda
