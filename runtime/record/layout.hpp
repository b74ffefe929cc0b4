// The record file of one rank: its layout in memory. Written by the rank with plain stores, read by other
// processes (reading.hpp). Knows no collective but as numbers.
//
// One file holds a FileHead and then GroupSections, one for each group or stream. Every word is written at
// once. A sealed part begins and ends with the number of its operation. The writer stores the last word, the
// content, and then the first word. A reader that copies the words in ascending order accepts a part whose two
// numbers are equal.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tutti::record {

inline constexpr std::uint64_t kMagic = 0x31636572'69747574ULL;  // "tutirec1"
inline constexpr std::uint32_t kVersion = 1;
inline constexpr std::uint32_t kOperations = 1024;  // remembered for each group; a power of two
inline constexpr std::uint32_t kMessages = 256;     // the same of messages between two ranks
inline constexpr std::uint32_t kRows = 64;          // of statistics, for each group
inline constexpr std::uint32_t kTransports = 8;
inline constexpr std::uint32_t kMostGroups = 256;
inline constexpr std::size_t kPage = 4096;
inline constexpr std::uint32_t kNoPeer = ~0U;

using Word = std::atomic<std::uint64_t>;

enum class Phase : std::uint8_t {
  queued,   // behind earlier operations of its slot
  waiting,  // for a rank that has not arrived at this operation
  moving,   // data
  reducing,
  complete,
  failed,
};
inline constexpr std::uint32_t kPhaseCount = 6;

// One word that tells how an operation is doing.
struct State {
  Phase phase = Phase::queued;
  bool has_waited = false;       // for a late rank
  std::uint16_t row = 0;         // of the statistics
  std::uint32_t peer = kNoPeer;  // the rank of the group that is, or was last, awaited

  constexpr std::uint64_t word() const {
    return static_cast<std::uint64_t>(phase) | std::uint64_t{has_waited} << 8U | std::uint64_t{row} << 16U |
           std::uint64_t{peer} << 32U;
  }
  static constexpr State of(std::uint64_t word) {
    return {static_cast<Phase>(word & 0xFFU), (word >> 8U & 1U) != 0, static_cast<std::uint16_t>(word >> 16U),
            static_cast<std::uint32_t>(word >> 32U)};
  }
};

// A call. `kind` and `count` are those of its contract (call_contract.hpp); of a message, the root is the peer,
// and the digest is the number of the pair with kIsSend.
struct alignas(64) CallPart {
  Word sequence, digest, kind, count, state;
  std::array<Word, 2> unused;
  Word end;
};

// Its times in nanoseconds of CLOCK_MONOTONIC. Short calls have them at every kSamplingInterval-th operation.
struct alignas(64) TimePart {
  Word sequence, submitted, entered, ended;  // 0: not yet
  Word waited;                               // for late ranks, in all
  Word waiting_since;                        // 0: it does not wait
  Word unused, end;
};

struct Entry {
  CallPart call;
  TimePart times;
};

// Every so-many-th short call is timed. It costs two readings of the clock.
inline constexpr std::uint32_t kSamplingInterval = 256;

inline constexpr std::uint32_t kBuckets = 64;  // of times: two for each power of two from 64 ns on

// Statistics of calls of one collective, size class, algorithm and transport. The next group in the section adds to
// those of a closed one.
struct alignas(64) Row {
  std::array<char, 32> algorithm;
  std::array<char, 24> transport;
  Word key;            // the collective, and above 8 bits the size class: floor(log2(bytes)) + 1; 0: unused
  Word calls, bytes;   // of the full vector
  Word timed_calls;    // those whose times are added below; a sampled call stands for those between samples
  Word waited, moved;  // nanoseconds
  std::array<Word, 2> unused;
  std::array<Word, kBuckets> times;
};

enum class GroupState : std::uint8_t { unused, open, closed };

struct alignas(kPage) GroupSection {
  struct Head {
    Word state;    // GroupState
    Word context;  // equal on all members
    Word rank, size, stream;
    Word last_message;  // its number; 0: none
    std::array<Word, 10> unused;
    std::array<char, 384> failure;  // the cause; empty: it has not failed
  };
  Head head;
  std::array<Row, kRows> rows;
  std::array<Entry, kOperations> operations;  // by number modulo kOperations
  std::array<Entry, kMessages> messages;
};

struct Traffic {
  std::array<char, 16> transport;  // empty: unused
  Word sent_bytes, received_bytes, messages;
};

struct alignas(kPage) FileHead {
  Word magic;
  Word version;
  Word section_bytes;
  Word pid, rank, size, node;
  Word has_ended;        // 1: the rank has left its job; the last one of the machine removes the file
  Word boot;             // equal where CLOCK_MONOTONIC is the same clock
  Word wall, monotonic;  // the same moment by both clocks
  std::array<Word, 5> unused;
  std::array<char, 64> host, job, world, build;
  std::array<Traffic, kTransports> traffic;
};

static_assert(sizeof(Entry) == 128 && sizeof(Row) == 640 && sizeof(FileHead) == kPage);
static_assert(Word::is_always_lock_free && sizeof(Word) == 8);

// The bucket of a time in nanoseconds, and the least time of a bucket.
constexpr std::uint32_t bucket_of(std::uint64_t ns) {
  constexpr unsigned kFirstPower = 6;
  if (ns < (1U << kFirstPower)) return 0;
  const unsigned power = 63U - static_cast<unsigned>(__builtin_clzll(ns));
  const unsigned half = ns >> (power - 1) & 1U;
  const unsigned bucket = 1 + 2 * (power - kFirstPower) + half;
  return bucket < kBuckets ? bucket : kBuckets - 1;
}
constexpr std::uint64_t bucket_start(std::uint32_t bucket) {
  if (bucket == 0) return 0;
  const std::uint64_t power = std::uint64_t{64} << ((bucket - 1) / 2);
  return (bucket - 1) % 2 == 0 ? power : power + power / 2;
}

// Cut to what has room before the last zero.
template <std::size_t kSize>
void put_text(std::array<char, kSize>& to, std::string_view text) {
  const std::size_t length = std::min(text.size(), kSize - 1);
  std::copy_n(text.data(), length, to.data());
  std::fill(to.begin() + static_cast<std::ptrdiff_t>(length), to.end(), '\0');
}

}  // namespace tutti::record
