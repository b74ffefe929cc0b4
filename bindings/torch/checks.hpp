// Checks of tensors that collectives share, and rules for overlapping inputs. Knows no collective.
#pragma once

#include <torch/csrc/distributed/c10d/Utils.hpp>

#include <cstdint>
#include <string>
#include <vector>

#include "bindings/torch/backend.hpp"
#include "bindings/torch/elements.hpp"

namespace tutti::torch_binding {

// Callback for torch's own checks: gets the error text.
inline auto refuse(const char* operation) {
  return [operation](const std::string& what) { TORCH_CHECK(false, "tutti: ", operation, ": ", what); };
}

inline int check_root(const char* operation, std::int64_t root, int size) {
  c10d::assertRootRank(refuse(operation), static_cast<int>(root), size);
  return static_cast<int>(root);
}

// Equal dtypes, shapes and layouts, as many as there are.
inline void check_alike(const char* operation, const Tensors& tensors, const at::Tensor& model) {
  c10d::assertTypeAndSizesMatch(refuse(operation), tensors, model.options(), model.sizes());
  for (const at::Tensor& tensor : tensors) elements_to_move(operation, tensor);
}

// A list with one list that has a tensor for each rank.
inline void check_list_per_rank(const char* operation, bool is_input, const TensorLists& lists, int size) {
  TORCH_CHECK(lists.size() == 1, "tutti: ", operation, ": requires a single-element ",
              is_input ? "input" : "output", " list containing a list with ", size, " tensors.");
  TORCH_CHECK(lists.front().size() == static_cast<std::size_t>(size), "tutti: ", operation, ": Incorrect ",
              is_input ? "input" : "output", " list size ", lists.front().size(), ". ",
              is_input ? "Input" : "Output", " list size should be ", size,
              ", same as size of the process group.");
}

inline void check_types(const char* operation, const Tensors& tensors, const at::Tensor& model) {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    elements_to_move(operation, tensors[i]);
    c10d::assertTypeMatch(refuse(operation), model.options(), tensors, i);
  }
}

// The place where an operation lets its input begin: `bytes` behind, or in front of, where `output` does.
inline std::uintptr_t behind(const void* output, std::uint64_t bytes) {
  return reinterpret_cast<std::uintptr_t>(output) + bytes;
}
inline std::uintptr_t in_front_of(const void* output, std::uint64_t bytes) {
  return reinterpret_cast<std::uintptr_t>(output) - bytes;
}

#if TORCH_VERSION_MAJOR >= 2
inline void check_same_length(const char* operation, std::size_t outputs, std::size_t inputs) {
  TORCH_CHECK(outputs == inputs, "tutti: ", operation,
              ": requires input/output tensor lists to have the same length, got ", inputs, " and ", outputs);
}
#endif

// An empty list may be anywhere.
inline at::Device device_of(const Tensors& tensors) {
  return tensors.empty() ? at::kCPU : tensors.front().device();
}

// Bytes of the tensors of the ranks below `rank`.
inline std::uint64_t bytes_before(const Tensors& tensors, int rank) {
  std::uint64_t bytes = 0;
  for (int before = 0; before < rank; ++before) bytes += tensors[static_cast<std::size_t>(before)].nbytes();
  return bytes;
}

inline bool have_equal_sizes(const Tensors& tensors) {
  for (const at::Tensor& tensor : tensors) {
    if (tensor.sizes() != tensors.front().sizes()) return false;
  }
  return true;
}

inline std::vector<std::uint64_t> counts_of(const Tensors& tensors, const Elements& elements) {
  std::vector<std::uint64_t> counts;
  for (const at::Tensor& tensor : tensors) counts.push_back(elements.count(tensor));
  return counts;
}

}  // namespace tutti::torch_binding
