// Writing frames. Knows no receive; see output.hpp.
#include "transports/message/tcp/output.hpp"

#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace tutti::tcp {

using message::SendOp;
using message::WireDriver;

namespace {

constexpr std::size_t kMostPiecesWritten = 64;
// One call hands so much to the kernel: what has come meanwhile is to be read while it is in the cache.
constexpr std::size_t kMostBytesWritten = std::size_t{256} << 10U;
constexpr std::array<std::byte, kAlignment> kPadding{};
// A frame with so little payload is put together first: one piece costs the kernel less than three.
constexpr std::size_t kShortBytes = 1024;

// The pieces that one call writes.
class Pieces {
 public:
  bool has_room() const { return count_ < pieces_.size() && bytes_ < kMostBytesWritten; }
  // False if it does not go in as a whole.
  bool add(const void* data, std::size_t bytes) {
    const std::size_t taken = has_room() ? std::min(bytes, kMostBytesWritten - bytes_) : 0;
    if (taken != 0) pieces_[count_++] = {const_cast<void*>(data), taken};
    bytes_ += taken;
    return taken == bytes;
  }
  // From `skipped` on, so many bytes of a list.
  bool add(std::span<const iovec> list, std::size_t skipped, std::size_t bytes) {
    for (const iovec& item : list) {
      if (bytes == 0) break;
      if (skipped >= item.iov_len) {
        skipped -= item.iov_len;
        continue;
      }
      const std::size_t part = std::min(item.iov_len - skipped, bytes);
      if (!add(static_cast<const std::byte*>(item.iov_base) + skipped, part)) return false;
      skipped = 0;
      bytes -= part;
    }
    return true;
  }
  std::size_t bytes() const { return bytes_; }
  ssize_t write(Channel& channel) { return channel.write({pieces_.data(), count_}); }

 private:
  std::array<iovec, kMostPiecesWritten> pieces_;
  std::size_t count_ = 0;
  std::size_t bytes_ = 0;
};

// Adds the unwritten part of a frame. False if it does not fit.
bool add_rest(Pieces& pieces, const Outgoing& out) {
  const std::size_t payload = payload_bytes(out.head);
  std::size_t written = out.written_bytes;
  if (written < sizeof(FrameHead)) {
    if (!pieces.add(reinterpret_cast<const std::byte*>(&out.head) + written, sizeof(FrameHead) - written))
      return false;
    written = sizeof(FrameHead);
  }
  const std::size_t done = written - sizeof(FrameHead);
  if (done < payload) {
    const bool is_all = out.op != nullptr
                            ? pieces.add(out.op->ranges.items(), out.offset + done, payload - done)
                            : pieces.add(out.copy.data() + (done - out.copied_from), payload - done);
    if (!is_all) return false;
  }
  const std::size_t padded = std::max(done, payload) - payload;
  return pieces.add(kPadding.data(), padding_of(payload) - padded);
}

std::size_t write_short(Channel& channel, const FrameHead& head, const message::RangeList& ranges) {
  alignas(kAlignment) std::array<std::byte, sizeof(FrameHead) + kShortBytes + kAlignment> frame;
  std::memcpy(frame.data(), &head, sizeof head);
  std::byte* to = frame.data() + sizeof head;
  for (const iovec& item : ranges.items()) {
    std::memcpy(to, item.iov_base, item.iov_len);
    to += item.iov_len;
  }
  const std::size_t padding = padding_of(head.bytes);
  std::memset(to, 0, padding);
  iovec piece{frame.data(), sizeof head + head.bytes + padding};
  const ssize_t sent = channel.write({&piece, 1});
  return sent < 0 ? 0 : static_cast<std::size_t>(sent);
}

std::size_t write_long(Channel& channel, const FrameHead& head, const message::RangeList& ranges) {
  Pieces pieces;
  if (pieces.add(&head, sizeof head) && pieces.add(ranges.items(), 0, head.bytes))
    pieces.add(kPadding.data(), padding_of(head.bytes));
  const ssize_t sent = pieces.write(channel);
  return sent < 0 ? 0 : static_cast<std::size_t>(sent);
}

}  // namespace

Output::~Output() {
  for (; !queue_.empty(); queue_.pop_front()) free(*queue_.front());
  for (Outgoing* out : announced_) free(*out);
}

void Output::free(Outgoing& out) {
  worker_.bounces().give_back(out.copy);
  out = {};
  pool_.give_back(&out);
}

void Output::enqueue(Outgoing& out) {
  out.stage = Outgoing::Stage::queued;
  queue_.push_back(&out);
}

WireDriver::Sent Output::send(SendOp& op) {
  const std::size_t bytes = op.ranges.bytes();
  FrameHead head;
  head.header = op.header;
  head.bytes = bytes;
  std::size_t written = 0;
  if (bytes > kMaxMessageBytes) {
    head.kind = FrameHead::Kind::announce;
    head.number = next_number_++;
  } else if (queue_.empty() && channel_.is_writable()) {
    // The usual case: nothing waits, and all of it goes at once.
    written =
        bytes <= kShortBytes ? write_short(channel_, head, op.ranges) : write_long(channel_, head, op.ranges);
    if (written == sizeof(FrameHead) + bytes + padding_of(bytes)) return WireDriver::Sent::done;
  }
  Outgoing* out = pool_.take();
  out->output = this;
  out->head = head;
  out->written_bytes = written;
  out->op = &op;
  out->message_bytes = bytes;
  op.work = out;
  enqueue(*out);
  if (bytes > kMaxMessageBytes) push();
  return WireDriver::Sent::pending;
}

