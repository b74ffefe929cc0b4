// Receiving by reading the sender's memory: mapped, or through the kernel. Knows no ring.
#include <algorithm>
#include <array>
#include <cstring>

#include "transports/memory/endpoint.hpp"

namespace tutti::memory {

namespace {

// The parts of the sender's memory that hold bytes [offset, offset + limit) of the message.
struct Fragments {
  std::array<iovec, kMaxReadRanges> list;
  std::size_t count = 0;
  std::uint64_t segment = kNoSegment;
  std::size_t total_bytes = 0;

  std::span<const iovec> all() const { return {list.data(), count}; }
};

// False if the list is not one that a sender writes.
bool find_fragments(const CellLine& line, const std::array<std::byte, kCellBytes>& cell, std::uint64_t offset,
                    std::size_t limit, Fragments* found) {
  ReadHeader header{};
  std::memcpy(&header, line.payload.data(), sizeof(header));
  if (header.range_count == 0 || header.range_count > kMaxReadRanges) return false;
  for (std::uint64_t i = 0; i < header.range_count && limit != 0; ++i) {
    ReadRange range = header.first;
    if (header.range_count > 1) std::memcpy(&range, cell.data() + i * sizeof(ReadRange), sizeof(range));
    if (offset >= range.bytes) {
      offset -= range.bytes;
      continue;
    }
    const std::size_t bytes = std::min<std::uint64_t>(limit, range.bytes - offset);
    found->list[found->count++] = {reinterpret_cast<void*>(range.address + offset), bytes};
    found->total_bytes += bytes;
    if (range.segment != header.first.segment) return false;  // senders list one kind only, see send.cpp
    limit -= bytes;
    offset = 0;
  }
  found->segment = header.first.segment;
  return found->count != 0;
}

}  // namespace

void MemoryEndpoint::ask_to_stage(Channel& c) {
  ReceiverLine& own = block_->receivers[c.index];
  own.stage_offset.store(c.arrival.offset, std::memory_order_relaxed);
  own.stage_request.store(c.expected_cell + 1, std::memory_order_release);
  c.arrival.kind = ArrivingMessage::Kind::staged;
  c.arrival.first_piece_bytes = 0;
  c.arrival.has_asked_to_stage = true;
  notify(true);
}

// Moves at most limit_bytes on. The sender may revoke its memory between any two pieces, not within one.
MemoryEndpoint::Piece MemoryEndpoint::read_piece(Channel& c, std::size_t limit_bytes) {
  const std::uint64_t at = c.expected_cell % kCells;
  // Pieces end at multiples of 64, whatever is left of the caller's budget.
  const std::size_t piece_bytes =
      std::max(std::min(limit_bytes, Worker::kBounceBytes) & ~(kLineBytes - 1), kLineBytes);
  Fragments found;
  if (!find_fragments(c.peer_cells->lines[at], c.peer_cells->cells[at], c.arrival.offset, piece_bytes,
                      &found)) {
    return Piece::must_stage;
  }
  const bool is_in_heap = found.segment != kNoSegment;
  if (is_in_heap) {
    const ByteRange memory = memory_.segment(static_cast<std::uint32_t>(found.segment));
    for (std::size_t i = 0; i < found.count; ++i) {
      iovec& part = found.list[i];
      const auto offset = reinterpret_cast<std::uintptr_t>(part.iov_base);
      if (offset > memory.size() || part.iov_len > memory.size() - offset) return Piece::must_stage;
      part.iov_base = memory.data() + offset;
    }
  }
  std::atomic<std::uint32_t>& is_reading = block_->receivers[c.index].is_reading;
  is_reading.store(1, std::memory_order_seq_cst);
  Piece piece = Piece::revoked;
  if (peer_block_->is_revoked.load(std::memory_order_seq_cst) == 0) {
    if (is_in_heap || memory_.peer().access() == Peer::Access::direct) {
      piece = read_mapped(c, found.all(), found.total_bytes);
    } else if (memory_.peer().access() == Peer::Access::copied) {
      piece = read_copied(c, found.all(), found.total_bytes);
    } else {
      piece = Piece::must_stage;
    }
  }
  is_reading.store(0, std::memory_order_release);
  // A sender in another process may have stopped waiting for us: then what we read means nothing.
  if (peer_block_->is_revoked.load(std::memory_order_acquire) != 0) return Piece::revoked;
  return piece;
}

MemoryEndpoint::Piece MemoryEndpoint::read_mapped(Channel& c, std::span<const iovec> fragments,
                                                  std::size_t bytes) {
  const bool is_delivered = c.recvs.front().sink.deliver != nullptr;
  const bool is_last = c.arrival.offset + bytes == c.arrival.total_bytes;
  for (std::size_t i = 0; i < fragments.size(); ++i) {
    const auto* from = static_cast<const std::byte*>(fragments[i].iov_base);
    std::size_t n = fragments[i].iov_len;
    if (is_delivered && !(is_last && i + 1 == fragments.size())) {
      // Deliveries end at multiples of 64. Bytes that cross from one range to the next go through the bounce
      // buffer.
      n &= ~std::size_t{63};
      if (n == 0) {
        if (i != 0) return Piece::ok;  // the next call starts here
        const ByteRange bounce = worker_->bounce();
        std::size_t filled = 0;
        for (const iovec& part : fragments) {
          std::memcpy(bounce.data() + filled, part.iov_base, part.iov_len);
          filled += part.iov_len;
        }
        put(c, bounce.first(is_last ? filled : filled & ~std::size_t{63}));
        return Piece::ok;
      }
      put(c, ConstByteRange(from, n));
      if (n != fragments[i].iov_len) return Piece::ok;
      continue;
    }
    put(c, ConstByteRange(from, n));
  }
  return Piece::ok;
}

MemoryEndpoint::Piece MemoryEndpoint::read_copied(Channel& c, std::span<const iovec> fragments,
                                                  std::size_t bytes) {
  const Sink& sink = c.recvs.front().sink;
  const bool is_delivered = sink.deliver != nullptr;
  std::array<iovec, 16> local{};
  std::size_t local_count = 0;
  std::size_t local_bytes = 0;
  if (is_delivered) {
    local[local_count++] = {worker_->bounce().data(), bytes};
    local_bytes = bytes;
  } else {
    std::size_t index = c.arrival.range_index;
    std::size_t offset = c.arrival.range_offset;
    for (; local_bytes < bytes && local_count < local.size(); ++index, offset = 0) {
      const ByteRange range = sink.ranges[index].subspan(offset);
      if (range.empty()) continue;
      const std::size_t n = std::min(range.size(), bytes - local_bytes);
      local[local_count++] = {range.data(), n};
      local_bytes += n;
    }
  }
  std::array<iovec, kMaxReadRanges> remote{};
  std::size_t remote_count = 0;
  for (std::size_t left = local_bytes; left != 0; ++remote_count) {
    remote[remote_count] = {fragments[remote_count].iov_base,
                            std::min(left, fragments[remote_count].iov_len)};
    left -= remote[remote_count].iov_len;
  }
  switch (memory_.peer().copy({local.data(), local_count}, {remote.data(), remote_count})) {
    case Peer::Copied::denied:
      block_->cannot_read.store(1, std::memory_order_relaxed);
      return Piece::must_stage;
    case Peer::Copied::failed:
      return Piece::must_stage;
    case Peer::Copied::ok:
      break;
  }
  if (is_delivered) {
    put(c, ConstByteRange(worker_->bounce().data(), local_bytes));
    return Piece::ok;
  }
  c.arrival.offset += local_bytes;
  for (std::size_t left = local_bytes; left != 0;) {
    const ByteRange range = sink.ranges[c.arrival.range_index];
    const std::size_t n = std::min(left, range.size() - c.arrival.range_offset);
    left -= n;
    c.arrival.range_offset += n;
    if (c.arrival.range_offset == range.size()) {
      ++c.arrival.range_index;
      c.arrival.range_offset = 0;
    }
  }
  return Piece::ok;
}

}  // namespace tutti::memory
