// Calls a function of MLSL's C++ interface for one of its C interface: handles become objects, results go through a
// pointer.
#pragma once

#include <type_traits>

#include "bindings/mlsl/include/mlsl.h"
#include "bindings/mlsl/include/mlsl.hpp"

namespace tutti::mlsl {

using Handle = unsigned long long;

template <class Object>
Handle handle_of(Object* object) {
  return reinterpret_cast<Handle>(object);
}

// A handle as an object, an object as a handle, and any other value as the other interface's type.
template <class To, class From>
To converted(From value) {
  if constexpr (std::is_pointer_v<To> != std::is_pointer_v<From> && !std::is_null_pointer_v<From>)
    return reinterpret_cast<To>(value);
  else
    return static_cast<To>(value);
}

template <class Object, class Result, class... Params, class... Args>
int run(Handle handle, Result (Object::*function)(Params...), Args... args) {
  if (handle == 0) return CMLSL_FAILURE;
  (reinterpret_cast<Object*>(handle)->*function)(converted<Params>(args)...);
  return CMLSL_SUCCESS;
}

template <class Out, class Object, class Result, class... Params, class... Args>
int get(Handle handle, Out* out, Result (Object::*function)(Params...), Args... args) {
  if (handle == 0 || out == nullptr) return CMLSL_FAILURE;
  *out = converted<Out>((reinterpret_cast<Object*>(handle)->*function)(converted<Params>(args)...));
  return CMLSL_SUCCESS;
}

}  // namespace tutti::mlsl
