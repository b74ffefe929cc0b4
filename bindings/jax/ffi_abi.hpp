// The binary interface of XLA's foreign functions (xla/ffi/api/c_api.h, version 0), as far as this library uses it. Declared here, so
// that one library works with every jaxlib and is built without one. XLA adds members behind those that it has.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti::jax::ffi {

struct Error;
struct Future;

struct Version {
  std::size_t struct_size;
  void* extension;
  int major, minor;
};

struct Metadata {
  std::size_t struct_size;
  Version version;  // what the function was written for
  std::uint32_t traits;
};

constexpr int kMetadataExtension = 1;
struct Extension {
  std::size_t struct_size;
  int type;
  Extension* next;
  Metadata* metadata;  // of that type alone
};

struct Buffer {
  std::size_t struct_size;
  void* extension;
  int dtype;
  void* data;
  std::int64_t rank;
  std::int64_t* dims;
};

// Arguments, and results.
struct Buffers {
  std::size_t struct_size;
  void* extension;
  std::int64_t size;
  int* types;
  Buffer** buffers;
};

struct Text {
  const char* data;
  std::size_t length;
};
struct Scalar {
  int dtype;
  void* value;
};
struct Attributes {
  std::size_t struct_size;
  void* extension;
  std::int64_t size;
  int* types;
  Text** names;
  void** values;
};

constexpr int kAborted = 10;
struct ErrorCreate {
  std::size_t struct_size;
  void* extension;
  const char* message;
  int code;
};
struct FutureCall {
  std::size_t struct_size;
  void* extension;
  Future* future;  // SetError: its error follows
  Error* error;
};
// FutureCall without the error.
constexpr std::size_t kPlainFutureBytes = offsetof(FutureCall, error);

struct Api {
  std::size_t struct_size;
  void* extension;
  Version version;
  const void* internal;
  Error* (*error_create)(ErrorCreate*);
  void (*unused[12])();
  Error* (*future_create)(FutureCall*);
  Error* (*future_set_available)(FutureCall*);
  Error* (*future_set_error)(FutureCall*);
};

struct Frame {
  std::size_t struct_size;
  Extension* extension;
  const Api* api;
  void* context;
  int stage;
  Buffers arguments;
  Buffers results;
  Attributes attributes;
  Future* future;  // set: the results are there once it is complete
};

}  // namespace tutti::jax::ffi
