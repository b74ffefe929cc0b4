// The part of the DLPack interface (version 1) for consumers of arrays in main memory and on CUDA devices.
// Laid out as its specification says. Knows neither Python nor tutti.
#pragma once

#include <cstdint>

namespace tutti::python::dlpack {

inline constexpr std::int32_t kCpu = 1;
inline constexpr std::int32_t kCuda = 2;
inline constexpr std::int32_t kCudaHost = 3;      // main memory that was registered with a GPU
inline constexpr std::int32_t kCudaManaged = 13;  // reached by the CPU, too

enum class Code : std::uint8_t {
  integer = 0,
  unsigned_integer = 1,
  floating = 2,
  bfloat = 4,
  complex = 5,
  boolean = 6,
  float8_e4m3fn = 10,
  float8_e5m2 = 12,
};

struct DataType {
  Code code;
  std::uint8_t bits;
  std::uint16_t lanes;
};

struct Tensor {
  void* data;
  std::int32_t device_type;
  std::int32_t device_index;
  std::int32_t dimension_count;
  DataType dtype;
  std::int64_t* shape;
  std::int64_t* strides;  // in elements; null: row after row
  std::uint64_t offset_bytes;
};

struct Managed {
  Tensor tensor;
  void* context;
  void (*release)(Managed* self);
};

inline constexpr std::uint64_t kReadOnly = 1;

struct ManagedVersioned {
  std::uint32_t major;
  std::uint32_t minor;
  void* context;
  void (*release)(ManagedVersioned* self);
  std::uint64_t flags;
  Tensor tensor;
};

}  // namespace tutti::python::dlpack
