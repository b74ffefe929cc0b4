// A man in the middle of TCP connections: passes bytes on as a filter wants them. Knows no protocol.
#pragma once

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/net/tcp_socket.hpp"

namespace tutti::test {

// A connection's two directions, each with a state of its own.
struct ByteFilter {
  // Gets the bytes of one direction as they come and answers what is passed on; nullopt cuts the connection.
  using Pass = std::function<std::optional<std::string>(std::string_view bytes)>;
  Pass forward, backward;  // empty: unchanged
};

class ByteProxy {
 public:
  // `make_filter` is called for each connection, by the thread that accepts.
  ByteProxy(SocketAddress target, std::function<ByteFilter()> make_filter)
      : target_(std::move(target)), make_filter_(std::move(make_filter)) {
    listener_ = *listen_at(*parse_socket_address("127.0.0.1:0"));
    address_.bytes = sizeof address_.storage;
    ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address_.storage), &address_.bytes);
    acceptor_ = std::thread([this] { accept(); });
  }
  ~ByteProxy() {
    is_over_ = true;
    acceptor_.join();
    for (const int fd : fds_) ::shutdown(fd, SHUT_RDWR);
    for (std::thread& pump : pumps_) pump.join();
    for (const int fd : fds_) ::close(fd);
    ::close(listener_);
  }
  ByteProxy(const ByteProxy&) = delete;
  ByteProxy& operator=(const ByteProxy&) = delete;

  const SocketAddress& address() const { return address_; }
  // All bytes that came from the connecting sides, or from the target, before they were changed.
  std::string seen(bool is_forward) {
    const std::lock_guard lock(mutex_);
    return seen_[is_forward ? 0 : 1];
  }

 private:
  void accept() {
    while (!is_over_) {
      pollfd readable{listener_, POLLIN, 0};
      if (::poll(&readable, 1, 20) <= 0) continue;
      const int from = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (from < 0) continue;
      const int to = ::socket(target_.family(), SOCK_STREAM | SOCK_CLOEXEC, 0);
      if (::connect(to, reinterpret_cast<const sockaddr*>(&target_.storage), target_.bytes) != 0)
        ::shutdown(from, SHUT_RDWR);
      const std::array both{from, to};
      fds_.insert(fds_.end(), both.begin(), both.end());
      ByteFilter filter = make_filter_();
      pumps_.emplace_back([this, from, to, pass = std::move(filter.forward)] { pump(from, to, pass, 0); });
      pumps_.emplace_back([this, from, to, pass = std::move(filter.backward)] { pump(to, from, pass, 1); });
    }
  }
  void pump(int from, int to, const ByteFilter::Pass& pass, std::size_t direction) {
    std::array<char, 65536> buffer{};
    for (;;) {
      const ssize_t got = ::recv(from, buffer.data(), buffer.size(), 0);
      if (got <= 0) break;
      const std::string_view bytes(buffer.data(), static_cast<std::size_t>(got));
      {
        const std::lock_guard lock(mutex_);
        seen_[direction] += bytes;
      }
      const std::optional<std::string> passed = pass ? pass(bytes) : std::string(bytes);
      for (std::string_view rest = passed ? *passed : std::string_view(); !rest.empty();) {
        const ssize_t sent = ::send(to, rest.data(), rest.size(), MSG_NOSIGNAL);
        if (sent <= 0) break;
        rest.remove_prefix(static_cast<std::size_t>(sent));
      }
      if (!passed) break;
    }
    ::shutdown(to, SHUT_WR);
    ::shutdown(from, SHUT_RD);
  }

  SocketAddress target_;
  std::function<ByteFilter()> make_filter_;
  int listener_ = -1;
  SocketAddress address_;
  std::atomic<bool> is_over_{false};
  std::mutex mutex_;
  std::array<std::string, 2> seen_;
  std::vector<int> fds_;
  std::vector<std::thread> pumps_;
  std::thread acceptor_;
};

}  // namespace tutti::test
