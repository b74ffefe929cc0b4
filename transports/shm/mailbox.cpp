// Abstract unix sockets that carry segment descriptors; see mailbox.hpp.
#include "transports/shm/mailbox.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>

namespace tutti::shm {

namespace {

using memory::Nonce;

// Connections of strangers that never say anything must not pile up.
constexpr std::size_t kMaxConnections = 4096;
// So many are taken out of a packet; one that has more than one is no note.
constexpr std::size_t kMaxDescriptors = 8;

socklen_t make_name(const Nonce& nonce, sockaddr_un* address) {
  *address = {};
  address->sun_family = AF_UNIX;
  // The first byte stays zero: the name lives in the kernel, not in the file system.
  const int n =
      std::snprintf(address->sun_path + 1, sizeof(address->sun_path) - 1, "tutti-%016llx%016llx",
                    static_cast<unsigned long long>(nonce.high), static_cast<unsigned long long>(nonce.low));
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + static_cast<std::size_t>(n));
}

bool get_credentials(int fd, ucred* who) {
  socklen_t bytes = sizeof(*who);
  return ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, who, &bytes) == 0 && bytes == sizeof(*who);
}

bool is_same_user(int fd, ucred* who) { return get_credentials(fd, who) && who->uid == ::geteuid(); }

union ControlBuffer {
  cmsghdr header;  // for its alignment
  std::array<char, CMSG_SPACE(sizeof(int) * kMaxDescriptors)> bytes;
};

}  // namespace

Fd::~Fd() {
  if (fd_ >= 0) ::close(fd_);
}

Result<std::unique_ptr<Mailbox>> Mailbox::open(const Nonce& nonce) {
  Fd listener(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener) {
    const StatusCode code =
        errno == EMFILE || errno == ENFILE ? StatusCode::resource_exhausted : StatusCode::unsupported;
    return Status(code,
                  std::string("unix socket: ") + std::strerror(errno) +
                      (code == StatusCode::resource_exhausted ? " (limit: open files, ulimit -n)" : ""));
  }
  sockaddr_un address{};
  const socklen_t bytes = make_name(nonce, &address);
  if (::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), bytes) != 0 ||
      ::listen(listener.get(), SOMAXCONN) != 0) {
    return unsupported(std::string("abstract unix socket: ") + std::strerror(errno));
  }
  return std::unique_ptr<Mailbox>(new Mailbox(nonce, std::move(listener)));
}

Mailbox::Mailbox(const Nonce& nonce, Fd listener) : nonce_(nonce), listener_(std::move(listener)) {
  connections_.reserve(kMaxConnections);  // peers connect when they like
}

// One packet after the other; false when the connection is to be dropped.
bool Mailbox::receive_from(int connection, const std::function<void(const SegmentNote&, Fd)>& take) const {
  for (;;) {
    SegmentNote note;
    iovec part{&note, sizeof(note)};
    ControlBuffer control{};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = &control;
    message.msg_controllen = sizeof(control);
    const ssize_t n = ::recvmsg(connection, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    // Own every descriptor first, whatever else the packet says, so that none is left behind.
    std::array<Fd, kMaxDescriptors> fds;
    std::size_t fd_count = 0;
    for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
      if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
      for (std::size_t at = 0; at + sizeof(int) <= c->cmsg_len - CMSG_LEN(0); at += sizeof(int)) {
        int fd = -1;
        std::memcpy(&fd, CMSG_DATA(c) + at, sizeof(int));
        Fd owned(fd);
        if (fd_count < fds.size()) fds[fd_count] = std::move(owned);
        ++fd_count;
      }
    }
    if (n == 0) return false;
    const bool is_sound = n == sizeof(note) && (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == 0 &&
                          note.magic == memory::kLayoutMagic && note.to == nonce_ &&
                          note.index < memory::Instance::kMaxSegments && fd_count == 1;
    if (!is_sound) return false;
    take(note, std::move(fds[0]));
  }
}

void Mailbox::receive(const std::function<void(const SegmentNote&, Fd)>& take) {
  for (;;) {
    Fd connection(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!connection) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      break;
    }
    ucred who{};
    if (!is_same_user(connection.get(), &who)) continue;
    if (connections_.size() == kMaxConnections) connections_.erase(connections_.begin());
    connections_.push_back(std::move(connection));
  }
  connections_.erase(
      std::remove_if(connections_.begin(), connections_.end(),
                     [&](const Fd& connection) { return !receive_from(connection.get(), take); }),
      connections_.end());
}

bool Courier::connect() {
  if (connection_) return true;
  if (is_gone_) return false;
  Fd connection(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!connection) return false;
  sockaddr_un address{};
  const socklen_t bytes = make_name(peer_, &address);
  if (::connect(connection.get(), reinterpret_cast<sockaddr*>(&address), bytes) != 0) {
    // The name exists as long as the peer's transport: addresses are handed out only after that.
    if (errno == ECONNREFUSED) is_gone_ = true;
    return false;
  }
  ucred who{};
  if (!is_same_user(connection.get(), &who)) {
    is_gone_ = true;
    return false;
  }
  pid_ = who.pid;
  connection_ = std::move(connection);
#ifdef SYS_pidfd_open
  // A child that the peer forked keeps the connection open; the process itself cannot be faked.
  if (pid_ > 0) process_ = Fd(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)));
#endif
  return true;
}

bool Courier::push(const memory::Instance& instance) {
  if (sent_count_ == instance.segment_count()) return true;
  if (!connect()) return false;
  for (; sent_count_ < instance.segment_count(); ++sent_count_) {
    const memory::Segment& segment = instance.segment(sent_count_);
    SegmentNote note;
    note.from = self_;
    note.to = peer_;
    note.index = sent_count_;
    note.bytes = segment.bytes;
    iovec part{&note, sizeof(note)};
    ControlBuffer control{};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = &control;
    message.msg_controllen = CMSG_SPACE(sizeof(int));
    cmsghdr* c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(c), &segment.fd, sizeof(int));
    if (::sendmsg(connection_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL) != sizeof(note)) {
      if (errno == EPIPE || errno == ECONNRESET) is_gone_ = true;
      return false;
    }
  }
  return true;
}

bool Courier::is_gone() {
  if (is_gone_ || !connect()) return is_gone_;
  std::array<pollfd, 2> fds{pollfd{connection_.get(), POLLRDHUP, 0}, pollfd{process_.get(), POLLIN, 0}};
  if (::poll(fds.data(), fds.size(), 0) > 0) is_gone_ = true;  // negative descriptors are left out
  return is_gone_;
}

}  // namespace tutti::shm
