// Kernels of an operation: sums of their gradients, and exchange of increments with distributed update.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bindings/mlsl/include/mlsl.hpp"
#include "bindings/mlsl/layout.hpp"
#include "bindings/mlsl/requests.hpp"

namespace tutti::mlsl {

struct OperationImpl;
class Quantizer;

struct Kernels {
  std::size_t count = 0, size = 0;
  MLSL::DataType type = MLSL::DT_FLOAT;
  bool has_distributed_update = false;
  MLSL::CompressionType compression = MLSL::CT_NONE;
};

struct ParameterSetImpl : MLSL::ParameterSet {
  // The operation has its distribution. `index`: among the parameter sets of the operation.
  ParameterSetImpl(OperationImpl& owner, std::size_t index, const Kernels& described);

  bool communicates() const;
  // With priorities. False for a small gradient, and for those that are needed first: they are sent at once.
  bool may_be_overtaken() const;
  void start_gradients(void* buffer);
  void start_increments(void* buffer);
  std::size_t element_count(std::size_t kernel_count) const { return kernel_count * kernels.size; }
  std::size_t gradient_bytes() const;

  OperationImpl& operation;
  Kernels kernels;
  // The set that was added first is needed first, so it is the most urgent.
  int priority = 0;
  Range global;  // this rank's kernels among all
  std::size_t local_count = 0, owned_count = 0, owned_first = 0;
  // Null where nothing was started.
  void* gradient_result = nullptr;
  void* increment_result = nullptr;

 private:
  void start_prioritized(void* buffer);
  void start_compressed(void* buffer);

  std::string name_;             // equal on all ranks, and of no other parameter set
  std::shared_ptr<void> owned_;  // gradient sums with distributed update
  // Of the first compressed gradient, and kept: the blocks have its size.
  std::shared_ptr<const Quantizer> quantizer_;
  std::shared_ptr<void> blocks_;  // compressed gradients
  std::vector<float> residual_;   // of earlier compressions

 public:
  Request gradient_request, increment_request;  // the last: their end waits for what uses the others
};

inline ParameterSetImpl& impl(MLSL::ParameterSet* params) { return *static_cast<ParameterSetImpl*>(params); }

}  // namespace tutti::mlsl
