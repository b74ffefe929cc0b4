// The receiving half of a memory endpoint: matching, checking, and moving what arrives. Knows nothing of how
// memory is shared; reading the sender's own memory is in read.cpp.
#include <algorithm>
#include <cstring>

#include "transports/memory/endpoint.hpp"

namespace tutti::memory {

// The line of the next message of the channel, or null if it is not there yet.
const CellLine* MemoryEndpoint::arrived_line(Channel& c) {
  if (c.peer_cells == nullptr) {
    const std::uint64_t place = peer_block_->cell_places[c.index].load(std::memory_order_acquire);
    std::byte* const cells = place == 0 ? nullptr : memory_.at(place, sizeof(CellRing));
    if (cells == nullptr) return nullptr;
    c.peer_cells = reinterpret_cast<CellRing*>(cells);
  }
  const CellLine& line = c.peer_cells->lines[c.expected_cell % kCells];
  return line.sequence.load(std::memory_order_acquire) == c.expected_cell + 1 ? &line : nullptr;
}

bool MemoryEndpoint::find_ring(Channel& c) {
  if (c.peer_ring != nullptr) return true;
  const std::uint64_t place = peer_block_->ring_places[c.index].load(std::memory_order_acquire);
  auto* ring = reinterpret_cast<StagedRing*>(place == 0 ? nullptr : memory_.at(place, sizeof(StagedRing)));
  if (ring == nullptr) return false;
  const bool is_sound =
      ring->piece_count != 0 && ring->piece_count <= kMaxPieces &&
      memory_.at(place, StagedRing::total_bytes(ring->piece_count, ring->piece_bytes)) != nullptr;
  if (is_sound) c.peer_ring = ring;
  return is_sound;
}

void MemoryEndpoint::consume_cell(Channel& c) {
  ++c.expected_cell;
  block_->receivers[c.index].consumed_cells.store(c.expected_cell, std::memory_order_release);
  notify(true);
}

// Hands the next bytes of the message to its sink.
void MemoryEndpoint::put(Channel& c, ConstByteRange data) {
  ArrivingMessage& arrival = c.arrival;
  const Sink& sink = c.recvs.front().sink;
  if (data.empty()) return;
  if (sink.deliver != nullptr) {
    sink.deliver(sink.context, arrival.offset, data);
    arrival.offset += data.size();
    return;
  }
  arrival.offset += data.size();
  while (!data.empty()) {
    const ByteRange range = sink.ranges[arrival.range_index];
    const std::size_t n = std::min(data.size(), range.size() - arrival.range_offset);
    if (n != 0) std::memcpy(range.data() + arrival.range_offset, data.data(), n);
    data = data.subspan(n);
    arrival.range_offset += n;
    if (arrival.range_offset == range.size()) {
      ++arrival.range_index;
      arrival.range_offset = 0;
    }
  }
}

// Compares a message with the oldest receive, then starts moving it.
MemoryEndpoint::Received MemoryEndpoint::begin(Channel& c, const CellLine& line, Event* mismatch) {
  const RecvOp& op = c.recvs.front();
  const auto kind = static_cast<CellKind>(line.meta & 0xffU);
  const std::uint64_t bytes = line.meta >> 8U;
  const bool is_match = line.match_header == op.match_header && bytes == op.sink.total_bytes;
  c.arrival = {};
  c.arrival.total_bytes = bytes;
  if (kind == CellKind::staged) {
    StagedHeader header{};
    std::memcpy(&header, line.payload.data(), sizeof(header));
    c.arrival.kind = ArrivingMessage::Kind::staged;
    c.arrival.first_piece_bytes = header.first_piece_bytes;
    c.arrival.is_discarded = !is_match;
  }
  if (!is_match) {
    mismatch->kind = Event::Kind::mismatch;
    mismatch->request = op.request;
    mismatch->match_header = line.match_header;
    mismatch->bytes = bytes;
    mismatch->endpoint = this;
    c.recvs.pop_front();
    consume_cell(c);
    return Received::mismatch;
  }
  switch (kind) {
    case CellKind::in_line:
      put(c, ConstByteRange(line.payload).first(bytes));
      consume_cell(c);
      return Received::complete;
    case CellKind::in_cell:
      put(c, ConstByteRange(c.peer_cells->cells[c.expected_cell % kCells]).first(bytes));
      consume_cell(c);
      return Received::complete;
    case CellKind::staged:
      consume_cell(c);
      break;
    case CellKind::read:
      c.arrival.kind = ArrivingMessage::Kind::read;  // the cell is consumed when all is read
      break;
  }
  return Received::partly;
}

MemoryEndpoint::Received MemoryEndpoint::receive_staged(Channel& c, std::size_t* budget) {
  ArrivingMessage& arrival = c.arrival;
  if (!find_ring(c)) return Received::nothing;
  bool has_moved = false;
  while (arrival.offset < arrival.total_bytes && *budget != 0) {
    const PieceLine& line = c.peer_ring->line(c.expected_piece);
    std::size_t bytes = arrival.first_piece_bytes;  // its header vouches for the first piece
    if (bytes == 0) {
      if (line.sequence.load(std::memory_order_acquire) != c.expected_piece + 1) break;
      bytes = line.bytes;
    }
    arrival.first_piece_bytes = 0;
    TUTTI_ASSERT(
        bytes != 0 && bytes <= c.peer_ring->piece_bytes && bytes <= arrival.total_bytes - arrival.offset,
        "a peer wrote a piece that cannot be");
    if (arrival.is_discarded) {
      arrival.offset += bytes;
    } else {
      put(c, ConstByteRange(c.peer_ring->piece(c.expected_piece), bytes));
    }
    ++c.expected_piece;
    block_->receivers[c.index].consumed_pieces.store(c.expected_piece, std::memory_order_release);
    notify(true);
    *budget -= std::min(*budget, bytes);
    has_moved = true;
  }
  if (arrival.offset == arrival.total_bytes) {
    const bool is_discarded = arrival.is_discarded;
    if (arrival.has_asked_to_stage) consume_cell(c);
    arrival.kind = ArrivingMessage::Kind::none;
    return is_discarded ? Received::partly : Received::complete;
  }
  return has_moved ? Received::partly : Received::nothing;
}

MemoryEndpoint::Received MemoryEndpoint::receive_read(Channel& c, std::size_t* budget) {
  ArrivingMessage& arrival = c.arrival;
  const std::uint64_t start = arrival.offset;
  while (arrival.offset < arrival.total_bytes && *budget != 0) {
    const std::uint64_t before = arrival.offset;
    const Piece piece = read_piece(c, *budget);
    if (piece == Piece::must_stage) {
      ask_to_stage(c);
      return Received::partly;
    }
    if (piece == Piece::revoked) return Received::nothing;  // the peer is closing: progress() will see it
    *budget -= std::min<std::size_t>(*budget, arrival.offset - before);
  }
  if (arrival.offset == arrival.total_bytes) {
    arrival.kind = ArrivingMessage::Kind::none;
    consume_cell(c);
    return Received::complete;
  }
  return arrival.offset != start ? Received::partly : Received::nothing;
}

// One attempt to move the channel on.
MemoryEndpoint::Received MemoryEndpoint::receive(Channel& c, std::size_t* budget, Event* mismatch) {
  if (c.arrival.kind == ArrivingMessage::Kind::none) {
    if (c.recvs.empty()) return Received::nothing;
    const CellLine* line = arrived_line(c);
    if (line == nullptr) return Received::nothing;
    const Received begun = begin(c, *line, mismatch);
    if (begun != Received::partly) return begun;
  }
  const Received moved =
      c.arrival.kind == ArrivingMessage::Kind::staged ? receive_staged(c, budget) : receive_read(c, budget);
  return moved;
}

Post MemoryEndpoint::recv(std::uint32_t channel_index, std::uint64_t expected_header, const Sink& sink,
                          RequestId request) {
  TUTTI_ASSERT(channel_index < kChannels, "no such channel");
  if (is_failed_) return post_failed(request);
  if (sink.only_polls) return poll(channel_index, request);
  Channel& c = *channel(channel_index);
  if (c.received.add(expected_header) > c.recvs.capacity()) make_room(channel_index, 0, c.received.count);
  if (c.recvs.count() >= kMaxQueued) return Post::again;
  c.recvs.push_back({expected_header, sink, request});
  // A message cannot overtake: only the oldest receive may be tried at once.
  if (c.recvs.count() == 1 && c.arrival.kind == ArrivingMessage::Kind::none &&
      (peer_block_ != nullptr || try_link())) {
    std::size_t budget = kBudgetBytes;
    Event mismatch;
    switch (receive(c, &budget, &mismatch)) {
      case Received::complete:
        c.recvs.pop_front();
        return Post::done;
      case Received::mismatch:
        worker_->waiting.push_back(mismatch);
        if (c.arrival.kind == ArrivingMessage::Kind::none) return Post::pending;
        break;
      case Received::nothing:
      case Received::partly:
        break;
    }
  }
  pending_recvs_ |= std::uint64_t{1} << channel_index;
  activate();
  return Post::pending;
}

Post MemoryEndpoint::poll(std::uint32_t channel_index, RequestId request) {
  // progress() passes over an endpoint with nothing pending.
  constexpr std::uint32_t kPollsPerCheck = 1024;
  if (++failed_polls_ % kPollsPerCheck == 0) check_peer();
  const bool was_closed = is_peer_closed();  // before looking at the data
  if (peer_block_ != nullptr || try_link()) {
    Channel& c = *channel(channel_index);
    if (c.recvs.empty() && c.arrival.kind == ArrivingMessage::Kind::none && arrived_line(c) != nullptr) {
      failed_polls_ = 0;
      return Post::done;
    }
  }
  return was_closed ? post_failed(request) : Post::again;
}

bool MemoryEndpoint::progress_recvs(Channel& c, EventSink& out) {
  std::size_t budget = kBudgetBytes;
  bool has_moved = false;
  while (!c.recvs.empty() || c.arrival.kind != ArrivingMessage::Kind::none) {
    if (!out.can_push()) return has_moved;
    Event event;
    const Received received = receive(c, &budget, &event);
    has_moved = has_moved || received != Received::nothing;
    if (received == Received::complete) {
      event.kind = Event::Kind::received;
      event.request = c.recvs.front().request;
      event.endpoint = this;
      c.recvs.pop_front();
      out.push(event);
    } else if (received == Received::mismatch) {
      out.push(event);
    } else if (received == Received::nothing || budget == 0) {
      return has_moved;
    }
  }
  pending_recvs_ &= ~(std::uint64_t{1} << c.index);
  return has_moved;
}

bool MemoryEndpoint::has_recv_news(Channel& c) {
  switch (c.arrival.kind) {
    case ArrivingMessage::Kind::none:
      return arrived_line(c) != nullptr;
    case ArrivingMessage::Kind::read:
      return true;
    case ArrivingMessage::Kind::staged:
      break;
  }
  if (c.arrival.first_piece_bytes != 0) return true;
  return find_ring(c) &&
         c.peer_ring->line(c.expected_piece).sequence.load(std::memory_order_acquire) == c.expected_piece + 1;
}

void MemoryEndpoint::poll_control(EventSink& out) {
  if (is_failed_) return;
  if (!try_link()) {
    expects_control_ = true;  // it may be from a peer that is still to be linked
    activate();
    return;
  }
  // Every endpoint is asked, though hardly any has control messages.
  const bool has_channel = channels_[kControlChannel] != nullptr;
  if (!has_channel && peer_block_->cell_places[kControlChannel].load(std::memory_order_acquire) == 0) return;
  Channel& c = *channel(kControlChannel);
  while (out.has_room()) {
    const CellLine* line = arrived_line(c);
    if (line == nullptr) return;
    const std::size_t bytes = std::min<std::uint64_t>(line->meta >> 8U, kControlBytes);
    Event event;
    event.kind = Event::Kind::control;
    event.endpoint = this;
    event.bytes = bytes;
    if (bytes != 0) {  // an empty one only wakes
      const std::byte* from = c.peer_cells->cells[c.expected_cell % kCells].data();
      event.data = worker_->keep_control(ConstByteRange(from, bytes));
    }
    out.push(event);
    consume_cell(c);
  }
}

}  // namespace tutti::memory
