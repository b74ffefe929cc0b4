// How every method of the backend submits. Included by its two sources. Knows no collective.
#pragma once

#include <exception>
#include <utility>

#include "bindings/torch/backend.hpp"

namespace tutti::torch_binding {

template <class Submit>
WorkPointer TuttiBackend::start(const Operation& operation, Milliseconds timeout, const Tensors& inputs,
                                Submitted submitted, const Submit& submit) {
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
