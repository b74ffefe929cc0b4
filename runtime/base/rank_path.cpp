// The rank in a path.
#include "runtime/base/rank_path.hpp"

#include <string_view>
#include <utility>

namespace tutti {
namespace {

std::string with_word(std::string path, std::string_view word) {
  for (std::size_t at = path.find("%r"); at != std::string::npos; at = path.find("%r", at + word.size()))
    path.replace(at, 2, word);
  return path;
}

}  // namespace

std::string path_of_rank(std::string path, int rank, int size) {
  const std::string number = std::to_string(rank);
  if (path.find("%r") != std::string::npos) return with_word(std::move(path), number);
  if (size == 1) return path;
  const std::size_t name = path.rfind('/') == std::string::npos ? 0 : path.rfind('/') + 1;
  const std::size_t dot = path.rfind('.');
  return path.insert(dot == std::string::npos || dot <= name ? path.size() : dot, "." + number);
}

std::string path_of_all_ranks(std::string path) { return with_word(std::move(path), "all"); }

}  // namespace tutti
