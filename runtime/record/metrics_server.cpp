// See metrics_server.hpp.
#include "runtime/record/metrics_server.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "runtime/base/fork_guard.hpp"
#include "runtime/base/thread.hpp"
#include "runtime/record/folder.hpp"
#include "runtime/record/reading.hpp"
#include "runtime/record/statistics.hpp"

namespace tutti::record {
namespace {

constexpr std::chrono::seconds kPatience{1};  // with one client
constexpr std::size_t kMostRequest = 4096;

}  // namespace

Result<std::unique_ptr<MetricsServer>> MetricsServer::open(const std::string& path, std::string folder,
                                                           std::string world) {
  std::unique_ptr<MetricsServer> server(new MetricsServer(path, std::move(folder), std::move(world)));
  TUTTI_RETURN_IF_ERROR(server->start());
  return server;
}

Status MetricsServer::start() {
  TUTTI_RETURN_IF_ERROR(listen());
  stop_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (stop_ < 0) return file_error(path_, "has no event");
  auto thread = start_thread("tutti-metrics", [this] { serve(); });
  if (!thread) return thread.status();
  thread_ = *std::move(thread);
  return {};
}

Status MetricsServer::listen() {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path_.size() >= sizeof address.sun_path)
    return invalid_argument(fmt::format("'{}' is longer than the {} bytes that a socket's path may have",
                                        path_, sizeof address.sun_path - 1));
  std::memcpy(address.sun_path, path_.data(), path_.size());
  const auto* const at = reinterpret_cast<const sockaddr*>(&address);
  // Non-blocking: the queue of a server that has stopped may be full, and a client may go before it is accepted.
  listener_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (listener_ < 0) return file_error(path_, "has no socket");
  close_on_fork(listener_);
  struct stat status {};
  if (::lstat(path_.c_str(), &status) == 0) {
    const bool is_ours = S_ISSOCK(status.st_mode) && status.st_uid == ::geteuid();
    const bool is_left = is_ours && ::connect(listener_, at, sizeof address) != 0 && errno == ECONNREFUSED;
    if (!is_left) return invalid_argument(fmt::format("'{}' is there already", path_));
    ::unlink(path_.c_str());
  }
  if (::bind(listener_, at, sizeof address) != 0) return file_error(path_, "cannot be made");
  is_bound_ = true;
  if (::lstat(path_.c_str(), &status) != 0) return file_error(path_, "cannot be found");
  device_ = status.st_dev;
  file_ = status.st_ino;
  // Nobody can connect before listen().
  if (::chmod(path_.c_str(), 0600) != 0) return file_error(path_, "cannot be protected");
  constexpr int kWaitingClients = 8;
  return ::listen(listener_, kWaitingClients) == 0 ? Status() : file_error(path_, "cannot be listened at");
}

MetricsServer::~MetricsServer() {
  if (thread_.joinable()) {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(stop_, &one, sizeof one);
    thread_.join();
  }
  if (is_bound_ && is_own_socket()) ::unlink(path_.c_str());
  if (listener_ >= 0) {
    forget_on_fork(listener_);
    ::close(listener_);
  }
  if (stop_ >= 0) ::close(stop_);
}

// Another job that began at the same time may have put its socket there.
bool MetricsServer::is_own_socket() const {
  struct stat status {};
  return ::lstat(path_.c_str(), &status) == 0 && status.st_dev == device_ && status.st_ino == file_;
}

void MetricsServer::serve() const {
  constexpr std::chrono::milliseconds kPause{100};
  for (;;) {
    if (!wait_for(listener_, POLLIN, Clock::time_point::max())) return;
    const int connection = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (connection >= 0) {
      answer(connection);
      ::shutdown(connection, SHUT_RDWR);  // a child of fork() may hold it
      ::close(connection);
    } else if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
      wait_for(stop_, 0, Clock::now() + kPause);  // no descriptor is free: the client stays in the queue
    }
  }
}

bool MetricsServer::wait_for(int connection, short events, Clock::time_point deadline) const {
  for (;;) {
    int at_most = -1;
    if (deadline != Clock::time_point::max()) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
      if (left.count() <= 0) return false;
      at_most = static_cast<int>(left.count());
    }
    std::array<pollfd, 2> waiting{{{connection, events, 0}, {stop_, POLLIN, 0}}};
    if (::poll(waiting.data(), waiting.size(), at_most) < 0 && errno != EINTR) return false;
    if (waiting[1].revents != 0) return false;
    if (waiting[0].revents != 0) return true;
  }
}

// Up to the empty line, as far as there is one.
void MetricsServer::read_request(int connection, Clock::time_point deadline) const {
  std::string request;
  std::array<char, 512> part{};
  while (request.size() < kMostRequest && request.find("\r\n\r\n") == std::string::npos) {
    if (!wait_for(connection, POLLIN, deadline)) break;
    const ssize_t length = ::recv(connection, part.data(), part.size(), 0);
    if (length == 0 || (length < 0 && errno != EAGAIN && errno != EINTR)) break;
    if (length > 0) request.append(part.data(), static_cast<std::size_t>(length));
  }
}

void MetricsServer::send_all(int connection, std::string_view text, Clock::time_point deadline) const {
  while (!text.empty() && wait_for(connection, POLLOUT, deadline)) {
    const ssize_t sent = ::send(connection, text.data(), text.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN && errno != EINTR) return;
    if (sent > 0) text.remove_prefix(static_cast<std::size_t>(sent));
  }
}

void MetricsServer::answer(int connection) const {
  read_request(connection, Clock::now() + kPatience);
  const std::string text = prometheus_text(read_world(folder_, world_));
  send_all(connection,
           fmt::format("HTTP/1.0 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\n"
                       "Content-Length: {}\r\nConnection: close\r\n\r\n{}",
                       text.size(), text),
           Clock::now() + kPatience);
}

}  // namespace tutti::record
