// The layout of memory that ranks share: bell, directory, links, cell rings, staging rings.
// Knows no process, no mapping and no protocol decision; only the owner of a segment writes to it, but for
// the bell.
//
// Every structure starts zeroed. Sequence numbers are 64 bits wide and never reset. A line is published by a
// release store of its sequence and read after an acquire load of it; there are no standalone fences.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace tutti::memory {

inline constexpr std::size_t kLineBytes = 64;
inline constexpr std::uint32_t kChannels = 64;               // for messages
inline constexpr std::uint32_t kControlChannel = kChannels;  // one more, for control()
inline constexpr std::size_t kControlBytes = 256;

// A place in the memory of an instance: its segment and the offset there. 0 is the place of no block, since
// segment 0 starts with the instance's page.
inline constexpr unsigned kSegmentShift = 48;
constexpr std::uint64_t make_place(std::uint32_t segment, std::uint64_t offset) {
  return (std::uint64_t{segment} << kSegmentShift) | offset;
}
constexpr std::uint32_t segment_of(std::uint64_t place) {
  return static_cast<std::uint32_t>(place >> kSegmentShift);
}
constexpr std::uint64_t offset_of(std::uint64_t place) {
  return place & ((std::uint64_t{1} << kSegmentShift) - 1);
}

// -- small messages ---------------------------------------------------------------------------------------

inline constexpr std::uint32_t kCells = 16;
inline constexpr std::size_t kInlineBytes = 40;
inline constexpr std::size_t kCellBytes = 1024;

enum class CellKind : std::uint8_t {
  in_line,  // the payload is in the line itself
  in_cell,  // the payload is in the cell that belongs to the line
  staged,   // the payload comes through the channel's staged ring; the first piece is already there
  read,     // the receiver reads the sender's memory: the ranges are listed in the line or the cell
};

// Payload and sequence in one line: one coherence miss for a small message.
struct alignas(kLineBytes) CellLine {
  std::atomic<std::uint64_t> sequence;  // position + 1 once the message is there
  std::uint64_t match_header;
  std::uint64_t meta;  // length << 8 | CellKind
  std::array<std::byte, kInlineBytes> payload;
};
static_assert(sizeof(CellLine) == kLineBytes);

// The ring of one channel in one direction. Lines and payloads lie apart so that tiny messages stay dense.
struct CellRing {
  std::array<CellLine, kCells> lines;
  std::array<std::array<std::byte, kCellBytes>, kCells> cells;
};

// Payload of CellKind::staged.
struct StagedHeader {
  std::uint64_t first_piece_bytes;
};

// Payload of CellKind::read is a ReadHeader; if range_count > 1, all ranges lie in the cell.
struct ReadRange {
  std::uint64_t address;  // virtual address in the sender, or offset in its segment
  std::uint64_t bytes;
  std::uint64_t segment;  // kNoSegment: `address` is virtual
};
inline constexpr std::uint64_t kNoSegment = ~std::uint64_t{0};
struct ReadHeader {
  std::uint64_t range_count;
  ReadRange first;
};
static_assert(sizeof(ReadHeader) <= kInlineBytes);
inline constexpr std::size_t kMaxReadRanges = kCellBytes / sizeof(ReadRange);

// -- large messages through a ring ------------------------------------------------------------------------

struct alignas(kLineBytes) PieceLine {
  std::atomic<std::uint64_t> sequence;  // piece position + 1
  std::uint64_t bytes;
};

inline constexpr std::uint32_t kMaxPieces = 16;

// Followed by piece_count pieces of piece_bytes each. The geometry never changes once it is published.
struct StagedRing {
  alignas(kLineBytes) std::uint32_t piece_count;
  std::uint32_t piece_bytes;
  std::array<PieceLine, kMaxPieces> lines;

  std::byte* piece(std::uint64_t position) {
    return reinterpret_cast<std::byte*>(this + 1) + (position % piece_count) * piece_bytes;
  }
  PieceLine& line(std::uint64_t position) { return lines[position % piece_count]; }
  static std::size_t total_bytes(std::uint32_t count, std::size_t each) {
    return sizeof(StagedRing) + count * each;
  }
};

// Always there for a channel, so that a large message can move when no memory is left for a real ring.
inline constexpr std::uint32_t kMinimalPieces = 2;
inline constexpr std::size_t kMinimalPieceBytes = 4096;

// -- one direction of one endpoint ------------------------------------------------------------------------

