// TCP sockets for control and data: non-blocking, closed on exec, without delay, not silent for ever.
// Knows no protocol and no peer.
#pragma once

#include <chrono>
#include <optional>

#include "runtime/base/status.hpp"
#include "runtime/net/network.hpp"

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
// Keepalive: the kernel ends an idle connection when the other host has not answered for this long. A shorter
// cut has no effect. Unacknowledged data is repeated as long as the system does so (net.ipv4.tcp_retries2, a
// quarter of an hour). A stopped peer must not lose its connections when its buffers are full.
void limit_silence(int fd, std::chrono::milliseconds silence);
// The same for connections that never fill a peer's buffers: what was sent must be acknowledged in twice that
// time. The kernel's pauses between repetitions double, so it may learn of a healed cut as late as that.
void limit_silence_strictly(int fd, std::chrono::milliseconds silence);

}  // namespace tutti
