// Reads cpu.max and memory.max (version 2), cpu.cfs_quota_us and memory.limit_in_bytes (version 1) up to the
// root of the hierarchy.
// Knows no topology.
#include "topology/cgroup.hpp"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/ascii.hpp"

namespace tutti {
namespace {

// The words of a file; none where it cannot be read. Streams would read numbers by the program's locale.
std::vector<std::string> words_of(const std::string& path) {
  std::ifstream file(path);
  std::string text;
  std::getline(file, text, '\0');  // the whole file; an error of the system ends it
  std::vector<std::string> words;
  for (std::size_t at = 0; (at = text.find_first_not_of(" \n", at)) != std::string::npos;) {
    const std::size_t end = std::min(text.find_first_of(" \n", at), text.size());
    words.push_back(text.substr(at, end - at));
    at = end;
  }
  return words;
}

// 0 where there is no limit ("max" and -1 are not numbers above 0), or none known.
std::int64_t limit_in(const std::vector<std::string>& words, std::size_t index) {
  if (index >= words.size()) return 0;
  return std::max<std::int64_t>(0, parse_number<std::int64_t>(words[index]).value_or(0));
}

// Quota and period in microseconds.
std::uint32_t milli_of(std::int64_t quota, std::int64_t period) {
  constexpr std::int64_t kMost = 1000000000;  // of both: so that nothing overflows
  if (quota <= 0 || period <= 0 || period > kMost) return 0;
  if (quota / period >= kMost / 1000) return kMost;
  return static_cast<std::uint32_t>(std::max<std::int64_t>(1, quota * 1000 / period));
}

std::uint32_t quota_in(const std::string& folder, bool is_version_2) {
  if (is_version_2) {
    const std::vector<std::string> words = words_of(folder + "/cpu.max");
    return milli_of(limit_in(words, 0), limit_in(words, 1));
  }
  return milli_of(limit_in(words_of(folder + "/cpu.cfs_quota_us"), 0),
                  limit_in(words_of(folder + "/cpu.cfs_period_us"), 0));
}

std::uint64_t memory_in(const std::string& folder, bool is_version_2) {
  constexpr std::int64_t kUnlimited = std::int64_t{1} << 60;  // version 1 says so by the largest page number
  const std::int64_t bytes =
      limit_in(words_of(folder + (is_version_2 ? "/memory.max" : "/memory.limit_in_bytes")), 0);
  return bytes < kUnlimited ? static_cast<std::uint64_t>(bytes) : 0;
}

template <class T>
void tighten(T* limit, T other) {
  if (other > 0 && (*limit == 0 || other < *limit)) *limit = other;
}

// Limits of all levels hold. In a container the path may be that of the host, whose upper part does not exist
// here; the root of the mount is then the container's own cgroup.
template <class Read>
auto tightest(const std::string& mount, std::string path, bool is_version_2, Read read_in) {
  auto least = read_in(mount, is_version_2);
  for (; !path.empty(); path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/')))
    tighten(&least, read_in(mount + path, is_version_2));
  return least;
}

bool has_word(std::string_view list, std::string_view word) {
  for (;;) {
    const std::size_t comma = list.find(',');
    if (list.substr(0, comma) == word) return true;
    if (comma == std::string_view::npos) return false;
    list.remove_prefix(comma + 1);
  }
}

}  // namespace

CgroupLimits cgroup_limits(const std::string& root) {
  std::ifstream file(root + "/proc/self/cgroup");
  const std::string mount = root + "/sys/fs/cgroup";
  CgroupLimits limits;
  for (std::string line; std::getline(file, line);) {
    // hierarchy:controllers:path
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    std::string path = line.substr(second + 1);
    if (path == "/") path.clear();
    // Version 1 is mounted under the names of the controllers, to which each single name is a link.
    const bool is_version_2 = controllers.empty();
    if (is_version_2 || has_word(controllers, "cpu"))
      tighten(&limits.cpu_quota_milli,
              tightest(mount + (is_version_2 ? "" : "/cpu"), path, is_version_2, quota_in));
    if (is_version_2 || has_word(controllers, "memory"))
      tighten(&limits.memory_bytes,
              tightest(mount + (is_version_2 ? "" : "/memory"), path, is_version_2, memory_in));
  }
  return limits;
}

}  // namespace tutti
