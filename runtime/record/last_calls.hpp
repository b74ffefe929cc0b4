// The last completed collective of each group of a rank, found without reading its whole record. The bytes may be
// anybody's. Knows no collective but as numbers.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/status.hpp"
#include "runtime/record/layout.hpp"

namespace tutti::record {

struct LastCall {
  std::uint64_t context = 0;
  std::uint64_t sequence = 0, kind = 0, count = 0;  // as those of RecordedCall
};

// Of each open group that has one, while the rank may be writing. `words`: of a record. Reads some 12 lines of each.
std::vector<LastCall> find_last_calls(std::span<const Word> words);
// Of a file. Errors: invalid_argument with the path: it cannot be read, or is no record.
Result<std::vector<LastCall>> read_last_calls(const std::string& path);

}  // namespace tutti::record
