// Submission, for every method of the backend. Included by its two sources. Knows no collective.
#pragma once

#include <c10/core/StreamGuard.h>

#include <exception>
#include <utility>

#include "bindings/torch/backend.hpp"

namespace tutti::torch_binding {

// The device of the tensors is known, so detection is not needed.
inline CallOptions call_options(const Submitted& submitted) {
  CallOptions call;
  call.memory = submitted.launches.empty() ? Memory::host : Memory::device;
  if (!submitted.launches.empty()) call.cuda_stream = submitted.launches.front()->handle();
  return call;
}

// A caller that waits at once (torch 2 tells) needs no progress thread; on a GPU only a stream waits.
template <class Options>
CallOptions call_options(const Options& options, const Submitted& submitted) {
  CallOptions call = call_options(submitted);
  if constexpr (requires { options.asyncOp; })
    call.will_wait = !options.asyncOp && submitted.launches.empty();
  return call;
}

template <class Submit>
WorkPointer TuttiBackend::start(const Operation& operation, const at::Device& device, Milliseconds timeout,
                                const Tensors& inputs, const Submit& submit) {
  Submitted submitted;
  c10::OptionalStreamGuard on_stream;
  if (!device.is_cpu()) {
    submitted.launches = {launch(operation, device)};
    on_stream.reset_stream(submitted.launches.front()->stream());
  }
  try {
    membership_->use([&](const CommGroup& group) { submit(group, &submitted); });
  } catch (const Error& error) {
    const std::exception_ptr failure = to_torch_exception(error, operation.name);
    // Operations submitted before the failure need their buffers until they are complete; the Work holds
    // them.
    if (!submitted.operations.empty()) finish_start(operation, timeout, inputs, std::move(submitted));
    std::rethrow_exception(failure);
  }
  return finish_start(operation, timeout, inputs, std::move(submitted));
}

}  // namespace tutti::torch_binding
