// Paths of files that each rank has one of. Knows no file.
#pragma once

#include <string>

namespace tutti {

// `path` with the rank instead of %r; without %r and with several ranks, the rank stands before its extension.
std::string path_of_rank(std::string path, int rank, int size);

}  // namespace tutti
