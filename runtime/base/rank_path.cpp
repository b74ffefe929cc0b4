// The rank in a path.
#include "runtime/base/rank_path.hpp"

namespace tutti {

std::string path_of_rank(std::string path, int rank, int size) {
  const std::string number = std::to_string(rank);
  if (path.find("%r") != std::string::npos) {
    for (std::size_t at = path.find("%r"); at != std::string::npos; at = path.find("%r", at + number.size()))
      path.replace(at, 2, number);
    return path;
  }
  if (size == 1) return path;
  const std::size_t name = path.rfind('/') == std::string::npos ? 0 : path.rfind('/') + 1;
  const std::size_t dot = path.rfind('.');
  return path.insert(dot == std::string::npos || dot <= name ? path.size() : dot, "." + number);
}

}  // namespace tutti
