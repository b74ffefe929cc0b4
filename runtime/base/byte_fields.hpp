// Values as bytes: a sequential writer and reader, and structures with one list of fields for both directions.
// Knows no message. Native byte order: all nodes of a job have one build, and another byte order makes the
// version of the first control frame unknown.
//
// A structure names its fields once:
//   static auto fields(auto& self) { return std::tie(self.rank, self.text); }
// and may have `bool is_valid() const`. A std::vector takes the rest of the bytes, so it comes last.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "runtime/base/status.hpp"

namespace tutti {

template <class T>
concept HasFields = requires(T& value) {
  T::fields(value);
};

namespace detail {
template <class T>
inline constexpr bool kIsVector = false;
template <class T>
inline constexpr bool kIsVector<std::vector<T>> = true;
template <class T>
inline constexpr bool kIsPair = false;
template <class First, class Second>
inline constexpr bool kIsPair<std::pair<First, Second>> = true;
}  // namespace detail

class ByteWriter {
 public:
  template <class T>
  void put(const T& value) {
    if constexpr (HasFields<const T>) {
      std::apply([this](const auto&... field) { (this->put(field), ...); }, T::fields(value));
    } else if constexpr (detail::kIsPair<T>) {
      put(value.first);
      put(value.second);
    } else if constexpr (detail::kIsVector<T>) {
      for (const auto& element : value) put(element);
    } else if constexpr (std::is_same_v<T, std::string>) {
      put_text(value);
    } else {
      static_assert(std::is_trivially_copyable_v<T>);
      bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    }
  }
  // With its length in front.
  void put_text(std::string_view text) {
    put(static_cast<std::uint32_t>(text.size()));
    bytes_ += text;
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : bytes_(bytes) {}
  // False if the bytes do not hold such a value; `value` may then be changed in part.
  template <class T>
  bool get(T& value) {
    if constexpr (HasFields<T>) {
      return std::apply([this](auto&... field) { return (this->get(field) && ...); }, T::fields(value));
    } else if constexpr (detail::kIsPair<T>) {
      return get(value.first) && get(value.second);
    } else if constexpr (detail::kIsVector<T>) {
      value.clear();  // an element takes a byte at least, so their number is bounded by the bytes
      while (!is_at_end()) {
        if (!get(value.emplace_back())) return false;
      }
      return true;
    } else if constexpr (std::is_same_v<T, std::string>) {
      return get_text(value);
    } else if constexpr (std::is_same_v<T, bool>) {
      std::uint8_t number = 0;
      if (!get(number) || number > 1) return false;
      value = number == 1;
      return true;
    } else if constexpr (std::is_same_v<T, StatusCode>) {
      std::underlying_type_t<StatusCode> number = 0;
      if (!get(number) || number > static_cast<decltype(number)>(StatusCode::internal)) return false;
      value = static_cast<StatusCode>(number);
      return true;
    } else {
      static_assert(std::is_trivially_copyable_v<T>);
      if (bytes_.size() < sizeof value) return false;
      bytes_.copy(reinterpret_cast<char*>(&value), sizeof value);
      bytes_.remove_prefix(sizeof value);
      return true;
    }
  }
  bool get_text(std::string& text) {
    std::uint32_t text_bytes = 0;
    if (!get(text_bytes) || text_bytes > bytes_.size()) return false;
    text.assign(bytes_.substr(0, text_bytes));
    bytes_.remove_prefix(text_bytes);
    return true;
  }
  std::size_t left_bytes() const { return bytes_.size(); }
  bool is_at_end() const { return bytes_.empty(); }

 private:
  std::string_view bytes_;
};

template <HasFields T>
std::string encode(const T& value) {
  ByteWriter writer;
  writer.put(value);
  return writer.take();
}

// Accepts exactly the bytes that encode() wrote; false for others (too short, too long, wrong lengths).
template <HasFields T>
bool decode(std::string_view bytes, T& value) {
  ByteReader reader(bytes);
  if (!reader.get(value) || !reader.is_at_end()) return false;
  if constexpr (requires { value.is_valid(); }) return value.is_valid();
  return true;
}

}  // namespace tutti