// Written by the receiver of one channel: its progress and its requests to the sender.
struct alignas(kLineBytes) ReceiverLine {
  std::atomic<std::uint64_t> consumed_cells;   // cells that the sender may use again
  std::atomic<std::uint64_t> consumed_pieces;  // pieces that the sender may use again
  std::atomic<std::uint64_t> stage_request;  // cell position + 1 of a `read` message that must be staged ...
  std::atomic<std::uint64_t> stage_offset;   // ... from this byte on
  std::atomic<std::uint32_t> is_reading;     // a piece of the sender's memory is being read now
};

// Lies in the memory of the endpoint's owner, as do the places it names; 0 means none yet.
struct LinkBlock {
  alignas(
      kLineBytes) std::atomic<std::uint32_t> is_revoked;  // peers may no longer read buffers of this endpoint
  std::atomic<std::uint32_t> wants_acks;   // sends are pending: ring the bell when something is consumed
  std::atomic<std::uint32_t> cannot_read;  // the owner may not read ordinary memory of the peer: stage
  alignas(kLineBytes) std::array<std::atomic<std::uint64_t>, kChannels + 1> cell_places;
  std::array<std::atomic<std::uint64_t>, kChannels + 1> ring_places;
  alignas(kLineBytes) std::array<ReceiverLine, kChannels + 1> receivers;
};

// -- one window -------------------------------------------------------------------------------------------

// The owner shows this to the peers of one context.
struct WindowBlock {
  struct Range {
    std::atomic<std::uint32_t> is_exposed;  // stored last
    std::uint32_t segment;
    std::uint64_t offset, bytes;
  };
  alignas(kLineBytes) std::array<Range, 3> ranges;
  std::atomic<std::uint32_t> has_notice;  // stored behind the following
  std::uint32_t notice_bytes;
  std::array<std::byte, kControlBytes> notice;
};

// -- finding each other -----------------------------------------------------------------------------------

// An entry of the directory says where the link block towards one (peer, context) lies, or the block of a window,
// whose peer is the owner itself. Readers check
// `state` before and after; fields are stored with release and loaded with acquire, so a reader that saw a
// newer field also sees the newer state.
struct alignas(kLineBytes) DirectoryEntry {
  static constexpr std::uint64_t kNever = 0;
  static constexpr std::uint64_t kLive = 1;
  static constexpr std::uint64_t kClosing = 2;
  static constexpr std::uint64_t kRemoved = 3;
  static constexpr std::uint64_t kStateMask = 3;

  std::atomic<std::uint64_t> state;                // generation << 2 | one of the above
  std::atomic<std::uint64_t> peer_low, peer_high;  // nonce of the peer's instance
  std::atomic<std::uint64_t> context;
  std::atomic<std::uint64_t> place;  // of the LinkBlock or WindowBlock
};

// The directory has parts, each of twice as many entries as the one before; the first lies in the page, the others in
// link memory, where they stay. A key is in one of the kMostProbes entries of a part that follow from its hash.
inline constexpr std::uint32_t kFirstEntries = 64;  // a power of two
inline constexpr std::uint32_t kDirectoryParts = 12;
inline constexpr std::uint32_t kMostProbes = 16;
constexpr std::uint32_t entries_of_part(std::uint32_t part) { return kFirstEntries << part; }
inline constexpr std::uint32_t kMostEntries = kFirstEntries * ((1U << kDirectoryParts) - 1);

// -- waiting ----------------------------------------------------------------------------------------------

struct alignas(kLineBytes) WakeLine {
  std::atomic<std::uint32_t> is_sleeping;    // written by the owner
  std::atomic<std::uint32_t> control_count;  // written by peers: control messages sent to it
  std::atomic<std::uint32_t> notice_count;   // written by peers: notices in windows that it has, too
};

// Start of segment 0 of every instance.
struct InstancePage {
  alignas(kLineBytes) std::atomic<std::uint64_t> magic;
  std::atomic<std::uint32_t> is_alive;
  std::atomic<std::uint32_t> needs_fence;  // sleepers here cannot use membarrier(2): senders must order
  alignas(kLineBytes) std::atomic<std::uint32_t> bell;  // futex word, written by peers
  alignas(kLineBytes) std::atomic<std::uint64_t> directory_version;
  WakeLine wake;
  alignas(kLineBytes)
      std::array<std::atomic<std::uint64_t>, kDirectoryParts> part_places;  // 0: not there; from 1 on
  std::array<DirectoryEntry, kFirstEntries> first_part;
};

// Changes whenever anything above changes: peers of different builds must not share memory.
inline constexpr std::uint64_t kLayoutMagic = 0x7475747469303500ULL + sizeof(LinkBlock) + sizeof(CellRing);

}  // namespace tutti::memory
