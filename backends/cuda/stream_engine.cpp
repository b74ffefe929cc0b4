// From a call to its Work, for every engine that enqueues.
#include "backends/cuda/stream_engine.hpp"

#include <fmt/format.h>

#include "backends/cuda/memory.hpp"

namespace tutti::cuda {

Result<WorkRef> StreamEngine::submit(const Call& call, int source,
                                     const std::function<Status(CUstream)>& put) {
  TUTTI_RETURN_IF_ERROR(services_.failure());
  TUTTI_RETURN_IF_ERROR(watch_.failure());
  const Result<ContextScope> context = ContextScope::enter(device_);
  if (!context) return context.status();
  auto* const stream = static_cast<CUstream>(call.stream);
  TUTTI_RETURN_IF_ERROR(refuse_capture(stream, names_.call, names_.why_no_capturing));
  const std::string text = fmt::format("{} by {} on GPU {}", describe_call(call), names_.engine, device_);
  Result<WorkRef> work = watch_.begin(text, source, stream);
  if (!work) return work.status();
  Status status = put(stream);
  if (status) status = watch_.add(*work, stream);
  if (status) return work;
  fail_for_all(status, text);
  return watch_.failure();
}

void StreamEngine::fail_for_all(const Status& status, std::string_view call) {
  const Status failed = services_.failure();
  watch_.fail(failed ? status.with_context(call) : failed);
}

}  // namespace tutti::cuda
