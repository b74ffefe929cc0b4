// Finds the folders of modules by the file that this code was linked into.
#include "runtime/base/module_folders.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>

#include <algorithm>
#include <cstdlib>

#include "tutti_config.hpp"

namespace tutti {
namespace {

std::string real_path(const std::string& path) {
  char* found = ::realpath(path.c_str(), nullptr);
  std::string text = found == nullptr ? "" : found;
  std::free(found);
  return text;
}

// The library or program that this function was linked into; empty if that cannot be found out.
std::string own_file() {
  Dl_info info{};
  link_map* map = nullptr;
  const int found =
      ::dladdr1(reinterpret_cast<void*>(&own_file), &info, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP);
  // A program has no name there, and its first argument may be anything.
  if (found != 0 && map != nullptr && map->l_name != nullptr && *map->l_name != '\0') {
    return real_path(map->l_name);
  }
  return real_path("/proc/self/exe");
}

}  // namespace

std::vector<std::string> module_folders(std::string_view path) {
  std::vector<std::string> folders;
  if (!path.empty()) {
    for (std::size_t begin = 0; begin <= path.size();) {
      const std::size_t end = std::min(path.find(':', begin), path.size());
      if (end > begin) folders.emplace_back(path.substr(begin, end - begin));
      begin = end + 1;
    }
    return folders;
  }
  const std::string file = own_file();
  const std::size_t slash = file.rfind('/');
  if (slash == std::string::npos) return folders;
  const std::string folder = file.substr(0, slash);
  folders.push_back(folder);
  if (file.starts_with(TUTTI_BUILD_FOLDER "/")) folders.emplace_back(TUTTI_BUILD_FOLDER);
  // Of the program in a Python package, whose modules lie in the package's own folder.
  constexpr std::string_view kPackageBin = "/tutti/bin";
  if (folder.ends_with(kPackageBin)) folders.push_back(folder.substr(0, folder.size() - 4));
  folders.push_back(fmt::format("{}/tutti", folder));                      // of the installed library
  folders.push_back(fmt::format("{}/../{}/tutti", folder, TUTTI_LIBDIR));  // of an installed program
  return folders;
}

}  // namespace tutti
