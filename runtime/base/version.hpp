// Version and build of this library. Knows nothing else.
#pragma once

#include <string_view>

namespace tutti {

std::string_view version_text();  // "0.1.0"
std::string_view build_id();      // the commit it was built from; all ranks of a job must have the same
// Identifies builds whose C++ objects may pass between two files of one process: commit, compiler and kind of
// build. Ends in a zero.
std::string_view binary_id();

}  // namespace tutti
