// Fuzz target: any bytes are refused as a record of a rank, or give one about which tools can talk. The bytes are
// pairs of an offset and a word that is stored there, in a record whose head is sound.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "runtime/record/last_calls.hpp"
#include "runtime/record/layout.hpp"
#include "runtime/record/reading.hpp"
#include "runtime/record/statistics.hpp"
#include "tools/cli/record/activity.hpp"
#include "tools/cli/record/verdict.hpp"

namespace {

using namespace tutti::record;

void put(std::vector<std::byte>& bytes, std::size_t offset, std::uint64_t word) {
  if (offset + sizeof word <= bytes.size()) std::memcpy(bytes.data() + offset, &word, sizeof word);
}

std::vector<std::byte> sound_record(std::uint64_t rank) {
  std::vector<std::byte> bytes(sizeof(FileHead) + sizeof(GroupSection));
  put(bytes, offsetof(FileHead, magic), kMagic);
  put(bytes, offsetof(FileHead, version), kVersion);
  put(bytes, offsetof(FileHead, section_bytes), sizeof(GroupSection));
  put(bytes, offsetof(FileHead, rank), rank);
  put(bytes, offsetof(FileHead, size), 2);
  const std::size_t group = sizeof(FileHead);
  put(bytes, group + offsetof(GroupSection::Head, state), 1);
  put(bytes, group + offsetof(GroupSection::Head, rank), rank);
  put(bytes, group + offsetof(GroupSection::Head, size), 2);
  for (std::uint64_t sequence = 1; sequence < 4; ++sequence) {
    const std::size_t entry = group + offsetof(GroupSection, operations) + sequence * sizeof(Entry);
    put(bytes, entry + offsetof(CallPart, sequence), sequence);
    put(bytes, entry + offsetof(CallPart, end), sequence);
  }
  return bytes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static_cast<void>(parse_record({reinterpret_cast<const std::byte*>(data), size}));
  std::vector<std::byte> records[2] = {sound_record(0), sound_record(1)};
  constexpr std::size_t kEdit = 3 + 8;
  for (; size >= kEdit; data += kEdit, size -= kEdit) {
    std::uint64_t word = 0;
    std::memcpy(&word, data + 3, sizeof word);
    const std::size_t offset = (data[0] | std::size_t{data[1]} << 8U | std::size_t{data[2] & 0x7FU} << 16U);
    put(records[data[2] >> 7U], offset, word);
  }
  std::vector<RecordedRank> ranks;
  for (const std::vector<std::byte>& bytes : records) {
    for (const LastCall& call :
         find_last_calls({reinterpret_cast<const Word*>(bytes.data()), bytes.size() / 8})) {
      if (call.sequence == 0) std::abort();
    }
    if (auto rank = parse_record(bytes)) ranks.push_back(*std::move(rank));
  }
  if (ranks.empty()) return 0;
  const auto job = tutti::tool::choose_world(std::move(ranks), "");
  if (!job || tutti::tool::judge(*job).sentence.empty()) std::abort();
  tutti::tool::Reading before, after;
  before.job = after.job = *job;
  after.at = 1000000000;
  for (const auto& activity : tutti::tool::activity_of(before, after)) {
    if (tutti::tool::to_json(activity).dump().empty()) std::abort();
  }
  if (describe_statistics(job->ranks).empty() || prometheus_text(job->ranks).empty()) std::abort();
  return 0;
}
