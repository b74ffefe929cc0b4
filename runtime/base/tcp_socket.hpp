// TCP sockets as everybody here wants them: non-blocking, closed on exec, without delay, not silent for ever.
// Knows no protocol and no peer.
#pragma once

#include <chrono>
#include <optional>

#include "runtime/base/network.hpp"
#include "runtime/base/status.hpp"

namespace tutti {

// A listening TCP socket of this address (port 0: any), non-blocking and closed on exec; a wildcard IPv6
// address listens for IPv4, too. Errors: resource_exhausted when the port is taken, internal with the
// system's reason.
Result<int> listen_at(const SocketAddress& address);
// The same at the first free port of the range, or at any port without one. Errors: resource_exhausted when
// all of them are taken.
Result<int> listen_in(const SocketAddress& address, const std::optional<PortRange>& ports);
// A TCP socket that is being connected; it becomes writable when that has ended. Errors: unsupported with the
// system's reason (no route).
Result<int> start_connect(const SocketAddress& address);
// How a connection that was started has ended: 0, or an error number.
int connect_error(int fd);
// The kernel ends the connection when the other host has not answered for this long, also while there is
// nothing to send.
void limit_silence(int fd, std::chrono::milliseconds silence);

}  // namespace tutti
