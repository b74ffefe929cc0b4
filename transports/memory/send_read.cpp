// Sending by letting the peer read this process's memory: mapped, or through the kernel. read.cpp is the other
// side.
#include <array>
#include <cstring>

#include "transports/memory/endpoint.hpp"

namespace tutti::memory {

namespace {

void seek(SendOp& op, std::uint64_t offset) {
  op.offset = offset;
  op.range_index = 0;
  while (op.range_index < op.ranges.size() && offset >= op.ranges[op.range_index].size()) {
    offset -= op.ranges[op.range_index].size();
    ++op.range_index;
  }
  op.range_offset = offset;
}

// Lists where the ranges lie in the shared heap; returns how many are not empty, or 0 if they are not all in one
// segment of it.
std::size_t locate_in_heap(const SharedHeap& heap, std::span<const ConstByteRange> ranges,
                           std::array<ReadRange, kMaxReadRanges>& list) {
  std::size_t count = 0;
  for (const ConstByteRange& range : ranges) {
    if (range.empty()) continue;
    SharedHeap::Location place;
    if (!heap.locate(range.data(), range.size(), &place)) return 0;
    if (count > 0 && place.segment != list[0].segment) return 0;
    list[count++] = {place.offset, range.size(), place.segment};
  }
  return count;
}

// Lists the addresses of the ranges in this process; returns how many are not empty.
std::size_t list_addresses(std::span<const ConstByteRange> ranges,
                           std::array<ReadRange, kMaxReadRanges>& list) {
  std::size_t count = 0;
  for (const ConstByteRange& range : ranges) {
    if (!range.empty())
      list[count++] = {reinterpret_cast<std::uintptr_t>(range.data()), range.size(), kNoSegment};
  }
  return count;
}

}  // namespace

// May the peer read memory of this process that is not shared, and does that pay? One address space needs no
// asking; else the peer says whether it can.
bool MemoryEndpoint::may_publish_addresses(const SendOp& op) const {
  if (memory_.peer().access() == Peer::Access::direct) return true;
  const MemoryOptions& options = host_->instance().options();
  if (options.single_copy == SingleCopy::off || op.total_bytes < options.copied_read_bytes) return false;
  return peer_block_ != nullptr && peer_block_->cannot_read.load(std::memory_order_relaxed) == 0;
}

// Publishes where the message lies, if the peer may be able to read it and that pays.
bool MemoryEndpoint::try_publish_read(Channel& c, SendOp& op) {
  Instance& instance = host_->instance();
  if (op.total_bytes < instance.options().mapped_read_bytes || op.ranges.size() > kMaxReadRanges)
    return false;
  std::array<ReadRange, kMaxReadRanges> list{};
  std::size_t range_count = locate_in_heap(instance.heap(), op.ranges, list);
  if (range_count == 0) {
    if (!may_publish_addresses(op)) return false;
    range_count = list_addresses(op.ranges, list);
  }
  const std::uint64_t at = c.next_cell % kCells;
  const ReadHeader header{range_count, list[0]};
  std::memcpy(c.cells->lines[at].payload.data(), &header, sizeof(header));
  if (range_count > 1) std::memcpy(c.cells->cells[at].data(), list.data(), range_count * sizeof(ReadRange));
  op.cell = c.next_cell;
  publish_cell(c, op, CellKind::read);
  return true;
}

// Messages that the peer reads: complete those that it has read, stage the one that it asked for.
bool MemoryEndpoint::progress_reads(Channel& c, EventSink& out, std::size_t* budget) {
  if (peer_block_ == nullptr) return false;
  const ReceiverLine& receiver = peer_block_->receivers[c.index];
  bool has_moved = false;
  auto complete = [&] {
    Event event;
    event.kind = Event::Kind::sent;
    event.request = c.reads.front().request;
    event.endpoint = this;
    c.reads.pop_front();
    out.push(event);
    has_moved = true;
  };
  const std::uint64_t consumed = receiver.consumed_cells.load(std::memory_order_acquire);
  while (!c.reads.empty() && c.reads.front().cell < consumed && out.can_push()) complete();
  while (!c.reads.empty() && out.can_push()) {
    SendOp& op = c.reads.front();
    if (receiver.stage_request.load(std::memory_order_acquire) != op.cell + 1) break;
    if (!op.is_started) {
      prepare_ring(c);
      if (c.ring == nullptr) break;
      op.is_started = true;
      seek(op, receiver.stage_offset.load(std::memory_order_relaxed));
      has_moved = true;
    }
    const std::uint64_t offset = op.offset;
    const bool is_complete = stage_pieces(c, op, budget);
    has_moved = has_moved || op.offset != offset;
    if (!is_complete) break;
    complete();
  }
  return has_moved;
}

}  // namespace tutti::memory
