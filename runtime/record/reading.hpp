// Reads record files, of ranks that run and of ranks that have ended. Every field is checked: the bytes may be
// anybody's. Knows no collective but as numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.hpp"
#include "runtime/record/layout.hpp"

namespace tutti::record {

// Times in nanoseconds of the rank's CLOCK_MONOTONIC; 0: not known, or not yet.
struct RecordedTimes {
  std::uint64_t submitted = 0, entered = 0, ended = 0;
  std::uint64_t waited = 0;         // for late ranks, up to waiting_since
  std::uint64_t waiting_since = 0;  // 0: it does not wait for a late rank
};

struct RecordedCall {
  std::uint64_t sequence = 0, digest = 0, kind = 0, count = 0;
  State state;
  RecordedTimes times;

  bool is_under_way() const { return state.phase != Phase::complete && state.phase != Phase::failed; }
};

struct RecordedRow {
  std::string algorithm, transport;
  std::uint8_t collective = 0;
  std::uint64_t least_bytes = 0;  // of its calls: 0, or a power of two
  std::uint64_t calls = 0, bytes = 0, timed_calls = 0, waited = 0, moved = 0;
  std::vector<std::uint64_t> times;  // by bucket_of()

  // The time that so much of the calls (0 to 1) do not exceed; 0 if none was timed.
  std::uint64_t quantile(double share) const;
};

struct RecordedGroup {
  std::uint64_t context = 0;
  std::uint32_t rank = 0, size = 0;
  int stream = 0;
  bool is_open = false;
  std::string failure;                   // empty: it has not failed
  std::vector<RecordedCall> operations;  // by number, without those that were being written
  std::vector<RecordedCall> messages;    // likewise
  std::vector<RecordedRow> rows;         // with calls; by their number in State::row
};

struct RecordedTraffic {
  std::string transport;
  std::uint64_t sent_bytes = 0, received_bytes = 0, messages = 0;
};

struct RecordedRank {
  std::string path;
  bool is_alive = false;   // its process runs
  bool has_ended = false;  // it has left the job in an orderly way
  int pid = 0, rank = 0, size = 0, node = 0;
  std::uint64_t boot = 0, wall = 0, monotonic = 0;
  std::string host, job, world, build;
  std::vector<RecordedTraffic> traffic;
  std::vector<RecordedGroup> groups;  // open ones, and closed ones whose section is not used again
};

// Errors: invalid_argument that says which field is wrong.
Result<RecordedRank> parse_record(std::span<const std::byte> bytes);
// Of a file whose rank may be writing, with path and is_alive. Stops no one. Errors: also those of OpenFile::open().
Result<RecordedRank> read_record(const std::string& path);
// Those of one world in a folder, by rank, as far as they can be read. `world`: its word.
std::vector<RecordedRank> read_world(const std::string& folder, std::string_view world);

}  // namespace tutti::record
