// Folders of the shared libraries that are loaded only when needed. Knows no module.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tutti {

// The folders to search for modules, in order. A `path` that is not empty replaces all others: folders
// separated by colons. Otherwise: the folder of the library or program that holds this function; the build
// folder, if that file is in it; the install folder, relative to that file: an installation may be moved.
std::vector<std::string> module_folders(std::string_view path);

}  // namespace tutti
