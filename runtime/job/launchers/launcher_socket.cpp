// Reads and writes a launcher's connection with deadlines. Knows no protocol.
#include "runtime/job/launchers/launcher_socket.hpp"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <system_error>
#include <vector>

#include "runtime/job/launchers/rank_variables.hpp"
#include "runtime/net/network.hpp"
#include "runtime/net/tcp_socket.hpp"

namespace tutti::detail {
namespace {

std::string text_of(int error) { return std::generic_category().message(error); }

}  // namespace

LauncherSocket::LauncherSocket(int fd, std::string name) : fd_(fd), name_(std::move(name)) {
  close_on_fork(fd);  // first, because it starts the count of generations
  generation_ = fork_generation();
}

Result<LauncherSocket> LauncherSocket::adopt(int fd, std::string name) {
  struct stat information = {};
  if (::fstat(fd, &information) != 0 || !S_ISSOCK(information.st_mode)) {
    return invalid_argument(
        fmt::format("{} is not open in this process: MPI_Finalize has been called before, or a program "
                    "between the launcher and this one has closed it; TUTTI_LAUNCHER=none makes a world of "
                    "one",
                    name));
  }
  const int own = ::fcntl(fd, F_DUPFD_CLOEXEC, 3);
  if (own < 0) {
    return Status(StatusCode::resource_exhausted, fmt::format("{}: no descriptor: {}", name, text_of(errno)));
  }
  return LauncherSocket(own, std::move(name));
}

Result<LauncherSocket> LauncherSocket::connect(std::string_view address, Clock::time_point deadline,
                                               std::string name) {
  const std::size_t colon = address.rfind(':');
  if (colon == std::string_view::npos || colon == 0 || colon + 1 == address.size()) {
    return invalid_argument(fmt::format("{}='{}': expected host:port", name, address));
  }
  std::string host(address.substr(0, colon));
  if (host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  const Result<int> port = parse_int(name, address.substr(colon + 1), 1, 65535, "host:port");
  if (!port) return port.status();
  const Result<std::vector<SocketAddress>> found = resolve_host(host);
  if (!found) return found.status().with_context(name);
  Status failure = invalid_argument(fmt::format("{}='{}': no address", name, address));
  for (const SocketAddress& one : *found) {
    const Result<int> fd = start_connect(one.with_port(static_cast<std::uint16_t>(*port)));
    if (!fd) {
      failure = fd.status().with_context(name);
      continue;
    }
    LauncherSocket socket(*fd, name);
    failure = socket.wait_until_ready(POLLOUT, deadline);
    if (!failure) continue;
    const int error = connect_error(*fd);
    if (error == 0) return socket;
    failure = Status(StatusCode::peer_failed,
                     fmt::format("{}: cannot connect to {}: {}", name, address, text_of(error)));
  }
  return failure;
}

LauncherSocket::~LauncherSocket() {
  if (fd_ < 0 || is_inherited()) return;  // closed at the fork
  forget_on_fork(fd_);
  ::close(fd_);
}

Status LauncherSocket::wait_until_ready(short events, Clock::time_point deadline) {
  for (;;) {
    pollfd entry{fd_, events, 0};
    const int ready = ::poll(&entry, 1, poll_milliseconds(deadline));
    if (ready > 0) return {};
    if (ready < 0 && errno != EINTR) {
      return internal_error(fmt::format("{}: poll: {}", name_, text_of(errno)));
    }
    if (ready == 0 && Clock::now() >= deadline) {
      return Status(StatusCode::timeout, fmt::format("{}: the launcher did not answer in time", name_));
    }
  }
}

Status LauncherSocket::write(std::string_view bytes, Clock::time_point deadline) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      TUTTI_RETURN_IF_ERROR(wait_until_ready(POLLOUT, deadline));
    } else if (errno != EINTR) {
      return Status(StatusCode::peer_failed,
                    fmt::format("{}: the launcher has closed the connection ({})", name_, text_of(errno)));
    }
  }
  return {};
}

Result<std::string> LauncherSocket::receive(std::size_t limit, int flags, Clock::time_point deadline) {
  std::string bytes(limit, '\0');
  for (;;) {
    const ssize_t got = ::recv(fd_, bytes.data(), bytes.size(), flags | MSG_DONTWAIT);
    if (got > 0) {
      bytes.resize(static_cast<std::size_t>(got));
      return bytes;
    }
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      TUTTI_RETURN_IF_ERROR(wait_until_ready(POLLIN, deadline));
    } else if (got == 0 || errno != EINTR) {
      return Status(StatusCode::peer_failed,
                    fmt::format("{}: the launcher has closed the connection", name_));
    }
  }
}

Result<std::string> LauncherSocket::read_line(std::size_t limit_bytes, Clock::time_point deadline) {
  std::string line;
  for (;;) {
    // Peeked first, then read up to the end of the line.
    const Result<std::string> ahead = receive(4096, MSG_PEEK, deadline);
    if (!ahead) return ahead.status();
    const std::size_t newline = ahead->find('\n');
    const std::size_t take = newline == std::string::npos ? ahead->size() : newline + 1;
    if (line.size() + take > limit_bytes) {
      return internal_error(fmt::format("{}: a line of more than {} bytes", name_, limit_bytes));
    }
    const Result<std::string> taken = read_bytes(take, deadline);
    if (!taken) return taken.status();
    line += *taken;
    if (newline == std::string::npos) continue;
    line.pop_back();
    return line;
  }
}

Result<std::string> LauncherSocket::read_bytes(std::size_t count, Clock::time_point deadline) {
  std::string bytes;
  while (bytes.size() < count) {
    const Result<std::string> more = receive(count - bytes.size(), 0, deadline);
    if (!more) return more.status();
    bytes += *more;
  }
  return bytes;
}

}  // namespace tutti::detail
