// See reading.hpp.
#include "runtime/record/reading.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>

#include "runtime/record/folder.hpp"
#include "runtime/record/mapped_record.hpp"

namespace tutti::record {
namespace {

constexpr std::uint64_t kMostRanks = std::uint64_t{1} << 24U;
// 36 years: sums and differences of a few times fit into 64 bits.
constexpr std::uint64_t kMostNanoseconds = std::uint64_t{1} << 60U;

// The fields of a structure of layout.hpp that lies somewhere in bytes, by their offsets.
class Fields {
 public:
  explicit Fields(const std::byte* bytes) : bytes_(bytes) {}
  std::uint64_t word(std::size_t offset) const {
    std::uint64_t value = 0;
    std::memcpy(&value, bytes_ + offset, sizeof value);
    return value;
  }
  std::uint64_t time(std::size_t offset) const { return std::min(word(offset), kMostNanoseconds); }
  // Without characters that could steer a terminal.
  std::string text(std::size_t offset, std::size_t size) const {
    const char* const at = reinterpret_cast<const char*>(bytes_) + offset;
    std::string found(at, ::strnlen(at, size));
    for (std::size_t i = 0; i < found.size(); ++i) {
      const auto byte = static_cast<unsigned char>(found[i]);
      constexpr unsigned char kDelete = 0x7F, kSecondSet = 0xC2;  // that set begins with 32 of them, in UTF-8
      const bool is_second = i > 0 && static_cast<unsigned char>(found[i - 1]) == kSecondSet && byte < 0xA0;
      if (byte < ' ' || byte == kDelete || is_second) found[i] = '?';
    }
    return found;
  }

