// Record files in a folder: their names, and whether their rank still runs. Knows no content.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tutti::record {

inline constexpr std::string_view kFileEnding = ".record";

// The paths of all record files of a folder, sorted; none if it cannot be read.
std::vector<std::string> list_files(const std::string& folder);
// Does the process that writes the file still run? False if the file is not there.
bool is_owner_alive(const std::string& path);

}  // namespace tutti::record
