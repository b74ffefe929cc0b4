// Makes four functions of one description of a call: of a group and of the module, blocking and not. Knows no
// collective.
#pragma once

#include <string>

#include "bindings/python/native/arguments.hpp"
#include "bindings/python/native/world.hpp"

namespace tutti::python {

// The two ways to end a call. `result` is the result of the call, or of result() of its Work.
struct Blocking {
  using Result = py::object;
  static constexpr bool kWaits = true;
  template <class Start>
  static Result finish(const SharedGroup& group, const char* operation, Buffers&& buffers, py::handle result,
                       const Start& start) {
    run_to_end(group, operation, std::move(buffers), start);
    return py::reinterpret_borrow<py::object>(result);
  }
};
struct Background {
  using Result = std::unique_ptr<PendingWork>;
  static constexpr bool kWaits = false;
  template <class Start>
  static Result finish(const SharedGroup& group, const char* operation, Buffers&& buffers, py::handle result,
                       const Start& start) {
    return start_only(group, operation, std::move(buffers), result, start);
  }
};

class Definer {
 public:
  Definer(py::module_& module, py::class_<OpenGroup, SharedGroup>& group) : module_(module), group_(group) {}

  // `operation` must be a literal: errors keep it.
  template <class... Parameters, class... Extra>
  void define(const char* operation, py::object (*blocking)(const SharedGroup&, Parameters...),
              std::unique_ptr<PendingWork> (*background)(const SharedGroup&, Parameters...), const char* text,
              const Extra&... extra) {
    define_one(operation, operation, blocking, text, extra...);
    const std::string name = std::string(operation) + "_async";
    const std::string doc = "Start " + std::string(operation) + "() and return its Work.";
    define_one(name.c_str(), operation, background, doc.c_str(), extra...);
  }

 private:
  template <class Result, class... Parameters, class... Extra>
  void define_one(const char* name, const char* operation, Result (*call)(const SharedGroup&, Parameters...),
                  const char* text, const Extra&... extra) {
    group_.def(
        name,
        [call, operation](const SharedGroup& group, Parameters... parameters) {
          return guarded(*group, operation, [&] { return call(group, parameters...); });
        },
        text, extra...);
    module_.def(
        name,
        [call, operation](Parameters... parameters) {
          const SharedGroup& group = world();
          return guarded(*group, operation, [&] { return call(group, parameters...); });
        },
        text, extra...);
  }

  py::module_& module_;
  py::class_<OpenGroup, SharedGroup>& group_;
};

}  // namespace tutti::python