 private:
  const std::byte* bytes_;
};

RecordedTimes parse_times(const std::byte* bytes, std::uint64_t sequence) {
  const Fields part(bytes);
  if (part.word(offsetof(TimePart, sequence)) != sequence || part.word(offsetof(TimePart, end)) != sequence)
    return {};
  return {part.time(offsetof(TimePart, submitted)), part.time(offsetof(TimePart, entered)),
          part.time(offsetof(TimePart, ended)), part.time(offsetof(TimePart, waited)),
          part.time(offsetof(TimePart, waiting_since))};
}

// False: there is none, it was being written, or it is none.
bool parse_call(const std::byte* bytes, std::uint32_t place, std::uint32_t places, std::uint32_t size,
                RecordedCall& call) {
  const Fields part(bytes + offsetof(Entry, call));
  call.sequence = part.word(offsetof(CallPart, sequence));
  if (call.sequence == 0 || part.word(offsetof(CallPart, end)) != call.sequence ||
      call.sequence % places != place)
    return false;
  call.digest = part.word(offsetof(CallPart, digest));
  call.kind = part.word(offsetof(CallPart, kind));
  call.count = part.word(offsetof(CallPart, count));
  call.state = State::of(part.word(offsetof(CallPart, state)));
  if (static_cast<std::uint32_t>(call.state.phase) >= kPhaseCount) return false;
  if (call.state.peer >= size) call.state.peer = kNoPeer;
  call.times = parse_times(bytes + offsetof(Entry, times), call.sequence);
  return true;
}

std::vector<RecordedCall> parse_calls(const std::byte* bytes, std::uint32_t places, std::uint32_t size) {
  std::vector<RecordedCall> calls;
  for (std::uint32_t place = 0; place < places; ++place) {
    RecordedCall call;
    if (parse_call(bytes + place * sizeof(Entry), place, places, size, call)) calls.push_back(call);
  }
  std::sort(calls.begin(), calls.end(),
            [](const RecordedCall& a, const RecordedCall& b) { return a.sequence < b.sequence; });
  return calls;
}

RecordedRow parse_row(const std::byte* bytes) {
  const Fields part(bytes);
  RecordedRow row;
  row.algorithm = part.text(offsetof(Row, algorithm), sizeof(Row::algorithm));
  row.transport = part.text(offsetof(Row, transport), sizeof(Row::transport));
  const std::uint64_t key = part.word(offsetof(Row, key)), size_class = key >> 8U & 0xFFU;
  row.collective = static_cast<std::uint8_t>(key);
  row.least_bytes = size_class == 0 || size_class > 64 ? 0 : std::uint64_t{1} << (size_class - 1);
  row.calls = part.word(offsetof(Row, calls));
  row.bytes = part.word(offsetof(Row, bytes));
  row.timed_calls = part.word(offsetof(Row, timed_calls));
  row.waited = part.time(offsetof(Row, waited));
  row.moved = part.time(offsetof(Row, moved));
  row.times.resize(kBuckets);
  std::memcpy(row.times.data(), bytes + offsetof(Row, times), kBuckets * sizeof(std::uint64_t));
  return row;
}

// False: the section is unused, or none.
bool parse_group(const std::byte* bytes, RecordedGroup& group) {
  using Head = GroupSection::Head;
  const Fields head(bytes);
  const auto state = static_cast<GroupState>(head.word(offsetof(Head, state)));
  if (state != GroupState::open && state != GroupState::closed) return false;
  const std::uint64_t rank = head.word(offsetof(Head, rank)), size = head.word(offsetof(Head, size));
  if (size == 0 || size > kMostRanks || rank >= size) return false;
  group.is_open = state == GroupState::open;
  group.context = head.word(offsetof(Head, context));
  group.rank = static_cast<std::uint32_t>(rank);
  group.size = static_cast<std::uint32_t>(size);
  group.stream = static_cast<int>(static_cast<std::int64_t>(head.word(offsetof(Head, stream))));
  group.failure = head.text(offsetof(Head, failure), sizeof(Head::failure));
  group.operations = parse_calls(bytes + offsetof(GroupSection, operations), kOperations, group.size);
  group.messages = parse_calls(bytes + offsetof(GroupSection, messages), kMessages, group.size);
  for (std::uint32_t i = 0; i < kRows; ++i)
    group.rows.push_back(parse_row(bytes + offsetof(GroupSection, rows) + i * sizeof(Row)));
  while (!group.rows.empty() && group.rows.back().calls == 0) group.rows.pop_back();
  return true;
}

Status check_head(const Fields& head) {
  if (head.word(offsetof(FileHead, magic)) != kMagic) return invalid_argument("it is no record of a rank");
  if (head.word(offsetof(FileHead, version)) != kVersion ||
      head.word(offsetof(FileHead, section_bytes)) != sizeof(GroupSection))
    return invalid_argument(fmt::format("it is a record of version {}; this build reads version {}",
                                        head.word(offsetof(FileHead, version)), kVersion));
  const std::uint64_t size = head.word(offsetof(FileHead, size));
  if (size == 0 || size > kMostRanks || head.word(offsetof(FileHead, rank)) >= size ||
      head.word(offsetof(FileHead, node)) >= size)
    return invalid_argument(fmt::format("it is of rank {} of {} on node {}, which cannot be",
                                        head.word(offsetof(FileHead, rank)), size,
                                        head.word(offsetof(FileHead, node))));
  if (head.word(offsetof(FileHead, pid)) > static_cast<std::uint64_t>(std::numeric_limits<int>::max()))
    return invalid_argument("its process id is none");
  return {};
}

// Another group may have taken a section while it was copied: then its parts are of two groups.
void drop_reused(std::span<const Word> words, std::vector<std::byte>& bytes) {
  using Head = GroupSection::Head;
  for (std::size_t at = sizeof(FileHead); bytes.size() - at >= sizeof(GroupSection);
       at += sizeof(GroupSection)) {
    const auto word = [&](std::size_t offset) {
      return words[(at + offset) / sizeof(Word)].load(std::memory_order_acquire);
    };
    constexpr auto kUnused = static_cast<std::uint64_t>(GroupState::unused);
    const bool is_unused = word(offsetof(Head, state)) == kUnused;
    if (is_unused || word(offsetof(Head, context)) != Fields(&bytes[at]).word(offsetof(Head, context)))
      std::memcpy(&bytes[at + offsetof(Head, state)], &kUnused, sizeof kUnused);
  }
}

std::vector<std::byte> copy_record(std::span<const Word> words) {
  std::vector<std::byte> bytes(words.size_bytes());
  copy_words(words, bytes.data());
  drop_reused(words, bytes);
  return bytes;
}

}  // namespace

std::uint64_t RecordedRow::quantile(double share) const {
  const std::uint64_t all = std::accumulate(times.begin(), times.end(), std::uint64_t{0});
  double left = share * static_cast<double>(all);
  for (std::uint32_t bucket = 0; bucket < times.size() && all > 0; ++bucket) {
    const auto count = static_cast<double>(times[bucket]);
    if (count >= left && count > 0) {
      const std::uint64_t start = bucket_start(bucket), end = bucket_start(bucket + 1);
      return start + static_cast<std::uint64_t>(static_cast<double>(end - start) * left / count);
    }
    left -= count;
  }
  return 0;
}

Result<RecordedRank> parse_record(std::span<const std::byte> bytes) {
  if (bytes.size() < sizeof(FileHead)) return invalid_argument("it is too short for a record of a rank");
  const Fields head(bytes.data());
  TUTTI_RETURN_IF_ERROR(check_head(head));
  RecordedRank rank;
  rank.pid = static_cast<int>(head.word(offsetof(FileHead, pid)));
  rank.rank = static_cast<int>(head.word(offsetof(FileHead, rank)));
  rank.size = static_cast<int>(head.word(offsetof(FileHead, size)));
  rank.node = static_cast<int>(head.word(offsetof(FileHead, node)));
  rank.has_ended = head.word(offsetof(FileHead, has_ended)) != 0;
  rank.boot = head.word(offsetof(FileHead, boot));
  rank.wall = head.time(offsetof(FileHead, wall));
  rank.monotonic = head.time(offsetof(FileHead, monotonic));
  rank.host = head.text(offsetof(FileHead, host), sizeof(FileHead::host));
  rank.job = head.text(offsetof(FileHead, job), sizeof(FileHead::job));
  rank.world = head.text(offsetof(FileHead, world), sizeof(FileHead::world));
  rank.build = head.text(offsetof(FileHead, build), sizeof(FileHead::build));
  for (std::uint32_t i = 0; i < kTransports; ++i) {
    const Fields traffic(bytes.data() + offsetof(FileHead, traffic) + i * sizeof(Traffic));
    RecordedTraffic found{traffic.text(offsetof(Traffic, transport), sizeof(Traffic::transport)),
                          traffic.word(offsetof(Traffic, sent_bytes)),
                          traffic.word(offsetof(Traffic, received_bytes)),
                          traffic.word(offsetof(Traffic, messages))};
    if (!found.transport.empty()) rank.traffic.push_back(std::move(found));
  }
  for (std::size_t at = sizeof(FileHead);
       bytes.size() - at >= sizeof(GroupSection) && rank.groups.size() < kMostGroups;
       at += sizeof(GroupSection)) {
    RecordedGroup group;
    if (parse_group(bytes.data() + at, group)) rank.groups.push_back(std::move(group));
  }
  return rank;
}

Result<RecordedRank> read_record(const std::string& path) {
  const auto file = OpenFile::open(path);
  if (!file) return file.status();
  // First: a rank that has ended by then has written everything.
  const bool is_alive = file->is_owner_alive();
  const auto record = MappedRecord::open(*file);
  if (!record) return record.status().with_context(path);
  auto rank = parse_record(copy_record(record->words()));
  if (!rank) return rank.status().with_context(path);
  rank->path = path;
  rank->is_alive = is_alive;
  return rank;
}

std::vector<RecordedRank> read_world(const std::string& folder, std::string_view world) {
  std::vector<RecordedRank> ranks;
  const std::string part = fmt::format(".{}.", world);
  for (const std::string& path : list_files(folder)) {
    if (path.find(part) == std::string::npos) continue;
    if (auto rank = read_record(path); rank && rank->world == world) ranks.push_back(*std::move(rank));
  }
  std::sort(ranks.begin(), ranks.end(),
            [](const RecordedRank& a, const RecordedRank& b) { return a.rank < b.rank; });
  return ranks;
}

}  // namespace tutti::record
