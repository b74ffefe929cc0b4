// Where the tool finds itself and the files that belong to it. Knows no content.
#pragma once

#include <string>

#include "runtime/base/status.hpp"

namespace tutti::tool {

// The path of this program; with the last component cut off in own_folder().
std::string own_path();
std::string own_folder();

// A file that is built or installed with the tool: first relative to the tool's folder in the build tree,
// then in the data folder of an installation (<prefix>/share/tutti). Errors: invalid_argument, with the
// searched places.
Result<std::string> find_data_file(const std::string& in_build, const std::string& in_data);

}  // namespace tutti::tool
