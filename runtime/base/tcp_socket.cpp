// TCP sockets: listening, connecting, noticing silence. Knows no protocol; see tcp_socket.hpp.
#include "runtime/base/tcp_socket.hpp"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

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

void limit_silence(int fd, std::chrono::milliseconds silence) {
  const auto set = [fd](int level, int name, int value) {
    ::setsockopt(fd, level, name, &value, sizeof value);
  };
  constexpr int kProbes = 3;
  const int pause = std::max(1, static_cast<int>(silence.count() / 1000 / (kProbes + 1)));
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, pause);
  set(IPPROTO_TCP, TCP_KEEPINTVL, pause);
  set(IPPROTO_TCP, TCP_KEEPCNT, kProbes);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(silence.count()));
  set(IPPROTO_TCP, TCP_NODELAY, 1);
}

}  // namespace tutti
