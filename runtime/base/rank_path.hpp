// Paths of files that each rank has one of. Knows no file.
#pragma once

#include <string>

namespace tutti {

// `path` with the rank instead of %r; without %r and with several ranks, the rank stands before its extension.
std::string path_of_rank(std::string path, int rank, int size);
// For what is made from the files of all ranks: "all" instead of %r, or the path itself.
std::string path_of_all_ranks(std::string path);

}  // namespace tutti
