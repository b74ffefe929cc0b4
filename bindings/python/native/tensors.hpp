// Named tensors: a queue, and the objects that its operations use. Knows no transport.
#pragma once

#include "bindings/python/native/group.hpp"
#include "tutti/c_handles.hpp"

namespace tutti::python {

// A queue with a handle of its group of its own, which keeps the buffers of operations that nobody waits for.
class OpenTensorQueue final : public OpenGroup {
 public:
  explicit OpenTensorQueue(const CommGroup& group);
  ~OpenTensorQueue() override;
  OpenTensorQueue(const OpenTensorQueue&) = delete;
  OpenTensorQueue& operator=(const OpenTensorQueue&) = delete;

  const TensorQueue& queue() const { return queue_; }
  // As that of a group, but it lives as long as this object, also after close(): a thread of a framework that
  // submits too late gets an error.
  tutti_tensor_queue_t c_queue_handle();
  void abandon(Pending pending) override;
  void close() override;

 private:
  TensorQueue queue_;
  tutti_tensor_queue_t c_queue_handle_ = nullptr;
};

void define_tensors(py::module_& module);

}  // namespace tutti::python
