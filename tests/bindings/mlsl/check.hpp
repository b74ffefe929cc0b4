// Checks of programs that know MLSL's interface only, and its number for a C++ type.
#pragma once

#include <cstdio>
#include <cstdlib>

#include "bindings/mlsl/include/mlsl.hpp"

#define CHECK(condition)                                                           \
  do {                                                                             \
    if (!(condition)) {                                                            \
      std::fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #condition); \
      std::exit(3);                                                                \
    }                                                                              \
  } while (false)

template <class T>
MLSL::DataType type_of();
template <>
inline MLSL::DataType type_of<float>() {
  return MLSL::DT_FLOAT;
}
template <>
inline MLSL::DataType type_of<double>() {
  return MLSL::DT_DOUBLE;
}
template <>
inline MLSL::DataType type_of<unsigned char>() {
  return MLSL::DT_BYTE;
}
