// Plain sockets, and records in both directions. See channel.hpp.
#include "transports/message/tcp/channel.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

namespace tutti::tcp {

namespace {

// One whole record and the next one's beginning: a large message costs one call a record.
constexpr std::size_t kReadBytes = 2 * (kMaxRecordBytes + kRecordExtraBytes);

// Copies between the pieces of a call, one after the other, and memory.
class Cursor {
 public:
  explicit Cursor(std::span<iovec> pieces) : pieces_(pieces) {}
  std::size_t copy_out(std::span<std::byte> to) {
    return move(to.size(), [&](std::byte* piece, std::size_t done, std::size_t bytes) {
      std::memcpy(to.data() + done, piece, bytes);
    });
  }
  std::size_t copy_in(std::span<const std::byte> from) {
    return move(from.size(), [&](std::byte* piece, std::size_t done, std::size_t bytes) {
      std::memcpy(piece, from.data() + done, bytes);
    });
  }
  bool is_at_end() {
    while (index_ < pieces_.size() && offset_ == pieces_[index_].iov_len) {
      ++index_;
      offset_ = 0;
    }
    return index_ == pieces_.size();
  }

 private:
  template <class Copy>
  std::size_t move(std::size_t most, Copy copy) {
    std::size_t done = 0;
    while (done < most && !is_at_end()) {
      const std::size_t bytes = std::min(most - done, pieces_[index_].iov_len - offset_);
      copy(static_cast<std::byte*>(pieces_[index_].iov_base) + offset_, done, bytes);
      offset_ += bytes;
      done += bytes;
    }
    return done;
  }

  std::span<iovec> pieces_;
  std::size_t index_ = 0;
  std::size_t offset_ = 0;
};

}  // namespace

struct Channel::Sealed {
  explicit Sealed(const WireSession& session)
      : sending(session.terms, session.sending),
        receiving(session.terms, session.receiving),
        out(kMaxRecordBytes + kRecordExtraBytes),
        in(kReadBytes) {}

  // Opens the record at the front of `in`. False if more of it must come first, or it does not verify (`end`).
  bool open_next();
  // Reads more of the socket. False if nothing has come, or nothing will.
  bool receive(int fd);

  RecordKeys sending;
  RecordKeys receiving;
  std::vector<std::byte> out;
  std::size_t out_begin = 0;
  std::size_t out_end = 0;
  std::vector<std::byte> in;
  std::size_t in_begin = 0;
  std::size_t in_end = 0;
  std::span<const std::byte> opened;  // in `in`: verified, and not taken
  bool needs_bytes = true;            // what lies in `in` is no whole record
  bool is_drained = false;            // the socket had less than was asked for
  // How reading ended: an error number, or 0 at the end of the stream; -1: it has not.
  int end = -1;
};

bool Channel::Sealed::open_next() {
  if (end == EBADMSG) return false;
  needs_bytes = true;
  const std::size_t here = in_end - in_begin;
  if (here < kRecordHeadBytes) return false;
  const std::span<std::byte> front(in.data() + in_begin, here);
  const Result<std::size_t> bytes = receiving.record_bytes(front.first<kRecordHeadBytes>());
  if (bytes && here < *bytes) return false;
  needs_bytes = false;
  const Result<std::span<std::byte>> text =
      bytes ? receiving.open(front.first(*bytes)) : Result<std::span<std::byte>>(bytes.status());
  if (!text) {
    end = EBADMSG;
    return false;
  }
  in_begin += *bytes;
  needs_bytes = in_begin == in_end;
  opened = *text;
  return true;
}

bool Channel::Sealed::receive(int fd) {
  if (end >= 0 || is_drained) return false;
  if (in_begin != 0) {
    std::memmove(in.data(), in.data() + in_begin, in_end - in_begin);
    in_end -= in_begin;
    in_begin = 0;
  }
  const std::size_t asked = in.size() - in_end;
  const ssize_t got = ::recv(fd, in.data() + in_end, asked, MSG_DONTWAIT);
  if (got > 0) {
    in_end += static_cast<std::size_t>(got);
    is_drained = static_cast<std::size_t>(got) < asked;
    return true;
  }
  is_drained = true;
  if (got == 0) {
    end = 0;
  } else if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) {
    end = errno;
  }
  return false;
}

