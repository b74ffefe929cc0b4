// Abstract unix sockets that carry segment descriptors; see mailbox.hpp.
#include "transports/memory/shm/mailbox.hpp"

#include <fcntl.h>
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
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "runtime/net/network.hpp"

namespace tutti::shm {

namespace {

using memory::Nonce;

// Connections of strangers that never say anything must not pile up.
constexpr std::size_t kMaxConnections = 4096;
// So many are taken out of a packet; one that has more than one is no note.
constexpr std::size_t kMaxDescriptors = 8;

socklen_t make_name(const Nonce& socket_name, sockaddr_un* address) {
  *address = {};
  address->sun_family = AF_UNIX;
  // The first byte stays zero: the name lives in the kernel, not in the file system.
  const int n = std::snprintf(address->sun_path + 1, sizeof(address->sun_path) - 1, "tutti-%016llx%016llx",
                              static_cast<unsigned long long>(socket_name.high),
                              static_cast<unsigned long long>(socket_name.low));
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + static_cast<std::size_t>(n));
}

bool has_event(int fd, short events) {
  pollfd asked{fd, events, 0};
  return ::poll(&asked, 1, 0) > 0;
}

// A descriptor of a process, shared by all that watch it: a job may have a thousand groups. Null where the
// system has none, or no descriptor is left.
std::shared_ptr<const OwnedFd> watch_process(int pid) {
#ifdef SYS_pidfd_open
  struct Watched {
    std::mutex mutex;
    std::map<int, std::weak_ptr<const OwnedFd>> processes;
  };
  static auto* const kWatched = new Watched;  // peers may outlive static objects
  // A child of fork() may have come to be while another thread held the mutex: nobody waits for it.
  const std::unique_lock lock(kWatched->mutex, std::try_to_lock);
  if (lock) {
    const auto known = kWatched->processes.find(pid);
    std::shared_ptr<const OwnedFd> process =
        known == kWatched->processes.end() ? nullptr : known->second.lock();
    // The number of one that has ended may be another's now.
    if (process != nullptr && !has_event(process->get(), POLLIN)) return process;
    std::erase_if(kWatched->processes, [](const auto& entry) { return entry.second.expired(); });
  }
  const int fd = static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
  if (fd < 0) return nullptr;
  ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  auto process = std::make_shared<const OwnedFd>(fd);
  if (lock) kWatched->processes[pid] = process;
  return process;
#else
  static_cast<void>(pid);
  return nullptr;
#endif
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

Status out_of_descriptors(const char* what) {
  const char* const limit = errno == ENFILE ? "open files of the machine" : "open files, ulimit -n";
  return {StatusCode::resource_exhausted,
          std::string(what) + ": " + std::strerror(errno) + " (limit: " + limit + ")"};
}

Result<std::unique_ptr<Mailbox>> Mailbox::open(const Nonce& socket_name, const Nonce& nonce) {
  OwnedFd listener(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener.is_open() && is_out_of_descriptors(errno)) return out_of_descriptors("unix socket");
  if (!listener.is_open()) return unsupported(std::string("unix socket: ") + std::strerror(errno));
  sockaddr_un address{};
  const socklen_t bytes = make_name(socket_name, &address);
  if (::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), bytes) != 0 ||
      ::listen(listener.get(), SOMAXCONN) != 0) {
    return unsupported(std::string("abstract unix socket: ") + std::strerror(errno));
  }
  return std::unique_ptr<Mailbox>(new Mailbox(nonce, std::move(listener)));
}

Mailbox::Mailbox(const Nonce& nonce, OwnedFd listener) : nonce_(nonce), listener_(std::move(listener)) {
  connections_.reserve(kMaxConnections);  // peers connect when they like
}

