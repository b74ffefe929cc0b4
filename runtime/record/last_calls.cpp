// See last_calls.hpp.
#include "runtime/record/last_calls.hpp"

#include <numeric>

#include "runtime/record/mapped_record.hpp"

namespace tutti::record {
namespace {

std::uint64_t word_at(std::span<const Word> words, std::size_t offset) {
  return words[offset / sizeof(Word)].load(std::memory_order_acquire);
}

// The group's operation at a place. Sequence 0: none, or it is being written, or it is not complete.
LastCall read_complete(std::span<const Word> section, std::uint64_t context, std::uint32_t place) {
  const std::size_t at = offsetof(GroupSection, operations) + place * sizeof(Entry) + offsetof(Entry, call);
  const auto word = [&](std::size_t offset) { return word_at(section, at + offset); };
  LastCall call{context, word(offsetof(CallPart, sequence)), word(offsetof(CallPart, kind)),
                word(offsetof(CallPart, count))};
  const bool is_complete = State::of(word(offsetof(CallPart, state))).phase == Phase::complete;
  const bool is_whole = word(offsetof(CallPart, end)) == call.sequence;
  if (!is_complete || !is_whole || call.sequence % kOperations != place) call.sequence = 0;
  return call;
}

// Operations fill the places in turn, so the newest one is the last that goes on from the number at place 0.
LastCall find_last_call(std::span<const Word> section, std::uint64_t context) {
  const auto sequence_at = [&](std::uint32_t place) {
    return word_at(section, offsetof(GroupSection, operations) + place * sizeof(Entry) +
                                offsetof(Entry, call) + offsetof(CallPart, sequence));
  };
  const std::uint64_t first = sequence_at(0);
  std::uint32_t newest = 0;
  for (std::uint32_t end = kOperations; end - newest > 1;) {
    const std::uint32_t place = std::midpoint(newest, end);
    (sequence_at(place) >= first + place ? newest : end) = place;
  }
  for (std::uint32_t i = 0; i < kOperations; ++i) {
    const LastCall call = read_complete(section, context, (newest + kOperations - i) % kOperations);
    if (call.sequence != 0) return call;
  }
  return {};
}

}  // namespace

std::vector<LastCall> find_last_calls(std::span<const Word> words) {
  using Head = GroupSection::Head;
  constexpr std::size_t kSection = sizeof(GroupSection) / sizeof(Word);
  std::vector<LastCall> calls;
  for (std::size_t at = sizeof(FileHead) / sizeof(Word); at + kSection <= words.size(); at += kSection) {
    const std::span<const Word> section = words.subspan(at, kSection);
    const std::uint64_t context = word_at(section, offsetof(Head, context));
    // Another group may take the section meanwhile.
    const auto is_open = [&] {
      return word_at(section, offsetof(Head, state)) == static_cast<std::uint64_t>(GroupState::open) &&
             word_at(section, offsetof(Head, context)) == context;
    };
    if (!is_open()) continue;
    const LastCall call = find_last_call(section, context);
    if (call.sequence != 0 && is_open()) calls.push_back(call);
  }
  return calls;
}

Result<std::vector<LastCall>> read_last_calls(const std::string& path) {
  const auto file = OpenFile::open(path);
  if (!file) return file.status();
  const auto record = MappedRecord::open(*file);
  if (!record) return record.status().with_context(path);
  const std::span<const Word> words = record->words();
  if (word_at(words, offsetof(FileHead, magic)) != kMagic ||
      word_at(words, offsetof(FileHead, version)) != kVersion ||
      word_at(words, offsetof(FileHead, section_bytes)) != sizeof(GroupSection))
    return invalid_argument("it is no record of this build").with_context(path);
  return find_last_calls(words);
}

}  // namespace tutti::record
