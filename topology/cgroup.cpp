// Reads cpu.max (version 2) and cpu.cfs_quota_us (version 1) up to the root of the hierarchy.
// Knows no topology.
#include "topology/cgroup.hpp"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string_view>

namespace tutti {
namespace {

// Quota and period in microseconds; 0 where there is no limit ("max" and -1 are not numbers above 0).
std::uint32_t milli_of(std::istream& quota_file, std::istream& period_file) {
  constexpr std::int64_t kMost = 1000000000;  // of both: so that nothing overflows
  std::int64_t quota = 0, period = 0;
  if (!(quota_file >> quota) || !(period_file >> period) || quota <= 0 || period <= 0 || period > kMost)
    return 0;
  if (quota / period >= kMost / 1000) return kMost;
  return static_cast<std::uint32_t>(std::max<std::int64_t>(1, quota * 1000 / period));
}

std::uint32_t quota_in(const std::string& folder, bool is_version_2) {
  if (is_version_2) {
    std::ifstream file(folder + "/cpu.max");
    return milli_of(file, file);
  }
  std::ifstream quota(folder + "/cpu.cfs_quota_us"), period(folder + "/cpu.cfs_period_us");
  return milli_of(quota, period);
}

// Limits of all levels hold. In a container the path may be that of the host, whose upper part is not there;
// the root of what is mounted is then the container's own cgroup.
std::uint32_t tightest(const std::string& mount, std::string path, bool is_version_2) {
  std::uint32_t least = 0;
  for (;;) {
    const std::uint32_t here = quota_in(mount + path, is_version_2);
    if (here > 0 && (least == 0 || here < least)) least = here;
    if (path.empty()) return least;
    path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
  }
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

std::uint32_t cpu_quota_milli(const std::string& root) {
  std::ifstream file(root + "/proc/self/cgroup");
  std::uint32_t least = 0;
  for (std::string line; std::getline(file, line);) {
    // hierarchy:controllers:path
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    std::string path = line.substr(second + 1);
    if (path == "/") path.clear();
    std::uint32_t found = 0;
    if (controllers.empty()) {
      found = tightest(root + "/sys/fs/cgroup", path, true);
    } else if (has_word(controllers, "cpu")) {
      // Mounted under the name of the controllers, to which "cpu" is a link.
      found = tightest(root + "/sys/fs/cgroup/cpu", path, false);
    }
    if (found > 0 && (least == 0 || found < least)) least = found;
  }
  return least;
}

}  // namespace tutti
