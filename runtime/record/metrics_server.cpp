// See metrics_server.hpp.
#include "runtime/record/metrics_server.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "runtime/base/fork_guard.hpp"
#include "runtime/base/thread.hpp"
#include "runtime/record/folder.hpp"
#include "runtime/record/reading.hpp"
#include "runtime/record/statistics.hpp"

namespace tutti::record {
namespace {

constexpr timeval kPatience{1, 0};  // with one client
constexpr std::size_t kMostRequest = 4096;

Status system_error(const std::string& path, const char* what) {
  return invalid_argument(fmt::format("'{}' {}: {}", path, what, std::strerror(errno)));
}

// Reads up to the empty line, as far as there is one.
void read_request(int connection) {
  std::string request;
  std::array<char, 512> part{};
  while (request.size() < kMostRequest && request.find("\r\n\r\n") == std::string::npos) {
    const ssize_t length = ::recv(connection, part.data(), part.size(), 0);
    if (length <= 0) return;
    request.append(part.data(), static_cast<std::size_t>(length));
  }
}

void send_all(int connection, std::string_view text) {
  while (!text.empty()) {
    const ssize_t sent = ::send(connection, text.data(), text.size(), MSG_NOSIGNAL);
    if (sent <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(sent));
  }
}

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
  if (stop_ < 0) return system_error(path_, "has no event");
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
  listener_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (listener_ < 0) return system_error(path_, "has no socket");
  close_on_fork(listener_);
  struct stat status {};
  if (::lstat(path_.c_str(), &status) == 0) {
    const bool is_ours = S_ISSOCK(status.st_mode) && status.st_uid == ::geteuid();
    if (!is_ours || ::connect(listener_, at, sizeof address) == 0)
      return invalid_argument(fmt::format("'{}' is there already", path_));
    ::unlink(path_.c_str());
  }
  if (::bind(listener_, at, sizeof address) != 0) return system_error(path_, "cannot be made");
  is_bound_ = true;
  // Nobody can connect before listen().
  if (::chmod(path_.c_str(), 0600) != 0) return system_error(path_, "cannot be protected");
  constexpr int kWaitingClients = 8;
  return ::listen(listener_, kWaitingClients) == 0 ? Status() : system_error(path_, "cannot be listened at");
}

MetricsServer::~MetricsServer() {
  if (thread_.joinable()) {
    const std::uint64_t one = 1;
    static_cast<void>(::write(stop_, &one, sizeof one));
    thread_.join();
  }
  if (is_bound_) ::unlink(path_.c_str());
  if (listener_ >= 0) {
    forget_on_fork(listener_);
    ::close(listener_);
  }
  if (stop_ >= 0) ::close(stop_);
}

void MetricsServer::serve() const {
  for (;;) {
    std::array<pollfd, 2> waiting{{{listener_, POLLIN, 0}, {stop_, POLLIN, 0}}};
    if (::poll(waiting.data(), waiting.size(), -1) < 0 && errno != EINTR) return;
    if (waiting[1].revents != 0) return;
    if (waiting[0].revents == 0) continue;
    const int connection = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (connection < 0) continue;
    answer(connection);
    ::close(connection);
  }
}

void MetricsServer::answer(int connection) const {
  ::setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &kPatience, sizeof kPatience);
  ::setsockopt(connection, SOL_SOCKET, SO_SNDTIMEO, &kPatience, sizeof kPatience);
  read_request(connection);
  const std::string text = prometheus_text(read_world(folder_, world_));
  send_all(connection, fmt::format("HTTP/1.0 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\n"
                                   "Content-Length: {}\r\nConnection: close\r\n\r\n{}",
                                   text.size(), text));
}

}  // namespace tutti::record
