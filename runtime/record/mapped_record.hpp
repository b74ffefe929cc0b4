// A record file in memory of a reader, while its rank may be writing. Stops no one. Knows no content.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "runtime/base/status.hpp"
#include "runtime/record/folder.hpp"
#include "runtime/record/layout.hpp"

namespace tutti::record {

class MappedRecord {
 public:
  // Errors: invalid_argument: it is too short for a head, or cannot be mapped.
  static Result<MappedRecord> open(const OpenFile& file);
  // A head at least.
  std::span<const Word> words() const { return {words_.get(), words_.get_deleter().count}; }

 private:
  struct Unmap {
    std::size_t count = 0;
    void operator()(const Word* words) const;
  };
  explicit MappedRecord(std::span<const Word> words) : words_(words.data(), Unmap{words.size()}) {}
  std::unique_ptr<const Word, Unmap> words_;
};

// In ascending order, as the seals of parts need it.
void copy_words(std::span<const Word> words, std::byte* to);

}  // namespace tutti::record
