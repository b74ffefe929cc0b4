// A non-blocking connect that is closed again. Knows no libfabric; see probe.hpp.
#include "transports/message/ofi/probe.hpp"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace tutti::ofi {

void Probe::start(std::span<const std::byte> address) {
  stop();
  sockaddr_storage target{};
  if (address.size() < sizeof(sockaddr_in)) return;
  std::memcpy(&target, address.data(), std::min(address.size(), sizeof(target)));
  if (target.ss_family != AF_INET && target.ss_family != AF_INET6) return;
  socket_ = ::socket(target.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (socket_ < 0) return;
  const socklen_t bytes = target.ss_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  is_refused_ =
      ::connect(socket_, reinterpret_cast<const sockaddr*>(&target), bytes) != 0 && errno == ECONNREFUSED;
}

Probe::Answer Probe::poll() {
  pollfd on{socket_, POLLOUT, 0};
  if (socket_ < 0 || ::poll(&on, 1, 0) <= 0) return Answer::none_yet;
  int error = 0;
  socklen_t bytes = sizeof(error);
  const bool has_error = ::getsockopt(socket_, SOL_SOCKET, SO_ERROR, &error, &bytes) == 0 && error != 0;
  stop();
  return is_refused_ || (has_error && error == ECONNREFUSED) ? Answer::dead : Answer::alive;
}

void Probe::stop() {
  if (socket_ >= 0) ::close(std::exchange(socket_, -1));
}

}  // namespace tutti::ofi
