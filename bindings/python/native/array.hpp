// An argument that holds elements: whatever has the buffer protocol or __dlpack__, borrowed without a copy.
// Knows no group and no collective.
#pragma once

#include <pybind11/pybind11.h>

#include <cstddef>

#include "bindings/python/native/dlpack.hpp"
#include "tutti/types.hpp"

namespace tutti::python {

namespace py = pybind11;

const char* dtype_name(Dtype dtype);  // as numpy has it: "float32"
// The dtype of that name; raises ValueError.
Dtype dtype_of_name(std::string_view name);

enum class Use { read, written };

// The memory of one array, which its owner can neither free nor resize while this lives. Needs the GIL for
// everything but data(), count() and dtype().
class Array {
 public:
  Array() = default;  // no memory: null, 0 elements
  // Raises TypeError or ValueError that begin with "CALL: NAME".
  static Array of(py::handle object, const char* call, const char* name, Use use);
  Array(Array&& other) noexcept { take(other); }
  Array& operator=(Array&& other) noexcept {
    if (this != &other) {
      release();
      take(other);
    }
    return *this;
  }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  ~Array() { release(); }

  void* data() const { return data_; }
  std::size_t count() const { return count_; }
  Dtype dtype() const { return dtype_; }
  bool is_empty() const { return owner_ == Owner::none; }
  // The pointer to element `index`.
  void* at(std::size_t index) const;
  // Lets go of the memory without telling its owner: for the end of the interpreter.
  void forget() { owner_ = Owner::none; }

 private:
  enum class Owner : std::uint8_t { none, view, capsule, versioned_capsule };
  struct Asked;
  bool borrow_view(py::handle object, const Asked& asked);
  bool borrow_capsule(py::handle object, const Asked& asked);
  void describe(const dlpack::Tensor& tensor, bool is_readonly, const Asked& asked);
  void take(Array& other);
  void release();

  void* data_ = nullptr;
  std::size_t count_ = 0;
  Dtype dtype_ = Dtype::u8;
  Owner owner_ = Owner::none;
  Py_buffer view_{};
  void* managed_ = nullptr;
};

std::size_t element_bytes(Dtype dtype);

}  // namespace tutti::python
