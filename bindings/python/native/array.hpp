// An argument that holds elements, used without a copy: any object with the buffer protocol, __dlpack__ or
// __cuda_array_interface__. Knows no group and no collective.
#pragma once

#include <pybind11/pybind11.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "bindings/python/native/dlpack.hpp"
#include "bindings/python/native/dtypes.hpp"
#include "tutti/types.hpp"

namespace tutti::python {

namespace py = pybind11;

enum class Use { read, written };

// A CUDA stream as the protocols of arrays have it: kDefaultStream, 2 (the calling thread's own), or a
// cudaStream_t.
using StreamNumber = std::uintptr_t;
inline constexpr StreamNumber kDefaultStream = 1;

// The memory of one array, which its owner can neither free nor resize while this lives. Needs the GIL for
// everything but data(), count() and dtype().
class Array {
 public:
  Array() = default;  // no memory: null, 0 elements
  // `stream` is the one that the call was given, if any. Raises TypeError or ValueError that begin with
  // "CALL: NAME".
  static Array of(py::handle object, const char* call, const char* name, Use use,
                  std::optional<StreamNumber> stream);
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
  std::size_t element_bytes() const { return element_bytes_; }
  bool is_empty() const { return owner_ == Owner::none; }
  bool is_on_gpu() const { return is_on_gpu_; }
  // The stream whose earlier work produces the elements; none: any.
  std::optional<StreamNumber> ready_on() const { return ready_on_; }
  // The slowest dimension first; of no memory: no dimension. `object`: the one that the array is of.
  std::vector<std::uint64_t> shape(py::handle object) const;
  // Takes the bytes as elements of this dtype. False if they are no whole number of them.
  bool see_as(Dtype dtype);
  // The pointer to element `index`.
  void* at(std::size_t index) const;
  // Drops the memory without calling its owner: for the end of the interpreter.
  void forget() { owner_ = Owner::none; }

 private:
  enum class Owner : std::uint8_t { none, view, capsule, versioned_capsule, object };
  struct Asked;
  bool borrow_view(py::handle object, const Asked& asked);
  bool borrow_tensor(py::handle object, const Asked& asked);
  bool borrow_cuda_interface(py::handle object, const Asked& asked);
  void take_capsule(py::handle object, const Asked& asked, std::optional<StreamNumber> stream);
  void describe(const dlpack::Tensor& tensor, bool is_readonly, const Asked& asked);
  void take(Array& other);
  void release();

  void* data_ = nullptr;
  std::size_t count_ = 0;
  Dtype dtype_ = Dtype::u8;
  std::size_t element_bytes_ = 1;
  Owner owner_ = Owner::none;
  bool is_on_gpu_ = false;
  std::optional<StreamNumber> ready_on_;
  Py_buffer view_{};
  void* managed_ = nullptr;
};

}  // namespace tutti::python
