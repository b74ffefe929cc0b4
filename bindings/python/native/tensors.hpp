// Named tensors: a queue, and the objects that its operations use. Knows no transport.
#pragma once

#include "bindings/python/native/group.hpp"
#include "tutti/tensors.hpp"

namespace tutti::python {

// A queue with a handle of its group of its own, which keeps the buffers of operations that nobody waits for.
class OpenTensorQueue final : public OpenGroup {
 public:
  explicit OpenTensorQueue(const CommGroup& group);
  ~OpenTensorQueue() override;
  OpenTensorQueue(const OpenTensorQueue&) = delete;
  OpenTensorQueue& operator=(const OpenTensorQueue&) = delete;

  const TensorQueue& queue() const { return queue_; }
  void abandon(Pending pending) override;
  void close() override;

 private:
  TensorQueue queue_;
};

void define_tensors(py::module_& module);

}  // namespace tutti::python
