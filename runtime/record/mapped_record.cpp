// See mapped_record.hpp.
#include "runtime/record/mapped_record.hpp"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace tutti::record {

Result<MappedRecord> MappedRecord::open(const OpenFile& file) {
  struct stat status {};
  if (::fstat(file.fd(), &status) != 0) return invalid_argument(std::strerror(errno));
  constexpr std::size_t kMostBytes = sizeof(FileHead) + kMostGroups * sizeof(GroupSection);
  const std::size_t count = std::min(static_cast<std::size_t>(status.st_size), kMostBytes) / sizeof(Word);
  if (count < sizeof(FileHead) / sizeof(Word))
    return invalid_argument("it is too short for a record of a rank");
  void* const at = ::mmap(nullptr, count * sizeof(Word), PROT_READ, MAP_SHARED, file.fd(), 0);
  if (at == MAP_FAILED) return invalid_argument(fmt::format("it cannot be mapped: {}", std::strerror(errno)));
  return MappedRecord({static_cast<const Word*>(at), count});
}

void MappedRecord::Unmap::operator()(const Word* words) const {
  ::munmap(const_cast<Word*>(words), count * sizeof(Word));
}

void copy_words(std::span<const Word> words, std::byte* to) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::uint64_t word = words[i].load(std::memory_order_acquire);
    std::memcpy(to + i * sizeof(Word), &word, sizeof word);
  }
}

}  // namespace tutti::record
