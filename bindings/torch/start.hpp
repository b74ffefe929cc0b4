// How every method of the backend submits. Included by its two sources. Knows no collective.
#pragma once

#include <c10/core/StreamGuard.h>

#include <exception>
#include <utility>

#include "bindings/torch/backend.hpp"

namespace tutti::torch_binding {

// Where the tensors are is known, so that nobody has to look.
inline CallOptions call_options(const Submitted& submitted) {
  CallOptions call;
  call.memory = submitted.launches.empty() ? Memory::host : Memory::device;
  if (!submitted.launches.empty()) call.cuda_stream = submitted.launches.front()->handle();
  return call;
}

// Who waits at once (torch 2 says so) needs no worker; for a GPU, only a stream waits.
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
    // What was submitted before the failure needs its buffers until it is complete; the Work sees to that.
    if (!submitted.operations.empty()) finish_start(operation, timeout, inputs, std::move(submitted));
    std::rethrow_exception(failure);
  }
  return finish_start(operation, timeout, inputs, std::move(submitted));
}

}  // namespace tutti::torch_binding
