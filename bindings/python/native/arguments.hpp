// Arguments of calls: arrays that must fit each other, streams, operations, lists of counts. Knows no
// collective.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bindings/python/native/group.hpp"

namespace tutti::python {

// "sum" and the others by name, or premul_sum(). Raises TypeError or ValueError.
Reduction reduction_of(py::handle op, const char* call);
// The same, or user_op(), which the call's buffers then keep. `array`: the one whose elements it sees.
Reduction reduction_of(py::handle op, const char* call, Buffers& buffers, py::handle array);

// "allreduce" and the others by name, and the name, which is a literal.
Collective collective_of(const std::string& name, const char* call);
const char* name_of(Collective collective);

// One number per rank, in elements. None: empty.
std::vector<std::uint64_t> counts_of(py::handle numbers, const char* call, const char* name);

// The arrays of one call and the keywords that most calls have. Raises TypeError or ValueError.
class CallArguments {
 public:
  // `stream`: None, a number, or an object that has one.
  CallArguments(const OpenGroup& group, const char* call, py::handle stream);

  Array array(py::handle object, const char* name, Use use);
  // Both arrays of a call, whose dtypes must be equal; None for the one means "in place": only the other is
  // used.
  Buffers buffers(py::handle input, py::handle output);
  // Once all arrays are here. `algorithm`: an item of the rule grammar; its text belongs to the argument.
  // `wire_dtype`: the name of a dtype, or None.
  CallOptions options(py::handle algorithm, bool will_wait, py::handle wire_dtype = py::none()) const;
  CallOptions options(bool will_wait) const;
  std::optional<StreamNumber> given_stream() const { return given_; }

 private:
  const char* call_;
  const OpenGroup& group_;
  std::optional<StreamNumber> given_;
  std::optional<StreamNumber> stream_;  // whose earlier work the arrays so far depend on
  bool is_on_gpu_ = false;
};

// Raises ValueError unless the array has so many elements.
void expect_count(const char* call, const char* name, std::size_t got, std::size_t expected);
// got / ranks, which must be exact.
std::size_t block_count(const char* call, const char* name, std::size_t got, int ranks);

}  // namespace tutti::python
