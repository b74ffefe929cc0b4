// The sending half of a memory endpoint: which protocol a message takes, and moving it. send_read.cpp has the
// messages that the peer reads. Knows nothing of how memory is shared.
#include <algorithm>
#include <cstring>

#include "transports/memory/endpoint.hpp"

namespace tutti::memory {

namespace {

// Copies the next `bytes` of the message and moves its cursor.
void gather(SendOp& op, std::byte* to, std::size_t bytes) {
  op.offset += bytes;
  while (bytes != 0) {
    const ConstByteRange range = op.ranges[op.range_index];
    const std::size_t n = std::min(bytes, range.size() - op.range_offset);
    if (n != 0) std::memcpy(to, range.data() + op.range_offset, n);
    to += n;
    bytes -= n;
    op.range_offset += n;
    if (op.range_offset == range.size()) {
      ++op.range_index;
      op.range_offset = 0;
    }
  }
}

// Small enough that the reader starts early, large enough that a piece's line costs nothing.
std::size_t preferred_piece_bytes(std::uint64_t total_bytes) {
  constexpr std::size_t kSmallestPiece = 8192;
  constexpr std::uint64_t kPiecesPerMessage = 4;
  return std::max<std::size_t>(kSmallestPiece, (total_bytes / kPiecesPerMessage + 63U) & ~std::uint64_t{63});
}

}  // namespace

bool MemoryEndpoint::has_free_cell(Channel& c) {
  if (c.next_cell - c.acked_cells < kCells) return true;
  if (peer_block_ == nullptr) return false;
  c.acked_cells = peer_block_->receivers[c.index].consumed_cells.load(std::memory_order_acquire);
  return c.next_cell - c.acked_cells < kCells;
}

bool MemoryEndpoint::has_free_piece(Channel& c) {
  if (c.next_piece - c.acked_pieces < c.ring->piece_count) return true;
  if (peer_block_ == nullptr) return false;
  c.acked_pieces = peer_block_->receivers[c.index].consumed_pieces.load(std::memory_order_acquire);
  return c.next_piece - c.acked_pieces < c.ring->piece_count;
}

// The line's payload is in place already.
void MemoryEndpoint::publish_cell(Channel& c, const SendOp& op, CellKind kind) {
  CellLine& line = c.cells->lines[c.next_cell % kCells];
  line.match_header = op.match_header;
  line.meta = (op.total_bytes << 8U) | static_cast<std::uint64_t>(kind);
  ++c.next_cell;
  line.sequence.store(c.next_cell, std::memory_order_release);
  notify(false);
}

void MemoryEndpoint::send_eager(Channel& c, SendOp& op) {
  const std::uint64_t at = c.next_cell % kCells;
  const bool is_in_line = op.total_bytes <= kInlineBytes;
  gather(op, is_in_line ? c.cells->lines[at].payload.data() : c.cells->cells[at].data(), op.total_bytes);
  publish_cell(c, op, is_in_line ? CellKind::in_line : CellKind::in_cell);
}

// Copies the next piece into the ring and returns its size; the caller makes it known.
std::size_t MemoryEndpoint::put_piece(Channel& c, SendOp& op) {
  const std::size_t bytes =
      std::min({static_cast<std::size_t>(c.ring->piece_bytes), preferred_piece_bytes(op.total_bytes),
                static_cast<std::size_t>(op.total_bytes - op.offset)});
  gather(op, c.ring->piece(c.next_piece), bytes);
  PieceLine& line = c.ring->line(c.next_piece);
  line.bytes = bytes;
  ++c.next_piece;
  line.sequence.store(c.next_piece, std::memory_order_release);
  return bytes;
}

// True when the whole message is in the ring.
bool MemoryEndpoint::stage_pieces(Channel& c, SendOp& op, std::size_t* budget) {
  while (op.offset < op.total_bytes && *budget != 0 && has_free_piece(c)) {
    const std::size_t bytes = put_piece(c, op);
    *budget -= std::min(*budget, bytes);
    notify(false);
  }
  return op.offset == op.total_bytes;
}

MemoryEndpoint::Started MemoryEndpoint::start(Channel& c, SendOp& op, std::size_t* budget) {
  if (!prepare_cells(c) || !has_free_cell(c)) return Started::no;
  if (op.total_bytes <= kCellBytes) {
    send_eager(c, op);
    return Started::complete;
  }
  if (try_publish_read(c, op)) return Started::being_read;
  // A message that the peer may still ask to stage comes before this one in the ring.
  if (!c.reads.empty()) return Started::no;
  prepare_ring(c);
  if (c.ring == nullptr || !has_free_piece(c)) return Started::no;
  const std::size_t bytes = put_piece(c, op);
  *budget -= std::min(*budget, bytes);
  const StagedHeader header{bytes};
  std::memcpy(c.cells->lines[c.next_cell % kCells].payload.data(), &header, sizeof(header));
  publish_cell(c, op, CellKind::staged);
  op.is_started = true;
  return stage_pieces(c, op, budget) ? Started::complete : Started::partly;
}

Post MemoryEndpoint::send(std::uint32_t channel_index, std::uint64_t match_header,
                          std::span<const ConstByteRange> ranges, RequestId request) {
  TUTTI_ASSERT(channel_index < kChannels, "no such channel");
  if (is_failed_) return post_failed(request);
  if (peer_block_ == nullptr) try_link();
  Channel& c = *channel(channel_index);
  if (c.sent.add(match_header) > c.sends.capacity()) make_room(channel_index, c.sent.count, 0);
  SendOp op;
  op.match_header = match_header;
  op.ranges = ranges;
  op.request = request;
  for (const ConstByteRange& range : ranges) op.total_bytes += range.size();
  if (c.sends.empty()) {
    std::size_t budget = kBudgetBytes;
    switch (start(c, op, &budget)) {
      case Started::complete:
        return Post::done;
      case Started::being_read:
        c.reads.push_back(op);
        set_pending_send(c);
        return Post::pending;
      case Started::no:
      case Started::partly:
        break;
    }
  } else if (c.sends.count() >= kMaxQueued) {
    return Post::again;
  }
  c.sends.push_back(op);
  set_pending_send(c);
  return Post::pending;
}

Post MemoryEndpoint::control(ConstByteRange bytes) {
  TUTTI_ASSERT(bytes.size() <= kControlBytes, "control messages have at most 256 bytes");
  if (is_failed_) return Post::done;  // nobody is there to read it
  if (peer_block_ == nullptr) try_link();
  Channel& c = *channel(kControlChannel);
  if (!prepare_cells(c) || !has_free_cell(c)) return Post::again;
  SendOp op;
  op.ranges = std::span<const ConstByteRange>(&bytes, 1);
  op.total_bytes = bytes.size();
  const std::uint64_t at = c.next_cell % kCells;
  gather(op, c.cells->cells[at].data(), bytes.size());
  CellLine& line = c.cells->lines[at];
  line.match_header = 0;
  line.meta = (op.total_bytes << 8U) | static_cast<std::uint64_t>(CellKind::in_cell);
  ++c.next_cell;
  line.sequence.store(c.next_cell, std::memory_order_release);
  if (peer_block_ != nullptr) {
    peer_wake_->control_count.fetch_add(1, std::memory_order_release);
  } else {
    owes_control_ = true;
    activate();
  }
  notify(false);
  return Post::done;
}

bool MemoryEndpoint::progress_sends(Channel& c, EventSink& out) {
  std::size_t budget = kBudgetBytes;
  bool has_moved = false;
  if (!c.reads.empty()) has_moved = progress_reads(c, out, &budget);
  while (!c.sends.empty() && out.can_push()) {
    SendOp& op = c.sends.front();
    const std::uint64_t offset = op.offset;
    Started started = Started::partly;
    if (!op.is_started) {
      started = start(c, op, &budget);
    } else if (stage_pieces(c, op, &budget)) {
      started = Started::complete;
    }
    has_moved =
        has_moved || started == Started::complete || started == Started::being_read || op.offset != offset;
    if (started == Started::no || started == Started::partly) break;
    if (started == Started::being_read) {
      c.reads.push_back(op);
    } else {
      Event event;
      event.kind = Event::Kind::sent;
      event.request = op.request;
      event.endpoint = this;
      out.push(event);
    }
    c.sends.pop_front();
  }
  if (c.sends.empty() && c.reads.empty()) {
    pending_sends_ &= ~(std::uint64_t{1} << c.index);
    if (pending_sends_ == 0) block_->wants_acks.store(0, std::memory_order_relaxed);
  }
  return has_moved;
}

bool MemoryEndpoint::has_send_news(Channel& c) {
  const ReceiverLine& receiver = peer_block_->receivers[c.index];
  if (!c.reads.empty()) {
    const SendOp& op = c.reads.front();
    if (op.cell < receiver.consumed_cells.load(std::memory_order_acquire)) return true;
    if (receiver.stage_request.load(std::memory_order_acquire) == op.cell + 1) {
      return !op.is_started || c.ring == nullptr || has_free_piece(c);
    }
  }
  if (c.sends.empty()) return false;
  const SendOp& op = c.sends.front();
  if (op.is_started) return has_free_piece(c);
  if (!has_free_cell(c)) return false;
  if (op.total_bytes <= kCellBytes) return true;
  return c.reads.empty() && (c.ring == nullptr || has_free_piece(c));
}

}  // namespace tutti::memory
