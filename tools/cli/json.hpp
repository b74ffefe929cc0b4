// JSON values: made to be printed, or read from text. Hides the library of json.cpp, whose header costs each
// source that includes it two seconds.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "runtime/base/status.hpp"

namespace tutti::tool {

// Reading is lenient: a missing member is null, and a value of another kind reads as "", 0 or false.
class Json {
 public:
  struct Member;

  Json() = default;  // null
  Json(std::nullptr_t) {}
  template <class T>
  requires std::is_arithmetic_v<T> Json(T number) {
    if constexpr (std::same_as<T, bool>) {
      kind_ = Kind::boolean;
      integer_ = number ? 1 : 0;
    } else if constexpr (std::floating_point<T>) {
      kind_ = Kind::real;
      real_ = number;
    } else {
      kind_ = number < 0 ? Kind::negative : Kind::natural;
      integer_ = static_cast<std::uint64_t>(number);
    }
  }
  template <std::convertible_to<std::string_view> T>
  Json(const T& text) : kind_(Kind::text), text_(std::string_view(text)) {}
  template <class T>
  Json(const std::vector<T>& list) : kind_(Kind::array), items_(list.begin(), list.end()) {}
  Json(std::initializer_list<Member> members);  // an object
  static Json array() { return Json(Kind::array); }
  static Json object() { return Json(Kind::object); }

  bool is_null() const { return kind_ == Kind::null; }
  bool is_natural() const { return kind_ == Kind::natural; }  // an integer of at least 0
  bool is_text() const { return kind_ == Kind::text; }
  bool is_array() const { return kind_ == Kind::array; }
  bool is_object() const { return kind_ == Kind::object; }
  bool boolean() const { return kind_ == Kind::boolean && integer_ != 0; }
  std::uint64_t natural() const { return kind_ == Kind::natural ? integer_ : 0; }
  double number() const;
  const std::string& text() const { return text_; }

  // Elements of an array, or values of an object in the order of its keys.
  std::size_t size() const { return items_.size(); }
  bool empty() const { return items_.empty(); }
  std::vector<Json>::const_iterator begin() const { return items_.begin(); }
  std::vector<Json>::const_iterator end() const { return items_.end(); }
  const Json& at(std::size_t index) const { return items_[index]; }
  Json& back() { return items_.back(); }
  void push_back(Json value);  // null becomes an array

  const std::string& key(std::size_t index) const { return keys_[index]; }
  const Json* find(std::string_view key) const;  // null: there is no such member
  bool contains(std::string_view key) const { return find(key) != nullptr; }
  const Json& operator[](std::string_view key) const;
  Json& operator[](std::string_view key);  // adds a member; null becomes an object

  // On one line, or indented by so many blanks a level. Bytes that are no UTF-8 are replaced.
  std::string dump(int indent = -1) const;

 private:
  enum class Kind : std::uint8_t { null, boolean, natural, negative, real, text, array, object };
  friend class JsonReader;
  friend class JsonWriter;
  explicit Json(Kind kind) : kind_(kind) {}

  Kind kind_ = Kind::null;
  std::uint64_t integer_ = 0;  // two's complement if negative
  double real_ = 0;
  std::string text_;
  std::vector<Json> items_;
  std::vector<std::string> keys_;  // of an object's items, sorted
};

struct Json::Member {
  std::string key;
  Json value;
};

// Errors: invalid_argument, "line 3 column 7: ...", also for values nested deeper than 100.
Result<Json> parse_json(std::string_view text);
// Of text that this program has written: null if it is none.
Json json_of(std::string_view text);

}  // namespace tutti::tool
