// Unix and TCP sockets of control connections. Knows no rank and no protocol state.
#include "runtime/job/frame_socket.hpp"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <span>
#include <utility>

#include "runtime/base/fork_guard.hpp"
#include "runtime/net/network.hpp"

namespace tutti {
namespace {

constexpr std::size_t kReadBytes = 16384;  // on the stack, whose touched pages stay

std::string describe(const std::string& name) {
  return is_path_name(name) ? "socket " + name : "abstract socket @" + name;
}

// An abstract address has a length: its first byte is zero, and no zero ends it.
socklen_t fill_address(const std::string& name, sockaddr_un& address) {
  address = {};
  address.sun_family = AF_UNIX;
  TUTTI_ASSERT(name.size() < sizeof address.sun_path, "meeting points are short");
  if (is_path_name(name)) {
    name.copy(address.sun_path, name.size());
    return sizeof address;
  }
  name.copy(address.sun_path + 1, name.size());
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

Status system_error(const char* what, const std::string& name) {
  return internal_error(fmt::format("{} for {}: {}", what, describe(name), describe_system_error(errno)));
}

Status describe_end(int error) {
  const bool is_silent = error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH;
  const StatusCode code = is_silent             ? StatusCode::timeout
                          : error == ECONNRESET ? StatusCode::aborted
                                                : StatusCode::peer_failed;
  return Status(code, fmt::format("connection lost ({})", std::strerror(error)));
}

int make_socket() { return ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); }

}  // namespace

bool is_path_name(const std::string& name) { return name.starts_with('/'); }

FrameSocket::FrameSocket(int fd) : fd_(fd) { close_on_fork(fd); }

FrameSocket::FrameSocket(FrameSocket&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      parser_(std::move(other.parser_)),
      records_(std::move(other.records_)),
      out_(std::move(other.out_)),
      sent_(other.sent_),
      broken_(std::move(other.broken_)) {}

FrameSocket& FrameSocket::operator=(FrameSocket&& other) noexcept {
  if (this != &other) {
    close();
    fd_ = std::exchange(other.fd_, -1);
    parser_ = std::move(other.parser_);
    records_ = std::move(other.records_);
    out_ = std::move(other.out_);
    sent_ = other.sent_;
    broken_ = std::move(other.broken_);
  }
  return *this;
}

void FrameSocket::close() {
  if (fd_ < 0) return;
  forget_on_fork(fd_);
  ::close(fd_);
  fd_ = -1;
}

void FrameSocket::protect(const WireSession& session) {
  if (!session.is_sealed()) return;
  records_ =
      std::make_unique<Records>(Records{RecordKeys(session.terms, session.sending),
                                        RecordKeys(session.terms, session.receiving), parser_.take_rest()});
}

void FrameSocket::send(const Frame& frame) {
  if (records_ == nullptr) return append_frame(out_, frame);
  std::string plain;
  append_frame(plain, frame);
  for (std::string_view rest = plain; !rest.empty();) {
    const std::string_view part = rest.substr(0, kMaxRecordBytes);
    const std::size_t at = out_.size();
    out_.append(kRecordHeadBytes, '\0').append(part).append(kRecordTagBytes, '\0');
    records_->sending.seal(std::as_writable_bytes(std::span(out_).subspan(at)));
    rest.remove_prefix(part.size());
  }
}

// Feeds the parser with the bytes of all whole records.
Status FrameSocket::open_records(std::string_view bytes) {
  // As if it had been reset: the other end may be alive, and another connection serve.
  const auto forged = [] { return Status(StatusCode::aborted, forged_record().message()); };
  std::string& in = records_->in;
  in += bytes;
  std::size_t done = 0;
  while (in.size() - done >= kRecordHeadBytes) {
    const std::span<std::byte> front = std::as_writable_bytes(std::span(in).subspan(done));
    const Result<std::size_t> record_bytes =
        records_->receiving.record_bytes(front.first<kRecordHeadBytes>());
    if (!record_bytes) return forged();
    if (front.size() < *record_bytes) break;
    const Result<std::span<std::byte>> text = records_->receiving.open(front.first(*record_bytes));
    if (!text) return forged();
    parser_.feed({reinterpret_cast<const char*>(text->data()), text->size()});
    done += *record_bytes;
  }
  in.erase(0, done);
  if (in.empty()) clear_buffer(in);
  return {};
}

Status FrameSocket::flush() {
  while (has_output()) {
    const ssize_t written = ::send(fd_, out_.data() + sent_, out_.size() - sent_, MSG_NOSIGNAL);
    if (written >= 0) {
      sent_ += static_cast<std::size_t>(written);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return {};
    } else if (errno != EINTR) {
      return broken_ = describe_end(errno);
    }
  }
  clear_buffer(out_);
  sent_ = 0;
  return {};
}

Status FrameSocket::receive(std::vector<Frame>& frames) {
  std::array<char, kReadBytes> bytes;
  ssize_t got = 0;
  while ((got = ::recv(fd_, bytes.data(), bytes.size(), 0)) < 0 && errno == EINTR) {
  }
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return {};
  // The kernel tells an error once: if writing met it, reading finds an end only.
  if (got == 0) return broken_ ? Status(StatusCode::peer_failed, "connection closed") : broken_;
  if (got < 0) return describe_end(errno);
  const std::string_view arrived(bytes.data(), static_cast<std::size_t>(got));
  if (records_ != nullptr) {
    Status status = open_records(arrived);
    const Status parsed = parse(frames);  // those before a record that does not verify are sound
    return status ? parsed : status;
  }
  parser_.feed(arrived);
  return parse(frames);
}

Status FrameSocket::parse(std::vector<Frame>& frames) {
  for (;;) {
    Result<std::optional<Frame>> frame = parser_.next();
    if (!frame) return frame.status();
    if (!frame->has_value()) return {};
    frames.push_back(**std::move(frame));
    const FrameType type = frames.back().type;
    if (type == FrameType::proof || type == FrameType::welcome) return {};
  }
}

Result<int> listen_at(const std::string& name) {
  const int fd = make_socket();
  if (fd < 0) return system_error("socket", name);
  sockaddr_un address;
  const socklen_t address_bytes = fill_address(name, address);
  if (::bind(fd, reinterpret_cast<const sockaddr*>(&address), address_bytes) != 0 ||
      ::listen(fd, SOMAXCONN) != 0) {
    const bool is_taken = errno == EADDRINUSE;
    const Status status = is_taken ? Status(StatusCode::resource_exhausted,
                                            fmt::format("{} is taken: another process is rank 0 of a "
                                                        "job with the same address, port and id",
                                                        describe(name)))
                                   : system_error("bind", name);
    ::close(fd);
    return status;
  }
  return fd;
}

Result<int> try_connect(const std::string& name) {
  const int fd = make_socket();
  if (fd < 0 && is_out_of_descriptors(errno)) {
    return Status(StatusCode::resource_exhausted,
                  fmt::format("no connection to rank 0: {}", describe_system_error(errno)));
  }
  if (fd < 0) return system_error("socket", name);
  sockaddr_un address;
  const socklen_t address_bytes = fill_address(name, address);
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), address_bytes) != 0) {
    // EAGAIN: the listener's queue is full; it will drain.
    const bool is_too_early = errno == ECONNREFUSED || errno == ENOENT || errno == EAGAIN || errno == EINTR;
    const Status status = is_too_early ? Status() : system_error("connect", name);
    ::close(fd);
    if (!status) return status;
    return -1;
  }
  if (!is_same_user(fd, nullptr)) {
    ::close(fd);
    return Status(StatusCode::refused, fmt::format("{} belongs to another user", describe(name)));
  }
  return fd;
}

