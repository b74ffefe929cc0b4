// The table of dtypes, and their names elsewhere. Knows no array.
#include "bindings/python/native/dtypes.hpp"

#include <pybind11/pybind11.h>

#include <algorithm>
#include <array>
#include <string>

namespace tutti::python {
namespace {

struct DtypeRow {
  const char* name;
  std::size_t bytes;
};
// In the order of Dtype.
constexpr std::array<DtypeRow, kDtypeCount> kDtypes = {
    {{"int8", 1},      {"uint8", 1},       {"int16", 2},         {"uint16", 2},      {"int32", 4},
     {"uint32", 4},    {"int64", 8},       {"uint64", 8},        {"float16", 2},     {"bfloat16", 2},
     {"float32", 4},   {"float64", 8},     {"float8_e4m3fn", 1}, {"float8_e5m2", 1}, {"bool", 1},
     {"complex64", 8}, {"complex128", 16}, {"f32_i32", 8},       {"f64_i32", 16},    {"i32_i32", 8},
     {"i64_i32", 16},  {"f64_i64", 16},    {"i64_i64", 16},      {"opaque", 0}}};
// Later dtypes are no types of arrays.
constexpr std::size_t kArrayDtypes = static_cast<std::size_t>(Dtype::c128) + 1;

constexpr Dtype integer(std::size_t bytes, bool is_signed) {
  constexpr Dtype kSigned[] = {Dtype::i8, Dtype::i16, Dtype::i32, Dtype::i64};
  constexpr Dtype kUnsigned[] = {Dtype::u8, Dtype::u16, Dtype::u32, Dtype::u64};
  const std::size_t index = bytes == 1 ? 0 : bytes == 2 ? 1 : bytes == 4 ? 2 : 3;
  return is_signed ? kSigned[index] : kUnsigned[index];
}

// The kinds of a format without names and byte orders of this machine; "x" is padding.
std::string kinds_of(std::string_view format) {
  std::string kinds;
  for (std::size_t i = 0; i < format.size(); ++i) {
    const char c = format[i];
    if (c == ':') {
      i = std::min(format.find(':', i + 1), format.size());
    } else if (c != '@' && c != '=' && c != '<' && c != '^') {
      kinds += c;
    }
  }
  return kinds;
}

}  // namespace

const char* dtype_name(Dtype dtype) { return kDtypes[static_cast<std::size_t>(dtype)].name; }
std::size_t element_bytes(Dtype dtype) { return kDtypes[static_cast<std::size_t>(dtype)].bytes; }

Dtype dtype_of_name(std::string_view name, const char* argument) {
  std::string known;
  for (std::size_t i = 0; i < kArrayDtypes; ++i) {
    if (name == kDtypes[i].name) return static_cast<Dtype>(i);
    known += std::string(i == 0 ? "" : ", ") + kDtypes[i].name;
  }
  throw pybind11::value_error(std::string(argument) + ": '" + std::string(name) + "': expected one of " +
                              known);
}

bool dtype_of_format(const char* format, std::size_t bytes, Dtype* dtype) {
  std::string_view text = format == nullptr ? "B" : format;
  if (!text.empty() && (text[0] == '@' || text[0] == '=' || text[0] == '<')) text.remove_prefix(1);
  if (text == "Zf" || text == "Zd") {
    *dtype = text == "Zf" ? Dtype::c64 : Dtype::c128;
    return element_bytes(*dtype) == bytes;
  }
  if (text.size() != 1) return false;
  constexpr std::string_view kSigned = "bhilqn";
  constexpr std::string_view kUnsigned = "BHILQNc";
  const char kind = text[0];
  if (kSigned.find(kind) != std::string_view::npos) {
    *dtype = integer(bytes, true);
  } else if (kUnsigned.find(kind) != std::string_view::npos) {
    *dtype = integer(bytes, false);
  } else if (kind == 'f') {
    *dtype = Dtype::f32;
  } else if (kind == 'd') {
    *dtype = Dtype::f64;
  } else if (kind == 'e') {
    *dtype = Dtype::f16;
  } else if (kind == '?') {
    *dtype = Dtype::boolean;
  } else {
    return false;
  }
  return element_bytes(*dtype) == bytes;
}

// Has more than 15 decisions because each pair of types is a case.
bool dtype_of_record(std::string_view format, std::size_t bytes, Dtype* dtype) {
  constexpr std::size_t kMostBytes = 65536;
  const bool is_record = format.starts_with("T{"), is_raw = format.ends_with("x");
  if ((!is_record && !is_raw) || bytes == 0 || bytes > kMostBytes) return false;
  const std::string kinds = kinds_of(format.substr(is_record ? 2 : 0));
  if (kinds.find_first_of("OP&X") != std::string::npos) return false;
  struct Pair {
    Dtype dtype;
    std::string_view values, indices;
  };
  constexpr std::string_view kLong = "lq", kInt = "i";
  constexpr std::array<Pair, 6> kPairs = {{{Dtype::f32_i32, "f", kInt},
                                           {Dtype::f64_i32, "d", kInt},
                                           {Dtype::i32_i32, kInt, kInt},
                                           {Dtype::i64_i32, kLong, kInt},
                                           {Dtype::f64_i64, "d", kLong},
                                           {Dtype::i64_i64, kLong, kLong}}};
  *dtype = Dtype::opaque;
  if (!is_record || kinds.size() < 3 || kinds[2] == '{') return true;
  const bool has_two_fields = kinds.find_first_not_of("x0123456789}", 2) == std::string::npos;
  for (const Pair& pair : kPairs) {
    const bool is_it = has_two_fields && pair.values.find(kinds[0]) != std::string_view::npos &&
                       pair.indices.find(kinds[1]) != std::string_view::npos;
    if (is_it && element_bytes(pair.dtype) == bytes) *dtype = pair.dtype;
  }
  return true;
}

bool dtype_of_tensor(dlpack::DataType type, Dtype* dtype) {
  if (type.lanes != 1) return false;
  switch (type.code) {
    case dlpack::Code::integer:
    case dlpack::Code::unsigned_integer:
      *dtype = integer(type.bits / 8U, type.code == dlpack::Code::integer);
      break;
    case dlpack::Code::floating:
      *dtype = type.bits == 16 ? Dtype::f16 : type.bits == 32 ? Dtype::f32 : Dtype::f64;
      break;
    case dlpack::Code::complex:
      *dtype = type.bits == 64 ? Dtype::c64 : Dtype::c128;
      break;
    case dlpack::Code::bfloat:
      *dtype = Dtype::bf16;
      break;
    case dlpack::Code::boolean:
      *dtype = Dtype::boolean;
      break;
    case dlpack::Code::float8_e4m3fn:
      *dtype = Dtype::f8e4m3;
      break;
    case dlpack::Code::float8_e5m2:
      *dtype = Dtype::f8e5m2;
      break;
    default:
      return false;
  }
  return element_bytes(*dtype) * 8 == type.bits;
}

bool dtype_of_type_string(std::string_view text, Dtype* dtype) {
  // Byte order ('|': of one byte), kind, bytes.
  if (text.size() != 3 || (text[0] != '<' && text[0] != '|')) return false;
  constexpr std::string_view kKinds = "iufb";
  constexpr dlpack::Code kCodes[] = {dlpack::Code::integer, dlpack::Code::unsigned_integer,
                                     dlpack::Code::floating, dlpack::Code::boolean};
  const std::size_t kind = kKinds.find(text[1]);
  if (kind == std::string_view::npos || text[2] < '1' || text[2] > '8') return false;
  return dtype_of_tensor({kCodes[kind], static_cast<std::uint8_t>(8 * (text[2] - '0')), 1}, dtype);
}

}  // namespace tutti::python
