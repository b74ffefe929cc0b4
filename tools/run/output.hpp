// Turns the byte streams of ranks into whole lines with a prefix.
// Knows no process and no file descriptor but the one it writes to.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tutti {

// Collects one stream and emits it line by line, so that lines of different ranks never mix.
class LinePrefixer {
 public:
  // A longer line is emitted in pieces: memory stays bounded whatever a rank prints.
  static constexpr std::size_t kMaxLineBytes = std::size_t{1} << 20U;

  explicit LinePrefixer(std::string prefix) : prefix_(std::move(prefix)) {}

  // Appends every line completed by `bytes`, with prefix and newline, to `out`.
  void feed(std::string_view bytes, std::string& out);
  // Appends what is left of an unfinished last line, ended by a newline.
  void finish(std::string& out);

 private:
  void emit(std::string_view line_end, std::string& out);

  std::string prefix_;
  std::string partial_;
};

// Writes everything, retrying after signals. False when the reader is gone (EPIPE) or the device fails.
bool write_all(int fd, std::string_view bytes);

}  // namespace tutti
