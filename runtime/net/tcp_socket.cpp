// TCP sockets: listening, connecting, noticing silence. Knows no protocol; see tcp_socket.hpp.
#include "runtime/net/tcp_socket.hpp"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>

namespace tutti {

Result<int> listen_at(const SocketAddress& address) {
  const auto error = [&](const char* what) {
    return internal_error(
        fmt::format("{} for {}: {}", what, address.to_text(), describe_system_error(errno)));
  };
  const int fd = ::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return error("socket");
  const int off = 0;
  if (address.family() == AF_INET6) ::setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  if (::bind(fd, reinterpret_cast<const sockaddr*>(&address.storage), address.bytes) != 0 ||
      ::listen(fd, SOMAXCONN) != 0) {
    const Status status = errno == EADDRINUSE ? Status(StatusCode::resource_exhausted,
                                                       fmt::format("port {} is taken", address.port()))
                                              : error("bind");
    ::close(fd);
    return status;
  }
  return fd;
}

Result<int> listen_in(const SocketAddress& address, const std::optional<PortRange>& ports) {
  for (const std::uint16_t port : ports_to_try(ports)) {
    Result<int> fd = listen_at(address.with_port(port));
    if (fd || fd.status().code() != StatusCode::resource_exhausted) return fd;
  }
  return Status(StatusCode::resource_exhausted,
                fmt::format("all ports of {} are taken; widen TUTTI_PORTS", to_text(*ports)));
}

Result<int> start_connect(const SocketAddress& address) {
  const int fd = ::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd >= 0) {
    const int on = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (::connect(fd, reinterpret_cast<const sockaddr*>(&address.storage), address.bytes) == 0 ||
        errno == EINPROGRESS) {
      return fd;
    }
  }
  const StatusCode code =
      fd < 0 && is_out_of_descriptors(errno) ? StatusCode::resource_exhausted : StatusCode::unsupported;
  const Status status(code, fmt::format("{}: {}", address.to_text(), describe_system_error(errno)));
  if (fd >= 0) ::close(fd);
  return status;
}

int connect_error(int fd) {
  int error = 0;
  socklen_t bytes = sizeof error;
  return ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes) == 0 ? error : errno;
}

namespace {

void set_option(int fd, int level, int name, std::int64_t value, std::int64_t most) {
  const int number = static_cast<int>(std::clamp<std::int64_t>(value, 1, most));
  ::setsockopt(fd, level, name, &number, sizeof number);
}

}  // namespace

void limit_silence(int fd, std::chrono::milliseconds silence) {
  // The cut may begin just before the first probe.
  constexpr int kProbes = 4, kMostSeconds = 32767;
  const std::int64_t pause = (silence.count() / kProbes + 999) / 1000;
  set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1, 1);
  set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, pause, kMostSeconds);
  set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, pause, kMostSeconds);
  set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, kProbes, kProbes);
  set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1, 1);
}

void limit_silence_strictly(int fd, std::chrono::milliseconds silence) {
  limit_silence(fd, silence);
  set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 2 * silence.count(), std::numeric_limits<int>::max());
}

}  // namespace tutti
