// Text from JSON values and back. See json.hpp.
#include "tools/cli/json.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

namespace tutti::tool {

Json::Json(std::initializer_list<Member> members) : kind_(Kind::object) {
  for (const Member& member : members) (*this)[member.key] = member.value;
}

double Json::number() const {
  if (kind_ == Kind::real) return real_;
  if (kind_ == Kind::negative) return static_cast<double>(static_cast<std::int64_t>(integer_));
  return static_cast<double>(natural());
}

void Json::push_back(Json value) {
  if (is_null()) kind_ = Kind::array;
  TUTTI_ASSERT(is_array(), "only arrays have elements");
  items_.push_back(std::move(value));
}

const Json* Json::find(std::string_view key) const {
  const auto found = std::lower_bound(keys_.begin(), keys_.end(), key);
  return found == keys_.end() || *found != key ? nullptr
                                               : &items_[static_cast<std::size_t>(found - keys_.begin())];
}

const Json& Json::operator[](std::string_view key) const {
  static const Json kNull;
  const Json* const found = find(key);
  return found == nullptr ? kNull : *found;
}

Json& Json::operator[](std::string_view key) {
  if (is_null()) kind_ = Kind::object;
  TUTTI_ASSERT(is_object(), "only objects have members");
  const auto at = std::lower_bound(keys_.begin(), keys_.end(), key);
  const auto item = items_.begin() + (at - keys_.begin());
  if (at != keys_.end() && *at == key) return *item;
  keys_.emplace(at, key);
  return *items_.emplace(item);
}

// Makes a value of the library.
class JsonWriter {
 public:
  static nlohmann::json made_from(const Json& value) {
    switch (value.kind_) {
      case Json::Kind::null:
        return nullptr;
      case Json::Kind::boolean:
        return value.boolean();
      case Json::Kind::natural:
        return value.integer_;
      case Json::Kind::negative:
        return static_cast<std::int64_t>(value.integer_);
      case Json::Kind::real:
        return value.real_;
      case Json::Kind::text:
        return value.text_;
      case Json::Kind::array: {
        nlohmann::json list = nlohmann::json::array();
        for (const Json& item : value.items_) list.push_back(made_from(item));
        return list;
      }
      case Json::Kind::object:
        break;
    }
    nlohmann::json object = nlohmann::json::object();
    for (std::size_t i = 0; i < value.items_.size(); ++i) object[value.keys_[i]] = made_from(value.items_[i]);
    return object;
  }
};

std::string Json::dump(int indent) const {
  return JsonWriter::made_from(*this).dump(indent, ' ', false, nlohmann::json::error_handler_t::replace);
}

// Takes the events of the library's parser.
class JsonReader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  Json& value() { return value_; }
  // From 1; of the last byte that was read.
  std::size_t error_byte() const { return error_byte_; }
  bool is_too_deep() const { return is_too_deep_; }

  bool null() override { return add({}); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t& /*text*/) override { return add(value); }
  bool string(string_t& value) override { return add(value); }
  bool binary(binary_t& /*value*/) override { return false; }
  bool start_object(std::size_t /*count*/) override { return open(Json::object()); }
  bool key(string_t& value) override {
    key_ = value;
    return true;
  }
  bool end_object() override { return close(); }
  bool start_array(std::size_t /*count*/) override { return open(Json::array()); }
  bool end_array() override { return close(); }
  bool parse_error(std::size_t position, const std::string& /*token*/,
                   const nlohmann::detail::exception& /*why*/) override {
    error_byte_ = position;
    return false;
  }

 private:
  // Deeper ones would overflow the stack of who walks them.
  static constexpr std::size_t kMostOpen = 100;

  Json& place() {
    if (open_.empty()) return value_;
    Json& around = *open_.back();
    if (around.is_object()) return around[key_];
    around.push_back({});
    return around.back();
  }
  bool add(Json value) {
    place() = std::move(value);
    return true;
  }
  bool open(Json value) {
    is_too_deep_ = open_.size() == kMostOpen;
    if (is_too_deep_) return false;
    Json& made = place();
    made = std::move(value);
    open_.push_back(&made);  // stays where it is: nothing is added beside it before it is closed
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  Json value_;
  std::vector<Json*> open_;
  std::string key_;
  std::size_t error_byte_ = 0;
  bool is_too_deep_ = false;
};

Result<Json> parse_json(std::string_view text) {
  JsonReader reader;
  if (nlohmann::json::sax_parse(text.begin(), text.end(), &reader)) return std::move(reader.value());
  if (reader.is_too_deep()) return invalid_argument("this JSON is nested deeper than 100 levels");
  const std::size_t error_byte = reader.error_byte();
  const std::string_view before = text.substr(0, std::min(text.size(), error_byte == 0 ? 0 : error_byte - 1));
  const std::size_t newline = before.rfind('\n');
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const std::size_t column = 1 + (newline == before.npos ? before.size() : before.size() - newline - 1);
  return invalid_argument(fmt::format(
      "line {} column {}: this is no JSON, which has no comments and no comma before ] or }}", line, column));
}

Json json_of(std::string_view text) {
  Result<Json> parsed = parse_json(text);
  return parsed ? *std::move(parsed) : Json();
}

}  // namespace tutti::tool