// One packet after the other; false when the connection is to be dropped.
bool Mailbox::receive_from(int connection, const TakeNote& take) const {
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
    std::array<OwnedFd, kMaxDescriptors> fds;
    std::size_t fd_count = 0;
    for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
      if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
      for (std::size_t at = 0; at + sizeof(int) <= c->cmsg_len - CMSG_LEN(0); at += sizeof(int)) {
        int fd = -1;
        std::memcpy(&fd, CMSG_DATA(c) + at, sizeof(int));
        OwnedFd owned(fd);
        if (fd_count < fds.size()) fds[fd_count] = std::move(owned);
        ++fd_count;
      }
    }
    if (n == 0) return false;
    // A descriptor that this process has no room for is lost; its note is not.
    const bool is_whole = (message.msg_flags & MSG_CTRUNC) == 0 ? fd_count == 1 : fd_count == 0;
    const bool is_sound = n == sizeof(note) && (message.msg_flags & MSG_TRUNC) == 0 && is_whole &&
                          note.magic == memory::kLayoutMagic && note.to == nonce_ &&
                          note.index < memory::Instance::kMaxSegments;
    if (!is_sound) return false;
    take(note, std::move(fds[0]));
  }
}

Status Mailbox::receive(const TakeNote& take) {
  Status status;
  for (;;) {
    OwnedFd connection(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!connection.is_open()) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (is_out_of_descriptors(errno)) status = out_of_descriptors("cannot take the memory of a peer");
      break;
    }
    ucred who{};
    if (!is_same_user(connection.get(), &who)) continue;
    // Most have said all and are closed already.
    if (!receive_from(connection.get(), take)) continue;
    if (connections_.size() == kMaxConnections) connections_.erase(connections_.begin());
    connections_.push_back(std::move(connection));
  }
  connections_.erase(
      std::remove_if(connections_.begin(), connections_.end(),
                     [&](const OwnedFd& connection) { return !receive_from(connection.get(), take); }),
      connections_.end());
  return status;
}

Status SegmentSender::connect() {
  if (connection_.is_open() || is_gone_) return {};
  OwnedFd connection(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!connection.is_open() && is_out_of_descriptors(errno))
    return out_of_descriptors("cannot tell a peer our memory");
  if (!connection.is_open()) return {};
  sockaddr_un address{};
  const socklen_t bytes = make_name(socket_name_, &address);
  if (::connect(connection.get(), reinterpret_cast<sockaddr*>(&address), bytes) != 0) {
    // The name exists as long as the peer's transport: addresses are handed out only after that.
    if (errno == ECONNREFUSED) is_gone_ = true;
    if (errno == EACCES || errno == EPERM)
      return unsupported(std::string("abstract unix socket of a peer: ") + std::strerror(errno));
    return {};
  }
  ucred who{};
  if (!is_same_user(connection.get(), &who)) {
    is_gone_ = true;
    return {};
  }
  pid_ = who.pid;
  connection_ = std::move(connection);
  // A child that the peer forked keeps its socket open; the process itself cannot be faked.
  if (pid_ > 0 && process_ == nullptr) process_ = watch_process(pid_);
  return {};
}

void SegmentSender::disconnect() {
  if (process_ != nullptr) connection_.reset();
}

Result<bool> SegmentSender::push(const memory::Instance& instance) {
  if (sent_count_ == instance.segment_count()) return true;
  TUTTI_RETURN_IF_ERROR(connect());
  if (!connection_.is_open()) return false;
  for (; sent_count_ < instance.segment_count(); ++sent_count_) {
    const memory::Segment& segment = instance.segment(sent_count_);
    SegmentNote note;
    note.from = self_;
    note.to = peer_;
    note.index = sent_count_;
    note.file_offset = segment.file_offset;
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
      return false;  // as well where too many descriptors are in flight: peers take them out sooner or later
    }
  }
  disconnect();
  return true;
}

bool SegmentSender::is_gone(bool has_memory) {
  if (is_gone_) return true;
  if (!has_memory && !connection_.is_open()) {
    const bool is_all_sent = sent_count_ != 0;
    static_cast<void>(connect());  // finds out whether the name is still there
    if (is_all_sent) disconnect();
  }
  is_gone_ = is_gone_ || (connection_.is_open() && has_event(connection_.get(), POLLRDHUP)) ||
             (process_ != nullptr && has_event(process_->get(), POLLIN));
  return is_gone_;
}

}  // namespace tutti::shm