Channel::Channel() = default;
Channel::~Channel() = default;

void Channel::open(int fd, const WireSession& session) {
  fd_ = fd;
  if (session.is_sealed()) sealed_ = std::make_unique<Sealed>(session);
}

void Channel::close() {
  fd_ = -1;
  sealed_.reset();
}

void Channel::shut_down() {
  is_shut_ = true;
  if (fd_ >= 0) ::shutdown(fd_, SHUT_RDWR);
}

// -- plain --------------------------------------------------------------------------------------------------

// A single piece costs the kernel less in the calls without a list.
ssize_t Channel::write(std::span<iovec> pieces) {
  constexpr int kFlags = MSG_NOSIGNAL | MSG_DONTWAIT;
  if (sealed_ != nullptr) return write_records(pieces);
  if (pieces.size() == 1) return ::send(fd_, pieces[0].iov_base, pieces[0].iov_len, kFlags);
  msghdr message{};
  message.msg_iov = pieces.data();
  message.msg_iovlen = pieces.size();
  return ::sendmsg(fd_, &message, kFlags);
}

ssize_t Channel::read(std::span<iovec> pieces) {
  if (sealed_ != nullptr) return read_records(pieces);
  if (pieces.size() == 1) return ::recv(fd_, pieces[0].iov_base, pieces[0].iov_len, MSG_DONTWAIT);
  msghdr message{};
  message.msg_iov = pieces.data();
  message.msg_iovlen = pieces.size();
  return ::recvmsg(fd_, &message, MSG_DONTWAIT);
}

// -- records ------------------------------------------------------------------------------------------------

bool Channel::has_unsent_records() const { return sealed_->out_begin < sealed_->out_end; }

bool Channel::has_unread_records() const {
  return !sealed_->opened.empty() || !sealed_->needs_bytes || sealed_->end >= 0;
}

bool Channel::flush_records() {
  Sealed& sealed = *sealed_;
  if (!has_unsent_records()) return false;
  const ssize_t sent = ::send(fd_, sealed.out.data() + sealed.out_begin, sealed.out_end - sealed.out_begin,
                              MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent <= 0) return false;
  sealed.out_begin += static_cast<std::size_t>(sent);
  return true;
}

ssize_t Channel::write_records(std::span<iovec> pieces) {
  Sealed& sealed = *sealed_;
  flush_records();
  std::size_t taken = 0;
  for (Cursor from(pieces); !has_unsent_records() && !from.is_at_end();) {
    const std::span<std::byte> record(sealed.out);
    const std::size_t bytes = from.copy_out(record.subspan(kRecordHeadBytes, kMaxRecordBytes));
    sealed.sending.seal(record.first(bytes + kRecordExtraBytes));
    sealed.out_begin = 0;
    sealed.out_end = bytes + kRecordExtraBytes;
    taken += bytes;
    flush_records();
  }
  if (taken != 0) return static_cast<ssize_t>(taken);
  errno = EAGAIN;
  return -1;
}

ssize_t Channel::read_records(std::span<iovec> pieces) {
  Sealed& sealed = *sealed_;
  sealed.is_drained = false;
  std::size_t copied = 0;
  for (Cursor to(pieces); !to.is_at_end();) {
    const std::size_t part = to.copy_in(sealed.opened);
    sealed.opened = sealed.opened.subspan(part);
    copied += part;
    if (sealed.opened.empty() && !sealed.open_next() && !sealed.receive(fd_)) break;
  }
  if (copied != 0) return static_cast<ssize_t>(copied);
  errno = sealed.end < 0 ? EAGAIN : sealed.end;
  return sealed.end == 0 ? 0 : -1;
}

}  // namespace tutti::tcp
