// Writes and reads the bytes of messages between ranks: integers in native order and texts with their length.
// Knows no message.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace tutti {

// Sequential writer and reader of integers and of strings with their length in front. Native byte order: all
// nodes of a job have one build, and another order makes the version of the first frame unknown.
class ByteWriter {
 public:
  template <class T>
  void put(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
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
  template <class T>
  bool get(T& value) {
    if (bytes_.size() < sizeof value) return false;
    bytes_.copy(reinterpret_cast<char*>(&value), sizeof value);
    bytes_.remove_prefix(sizeof value);
    return true;
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

}  // namespace tutti
