// See allocation.hpp.
#include "bindings/python/native/allocation.hpp"

#include <numeric>
#include <utility>

namespace tutti::python {
namespace {

constexpr const char* kSubmitCall = "submit";

Error invalid(const std::string& text) { return {StatusCode::invalid_argument, -1, text}; }

}  // namespace

void expect_rows(const char* name, std::uint64_t got, std::span<const std::uint64_t> rows,
                 std::uint64_t row_count) {
  const std::uint64_t expected = std::accumulate(rows.begin(), rows.end(), std::uint64_t{0}) * row_count;
  if (got == expected) return;
  throw invalid(std::string(name) + ": " + std::to_string(got) + " elements, expected " +
                std::to_string(expected));
}

void* Allocation::allocate(std::span<const std::uint64_t> rows) {
  return ask_program("allocate", &failure_, [&] { return call(rows); });
}

void* Allocation::call(std::span<const std::uint64_t> rows) {
  py::list numbers;
  for (const std::uint64_t count : rows) numbers.append(count);
  result_ = std::exchange(function_, py::object())(numbers);
  Array array = Array::of(result_, kSubmitCall, "allocate", Use::written, expected_.stream);
  if (expected_.seen_as && !array.see_as(*expected_.seen_as)) throw invalid("allocate: no whole elements");
  if (array.dtype() != expected_.dtype) {
    throw invalid(std::string("allocate: elements are ") + dtype_name(array.dtype()) + ", those of input " +
                  dtype_name(expected_.dtype));
  }
  if (array.is_on_gpu() != expected_.is_on_gpu)
    throw invalid("allocate: its array and input are not both on a GPU, or both in main memory");
  expect_rows("allocate", array.count(), rows, expected_.row_count);
  array_ = std::move(array);
  return array_.data();
}

}  // namespace tutti::python
