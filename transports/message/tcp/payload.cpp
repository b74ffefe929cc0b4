// Messages that do not come as a whole: asked for, stored, delivered in pieces, dropped.
// Knows no socket; see input.hpp.
#include <algorithm>
#include <cstring>

#include "transports/message/tcp/connection.hpp"
#include "transports/message/tcp/input.hpp"

namespace tutti::tcp {

using message::Arrival;
using message::RecvOp;
using Fate = Incoming::Fate;

namespace {

// One call of pump() delivers about so much: what waits to be sent gets its turn.
constexpr std::size_t kMostBytesAtOnce = std::size_t{256} << 10U;

void copy_to_ranges(const RecvOp& op, std::size_t offset, const std::byte* data, std::size_t bytes) {
  for (const iovec& item : op.ranges.items()) {
    if (bytes == 0) return;
    if (offset >= item.iov_len) {
      offset -= item.iov_len;
      continue;
    }
    const std::size_t part = std::min(item.iov_len - offset, bytes);
    std::memcpy(static_cast<std::byte*>(item.iov_base) + offset, data, part);
    data += part;
    bytes -= part;
    offset = 0;
  }
}

}  // namespace

void free_incoming(message::Worker& worker, Input::Stores& stores, Incoming& incoming) {
  worker.bounces().give_back(incoming.memory);
  incoming.memory = {};
  incoming.connection = nullptr;
  stores.incomings.give_back(&incoming);
}

void settle(message::Worker& worker, Input::Stores& stores, Incoming& incoming, RecvOp& op) {
  const bool is_complete = incoming.is_complete();
  if (is_complete && op.sink.deliver != nullptr) {
    op.sink.deliver(op.sink.context, 0, ConstByteRange(incoming.memory).first(incoming.bytes));
  } else if (is_complete) {
    copy_to_ranges(op, 0, incoming.memory.data(), incoming.bytes);
  }
  free_incoming(worker, stores, incoming);
  worker.on_fetched(op, is_complete);
}

// -- what the worker hears ----------------------------------------------------------------------------------

void Input::announce(const FrameHead& head, bool is_announced) {
  Incoming& incoming = *stores_.incomings.take();
  incoming.connection = &connection_;
  incoming.fate = Fate::open;
  incoming.is_held = true;
  incoming.is_announced = is_announced;
  incoming.number = head.number;
  incoming.bytes = head.bytes;
  incoming.got_bytes = 0;
  incoming.op = nullptr;
  if (free_slots_.empty()) {
    free_slots_.push_back(static_cast<std::uint32_t>(incomings_.size()));
    incomings_.push_back(nullptr);
  }
  incoming.slot = free_slots_.back();
  free_slots_.pop_back();
  incomings_[incoming.slot] = &incoming;
  if (!is_announced) {
    current_ = &incoming;
    left_bytes_ = head.bytes;
    padding_ = padding_of(head.bytes);
  }
  Arrival arrival;
  arrival.hold = static_cast<Hold*>(&incoming);
  arrival.bytes = head.bytes;
  arrival.match_header = head.header.match_header;
  arrival.sequence = head.header.sequence;
  arrival.is_remote = true;
  arrival.is_coming = !is_announced;
  if (!worker_.take_message(head.header, arrival)) release(incoming);
}

Incoming* Input::find_granted(std::uint32_t handle) const {
  Incoming* const found = handle < incomings_.size() ? incomings_[handle] : nullptr;
  return found != nullptr && found->is_announced && found->fate != Fate::open ? found : nullptr;
}

void Input::begin_data(const FrameHead& head) {
  Incoming* const incoming = find_granted(head.handle);
  if (incoming == nullptr || head.bytes > incoming->bytes - incoming->got_bytes ||
      (head.bytes % kAlignment != 0 && head.bytes != incoming->bytes - incoming->got_bytes)) {
    end_ = "it sends data that nobody has asked for";
    return;
  }
  current_ = incoming;
  left_bytes_ = head.bytes;
  padding_ = padding_of(head.bytes);
}

void Input::note_gone(const FrameHead& head) {
  Incoming* const incoming = find_granted(head.handle);
  if (incoming == nullptr) {
    end_ = "it takes back what nobody has asked for";
    return;
  }
  remove(*incoming);
  RecvOp* const op = incoming->op;
  free_incoming(worker_, stores_, *incoming);
  if (op != nullptr) worker_.on_fetched(*op, false);
}

void Input::remove(const Incoming& incoming) {
  incomings_[incoming.slot] = nullptr;
  free_slots_.push_back(incoming.slot);
}

// -- where bytes go -----------------------------------------------------------------------------------------

void Input::store(Incoming& incoming, const std::byte* data, std::size_t bytes) {
  if (incoming.fate == Fate::ranges) copy_to_ranges(*incoming.op, incoming.got_bytes, data, bytes);
  if (incoming.fate == Fate::memory) std::memcpy(incoming.memory.data() + incoming.got_bytes, data, bytes);
}

void Input::take_payload() {
  const std::size_t bytes = std::min(available_bytes(), left_bytes_);
  store(*current_, front(), bytes);
  begin_at_ += bytes;
  left_bytes_ -= bytes;
  current_->got_bytes += bytes;
  if (left_bytes_ == 0) end_payload();
}

void Input::deliver_some() {
  std::size_t bytes = std::min(available_bytes(), left_bytes_);
  if (bytes != left_bytes_) bytes -= bytes % kAlignment;
  if (bytes == 0) return;
  const Sink& sink = current_->op->sink;
  sink.deliver(sink.context, current_->got_bytes, {front(), bytes});
  begin_at_ += bytes;
  left_bytes_ -= bytes;
  current_->got_bytes += bytes;
  needs_bytes_ = false;
  if (left_bytes_ == 0) end_payload();
}

void Input::end_payload() {
  Incoming& incoming = *current_;
  current_ = nullptr;
  skip_bytes_ = padding_;
  if (incoming.is_complete()) complete(incoming);
}

void Input::complete(Incoming& incoming) {
  remove(incoming);
  incoming.connection = nullptr;
  if (incoming.fate == Fate::memory) {
    // Delivered where that is allowed, by pump().
    if (incoming.op != nullptr) worker_.note_piece(*incoming.op);
    return;
  }
  RecvOp* const op = incoming.op;
  free_incoming(worker_, stores_, incoming);
  if (op != nullptr) worker_.on_fetched(*op, true);
}

void Input::fail_all() {
  for (Incoming* incoming : incomings_) {
    if (incoming == nullptr) continue;
    incoming->connection = nullptr;
    if (incoming->is_held) continue;
    RecvOp* const op = incoming->op;
    free_incoming(worker_, stores_, *incoming);
    if (op != nullptr) worker_.on_fetched(*op, false);
  }
  incomings_.clear();
  free_slots_.clear();
  current_ = nullptr;
}

// -- what the worker wants ----------------------------------------------------------------------------------

void Input::fetch(Incoming& incoming, RecvOp& op) {
  incoming.is_held = false;
  incoming.op = &op;
  const Fate fate = op.sink.deliver != nullptr ? Fate::sink : Fate::ranges;
  if (incoming.is_announced) {
    incoming.fate = fate;
    FrameHead head;
    head.kind = FrameHead::Kind::grant;
    head.number = incoming.number;
    head.handle = incoming.slot;
    return output_.put(head);
  }
  if (incoming.fate == Fate::memory) {
    if (fate == Fate::sink) return;  // pieces would not be gapless: delivered when it is complete
    copy_to_ranges(op, 0, incoming.memory.data(), incoming.got_bytes);
    worker_.bounces().give_back(incoming.memory);
    incoming.memory = {};
    incoming.fate = fate;
    return;
  }
  incoming.fate = fate;
  window_bytes_ = fate == Fate::sink ? Block::kBytes : kShortWindow;
  if (fate == Fate::sink) return pump(op);
  // Most of it may be here by now. Later frames wait for the next pull().
  needs_bytes_ = false;
  take_payload();
  while (current_ == &incoming && end_.empty()) {
    const Read result = read();
    if (result == Read::nothing) return;
    if (current_ == &incoming) take_payload();
    if (result == Read::some) return;
  }
}

void Input::pump(const RecvOp& op) {
  const auto is_current = [&] { return current_ != nullptr && current_->op == &op; };
  if (!is_current() || current_->fate != Fate::sink) return;
  for (std::size_t bytes = 0; bytes < kMostBytesAtOnce && end_.empty(); bytes += Block::kBytes) {
    deliver_some();
    if (!is_current()) return;
    const Read result = read_block(Block::kBytes);
    if (result == Read::nothing) return;
    if (result == Read::some) break;
  }
  deliver_some();
}

void Input::cancel(Incoming& incoming) {
  worker_.bounces().give_back(incoming.memory);
  incoming.memory = {};
  incoming.op = nullptr;
  incoming.fate = Fate::nowhere;
}

void Input::release(Incoming& incoming) {
  incoming.is_held = false;
  if (!incoming.is_announced) return cancel(incoming);
  FrameHead head;
  head.kind = FrameHead::Kind::drop;
  head.number = incoming.number;
  remove(incoming);
  free_incoming(worker_, stores_, incoming);
  output_.put(head);
}

}  // namespace tutti::tcp
