// Objects that threads without the GIL hold: the end of the interpreter waits for them. Knows no operation.
#pragma once

#include <pybind11/pybind11.h>

#include <atomic>
#include <memory>
#include <utility>

#include "bindings/python/native/user_op.hpp"

namespace tutti::python {

inline std::atomic<int> kept_count{0};

// The object ends with the GIL, on the thread that drops the last reference. That thread may be one that makes
// progress, so the end must not wait.
template <class T>
std::shared_ptr<T> keep(T object) {
  ++kept_count;
  return {new T(std::move(object)), [](T* held) {
            {
              const py::gil_scoped_acquire gil;
              const InCallback running;
              delete held;
            }
            --kept_count;
          }};
}

}  // namespace tutti::python