void Output::put(const FrameHead& head) {
  Outgoing* out = pool_.take();
  out->head = head;
  const bool was_empty = queue_.empty();
  enqueue(*out);
  if (was_empty) push();
}

bool Output::push() {
  if (!channel_.is_writable()) return false;
  const bool has_flushed = channel_.flush();
  if (queue_.empty()) return has_flushed;
  Pieces pieces;
  for (std::size_t i = 0; i < queue_.count() && add_rest(pieces, *queue_[i]); ++i) {
  }
  const ssize_t sent = pieces.write(channel_);
  if (sent <= 0) return has_flushed;
  auto left = static_cast<std::size_t>(sent);
  while (left > 0) {
    Outgoing& front = *queue_.front();
    const std::size_t part = std::min(left, front.frame_bytes() - front.written_bytes);
    front.written_bytes += part;
    left -= part;
    if (front.written_bytes == front.frame_bytes()) finish_front();
  }
  return true;
}

void Output::finish_front() {
  Outgoing& out = *queue_.front();
  queue_.pop_front();
  if (out.head.kind == FrameHead::Kind::announce && out.op != nullptr) {
    out.stage = Outgoing::Stage::announced;
    announced_.push_back(&out);
  } else if (out.head.kind == FrameHead::Kind::data && out.op != nullptr &&
             out.offset + out.head.bytes < out.message_bytes) {
    out.offset += out.head.bytes;
    make_data(out);
    enqueue(out);
  } else {
    finish(out);
  }
}

void Output::finish(Outgoing& out) {
  SendOp* const op = out.op;
  free(out);
  if (op != nullptr) worker_.on_sent(*op, true);
}

// The next part of a message that the receiver has asked for.
void Output::make_data(Outgoing& out) {
  out.head.kind = FrameHead::Kind::data;
  out.head.bytes = std::min(out.message_bytes - out.offset, kMaxDataBytes);
  out.written_bytes = 0;
}

// -- announced messages -------------------------------------------------------------------------------------

Outgoing* Output::find_announced(std::uint64_t number) const {
  const auto found = std::find_if(announced_.begin(), announced_.end(),
                                  [number](const Outgoing* out) { return out->head.number == number; });
  return found == announced_.end() ? nullptr : *found;
}

void Output::forget_announced(const Outgoing& out) { std::erase(announced_, &out); }

void Output::put_gone(std::uint32_t handle) {
  FrameHead head;
  head.kind = FrameHead::Kind::gone;
  head.handle = handle;
  put(head);
}

void Output::grant(std::uint64_t number, std::uint32_t handle) {
  Outgoing* const out = find_announced(number);
  if (out == nullptr) return put_gone(handle);  // it was taken back meanwhile
  forget_announced(*out);
  out->head.handle = handle;
  make_data(*out);
  const bool was_empty = queue_.empty();
  enqueue(*out);
  if (was_empty) push();
}

void Output::drop(std::uint64_t number) {
  Outgoing* const out = find_announced(number);
  if (out == nullptr) return;
  forget_announced(*out);
  finish(*out);
}

// -- taking back --------------------------------------------------------------------------------------------

// A frame that has begun is sent to its end.
void Output::copy_rest(Outgoing& out) {
  const std::size_t payload = payload_bytes(out.head);
  const std::size_t written = std::max(out.written_bytes, sizeof(FrameHead)) - sizeof(FrameHead);
  const std::size_t done = std::min(written, payload);
  std::size_t skipped = out.offset + done;
  std::size_t left = payload - done;
  out.copied_from = done;
  if (left == 0) return;
  out.copy = worker_.bounces().take(left);
  if (out.copy.empty()) {  // then the connection ends here, which reading it will tell
    channel_.shut_down();
    return;
  }
  std::byte* to = out.copy.data();
  for (const iovec& item : out.op->ranges.items()) {
    if (skipped >= item.iov_len) {
      skipped -= item.iov_len;
      continue;
    }
    const std::size_t part = std::min(item.iov_len - skipped, left);
    std::memcpy(to, static_cast<const std::byte*>(item.iov_base) + skipped, part);
    to += part;
    left -= part;
    skipped = 0;
    if (left == 0) break;
  }
}

void Output::cancel(SendOp& op) {
  auto& out = *static_cast<Outgoing*>(op.work);
  if (out.stage == Outgoing::Stage::announced) {
    forget_announced(out);
    return free(out);
  }
  const bool is_data = out.head.kind == FrameHead::Kind::data;
  const bool is_last = !is_data || out.offset + out.head.bytes == out.message_bytes;
  if (out.written_bytes != 0) {
    copy_rest(out);
  } else {
    // A message's place in its channel is taken, and the receiver counts.
    out.head.kind = is_data ? FrameHead::Kind::gone : FrameHead::Kind::lost;
  }
  out.op = nullptr;
  if (out.written_bytes != 0 && !is_last) put_gone(out.head.handle);
}

void Output::fail_all() {
  const auto fail = [&](Outgoing& out) {
    SendOp* const op = out.op;
    if (op == nullptr) return;
    cancel(*op);
    worker_.on_sent(*op, false);
  };
  const std::size_t count = queue_.count();
  for (std::size_t i = 0; i < count; ++i) fail(*queue_[i]);
  while (!announced_.empty()) fail(*announced_.back());
  for (; !queue_.empty(); queue_.pop_front()) free(*queue_.front());
}

}  // namespace tutti::tcp
