// Frames out of what was read. Knows no socket; see input.hpp. payload.cpp holds what
// becomes of messages that do not come as a whole.
#include "transports/message/tcp/input.hpp"

#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>

namespace tutti::tcp {

using message::Arrival;
using message::Notice;

namespace {

// Messages up to here are waited for as a whole.
constexpr std::size_t kWholeBytes = std::size_t{4} << 10U;
// Longer ones are announced to the worker before it is known where they go, although they may be here. Its answer
// tells whether the next ones can be read straight into their buffers, and no block is held for them.
constexpr std::size_t kHeldBytes = std::size_t{8} << 10U;
constexpr std::size_t kLeastRoom = sizeof(FrameHead) + kWholeBytes + kAlignment;
// From here on the rest of a message is read straight to where it goes.
constexpr std::size_t kStraightBytes = std::size_t{4} << 10U;
// One call of pull() takes about so much: what waits to be sent gets its turn.
constexpr std::size_t kMostBytesRead = std::size_t{256} << 10U;
constexpr std::size_t kMostReadsAtOnce = 16;
constexpr std::size_t kMostPiecesRead = 32;

std::size_t round_up(std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

Input::~Input() {
  if (block_ != nullptr) stores_.blocks.retire(block_);
}

// -- reading ------------------------------------------------------------------------------------------------

bool Input::has_leftover() const {
  if (!end_.empty()) return true;
  if (current_ != nullptr && current_->fate == Incoming::Fate::open) return true;
  return channel_.has_unread() || (available_bytes() != 0 && !needs_bytes_);
}

bool Input::pull() {
  if (!channel_.is_open() || !end_.empty()) return false;
  if (current_ != nullptr && current_->fate == Incoming::Fate::open) {
    // The worker has looked, and nobody waits for it: other channels must not wait either.
    current_->memory = worker_.bounces().take(current_->bytes);
    if (current_->memory.empty()) {
      end_ = "there is no memory for a message of its";
      return false;
    }
    current_->fate = Incoming::Fate::memory;
  }
  const std::size_t before = available_bytes();
  const bool may_read = parse();
  bool has_moved = available_bytes() != before;
  if (!may_read) return has_moved;
  for (std::size_t reads = 0; reads < kMostReadsAtOnce; ++reads) {
    const Read result = read();
    if (result == Read::nothing) return has_moved;
    has_moved = true;
    // A short read means that the socket is empty: no further call.
    if (!parse() || result == Read::some) return true;
  }
  return true;
}

Input::Read Input::read() {
  using Fate = Incoming::Fate;
  const bool goes_straight =
      current_ != nullptr && (current_->fate == Fate::ranges || current_->fate == Fate::memory);
  if (goes_straight && available_bytes() == 0 && left_bytes_ >= kStraightBytes) return read_straight();
  return read_block(current_ != nullptr ? Block::kBytes : window_bytes_);
}

Input::Read Input::note_end(ssize_t got) {
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return Read::nothing;
  is_forged_ = got < 0 && errno == EBADMSG;
  end_ = is_forged_ ? forged_record().message()
         : got == 0 ? "it has closed the connection"
                    : std::strerror(errno);
  return Read::nothing;
}

// Where in a unit of alignment the stream is.
std::size_t Input::phase() const {
  const std::size_t left = current_ != nullptr ? left_bytes_ + padding_ : skip_bytes_;
  return (kAlignment - left % kAlignment) % kAlignment;
}

// A place in the block for what comes next, behind what is there and was not taken.
void Input::make_room() {
  const std::size_t kept = available_bytes();
  if (block_ == nullptr) {
    block_ = stores_.blocks.take();
    begin_at_ = end_at_ = phase();
  } else if (kept == 0 && block_->message_count == 0) {
    begin_at_ = end_at_ = phase();
  } else if (Block::kBytes - (kept == 0 ? end_at_ : begin_at_) < kLeastRoom + kAlignment) {
    // The bytes kept are few, and begin where the stream is aligned.
    Block* const old = block_;
    const std::byte* const from = front();
    if (old->message_count != 0) block_ = stores_.blocks.take();
    const std::size_t at = kept == 0 ? phase() : begin_at_ % kAlignment;
    std::memmove(block_->data() + at, from, kept);
    if (old != block_) stores_.blocks.retire(old);
    begin_at_ = at;
    end_at_ = at + kept;
  }
}

Input::Read Input::read_block(std::size_t most) {
  make_room();
  const std::size_t asked = std::min(most, Block::kBytes - end_at_);
  iovec piece{block_->data() + end_at_, asked};
  const ssize_t got = channel_.read({&piece, 1});
  if (got <= 0) return note_end(got);
  end_at_ += static_cast<std::size_t>(got);
  needs_bytes_ = false;
  return static_cast<std::size_t>(got) == asked ? Read::all_asked : Read::some;
}

// The payload to where it goes, and what comes behind it to the block, in one call.
Input::Read Input::read_straight() {
  std::array<iovec, kMostPiecesRead + 1> pieces;
  std::size_t count = 0, asked = 0;
  const std::size_t wanted = std::min(left_bytes_, kMostBytesRead);
  const auto add = [&](std::byte* to, std::size_t bytes) {
    pieces[count++] = {to, bytes};
    asked += bytes;
  };
  if (current_->fate == Incoming::Fate::memory) {
    add(current_->memory.data() + current_->got_bytes, wanted);
  } else {
    std::size_t skipped = current_->got_bytes;
    for (const iovec& item : current_->op->ranges.items()) {
      if (asked == wanted || count == kMostPiecesRead) break;
      if (skipped < item.iov_len) {
        add(static_cast<std::byte*>(item.iov_base) + skipped,
            std::min(item.iov_len - skipped, wanted - asked));
      }
      skipped -= std::min(skipped, item.iov_len);
    }
  }
  const std::size_t payload = asked;
  if (block_ == nullptr) block_ = stores_.blocks.take();
  std::size_t base = block_->message_count == 0 ? 0 : round_up(end_at_);
  if (Block::kBytes < base + kAlignment + kShortWindow) {
    stores_.blocks.retire(block_);
    block_ = stores_.blocks.take();
    base = 0;
  }
  const std::size_t behind = base + (kAlignment - padding_) % kAlignment;
  if (payload == left_bytes_) add(block_->data() + behind, kShortWindow);
  const ssize_t got = channel_.read({pieces.data(), count});
  if (got <= 0) return note_end(got);
  const std::size_t taken = std::min(static_cast<std::size_t>(got), payload);
  current_->got_bytes += taken;
  left_bytes_ -= taken;
  begin_at_ = end_at_ = base + phase();
  if (left_bytes_ == 0) {
    begin_at_ = behind;
    end_at_ = behind + (static_cast<std::size_t>(got) - taken);
    end_payload();
  }
  needs_bytes_ = false;
  return static_cast<std::size_t>(got) == asked ? Read::all_asked : Read::some;
}

// -- frames -------------------------------------------------------------------------------------------------

bool Input::parse() {
  needs_bytes_ = false;
  while (end_.empty()) {
    const std::size_t skipped = std::min(skip_bytes_, available_bytes());
    begin_at_ += skipped;
    skip_bytes_ -= skipped;
    if (current_ != nullptr) {
      if (current_->fate == Incoming::Fate::open) return false;
      if (current_->fate == Incoming::Fate::sink) {
        if (available_bytes() >= std::min(kAlignment, left_bytes_)) {
          worker_.note_piece(*current_->op);
          return false;
        }
      } else {
        take_payload();
      }
      if (current_ == nullptr) continue;
    } else if (available_bytes() >= sizeof(FrameHead)) {
      FrameHead head;
      std::memcpy(&head, front(), sizeof head);
      if (!is_sound(head, peer_)) {
        end_ = "what it sends makes no sense";
        return false;
      }
      if (take_frame(head)) continue;
    }
    needs_bytes_ = true;
    return true;
  }
  return false;
}

bool Input::take_frame(const FrameHead& head) {
  using Kind = FrameHead::Kind;
  if (head.kind == Kind::message) return take_message(head);
  begin_at_ += sizeof(FrameHead);
  switch (head.kind) {
    case Kind::lost: {
      Arrival arrival;
      arrival.bytes = head.bytes;
      arrival.match_header = head.header.match_header;
      arrival.sequence = head.header.sequence;
      arrival.is_lost = true;
      worker_.take_message(head.header, arrival);
      break;
    }
    case Kind::notice: {
      const Notice notice = to_notice(head);
      has_announced_close_ = has_announced_close_ || notice.kind == Notice::Kind::closing;
      if (const std::optional<Notice> answer = worker_.take_notice(notice)) output_.put(to_frame(*answer));
      break;
    }
    case Kind::announce:
      announce(head, true);
      break;
    case Kind::grant:
      output_.grant(head.number, head.handle);
      break;
    case Kind::drop:
      output_.drop(head.number);
      break;
    case Kind::data:
      begin_data(head);
      break;
    case Kind::gone:
      note_gone(head);
      break;
    case Kind::message:
      break;
  }
  return true;
}

bool Input::take_message(const FrameHead& head) {
  const std::size_t here = available_bytes() - sizeof(FrameHead);
  if (here < head.bytes && head.bytes <= kWholeBytes) return false;
  if (here < head.bytes || head.bytes > kHeldBytes) {
    begin_at_ += sizeof(FrameHead);
    announce(head, false);
    return true;
  }
  Arrival arrival;
  arrival.bytes = head.bytes;
  arrival.match_header = head.header.match_header;
  arrival.sequence = head.header.sequence;
  if (head.bytes != 0) {
    arrival.data = front() + sizeof(FrameHead);
    arrival.hold = static_cast<Hold*>(block_);
    ++block_->message_count;
  }
  begin_at_ += sizeof(FrameHead) + head.bytes;
  skip_bytes_ = padding_of(head.bytes);
  const bool is_kept = worker_.take_message(head.header, arrival);
  if (!is_kept && arrival.hold != nullptr) --block_->message_count;
  return true;
}

}  // namespace tutti::tcp