std::pair<Listening, int> ask_listener(const std::string& name) {
  const int fd = make_socket();
  if (fd < 0) return {Listening::unknown, -1};
  sockaddr_un address;
  const socklen_t address_bytes = fill_address(name, address);
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), address_bytes) == 0)
    return {Listening::yes, fd};
  const bool is_refused = errno == ECONNREFUSED || errno == ENOENT;
  ::close(fd);
  return {is_refused ? Listening::no : Listening::unknown, -1};
}

Status prepare_name(const std::string& name) {
  if (!is_path_name(name)) return {};
  const std::string directory = name.substr(0, name.rfind('/'));
  if (::mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST)
    return internal_error(fmt::format("cannot make the directory {}: {}", directory, std::strerror(errno)));
  struct stat status {};
  if (::lstat(directory.c_str(), &status) != 0 || !S_ISDIR(status.st_mode) || status.st_uid != ::geteuid() ||
      (status.st_mode & 077U) != 0) {
    return Status(StatusCode::refused,
                  fmt::format("{} is not a directory of this user alone (mode 0700); set TUTTI_SECRET, with "
                              "which the ranks need none",
                              directory));
  }
  const Result<int> other = try_connect(name);
  if (other && *other < 0) remove_name(name);
  if (other && *other >= 0) ::close(*other);
  return {};
}

void remove_name(const std::string& name) {
  if (is_path_name(name)) ::unlink(name.c_str());
}

bool is_same_user(int fd, int* pid) {
  ucred credentials{};
  socklen_t bytes = sizeof credentials;
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &bytes) != 0) return false;
  if (pid != nullptr) *pid = credentials.pid;
  return credentials.uid == ::geteuid();
}

}  // namespace tutti
