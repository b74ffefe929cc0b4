// Watching sockets with epoll(7). Knows no connection; see poller.hpp.
#include "transports/message/tcp/poller.hpp"

#include <fmt/format.h>
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace tutti::tcp {

namespace {

constexpr std::size_t kMostEvents = 64;

epoll_event event_of(Watcher& watcher, bool wants_write) {
  epoll_event event{};
  event.events = wants_write ? EPOLLIN | EPOLLOUT : EPOLLIN;
  event.data.ptr = &watcher;
  return event;
}

}  // namespace

Result<Poller> Poller::make() {
  Poller poller;
  poller.epoll_ = Socket(::epoll_create1(EPOLL_CLOEXEC));
  if (!poller.epoll_.is_open())
    return Status(StatusCode::resource_exhausted, fmt::format("epoll_create1: {}", std::strerror(errno)));
  poller.ready_.reserve(kMostEvents);
  return poller;
}

bool Poller::add(int fd, Watcher& watcher, bool wants_write) {
  epoll_event event = event_of(watcher, wants_write);
  return ::epoll_ctl(epoll_.fd(), EPOLL_CTL_ADD, fd, &event) == 0;
}

void Poller::change(int fd, Watcher& watcher, bool wants_write) {
  epoll_event event = event_of(watcher, wants_write);
  ::epoll_ctl(epoll_.fd(), EPOLL_CTL_MOD, fd, &event);
}

void Poller::remove(int fd, const Watcher& watcher) {
  ::epoll_ctl(epoll_.fd(), EPOLL_CTL_DEL, fd, nullptr);
  std::replace(ready_.begin(), ready_.end(), const_cast<Watcher*>(&watcher), static_cast<Watcher*>(nullptr));
}

void Poller::poll() {
  std::array<epoll_event, kMostEvents> events;
  const int count = ::epoll_wait(epoll_.fd(), events.data(), static_cast<int>(events.size()), 0);
  ready_.clear();
  for (int i = 0; i < count; ++i) {
    ready_.push_back(static_cast<Watcher*>(events[static_cast<std::size_t>(i)].data.ptr));
  }
  // A watcher may poll again, or remove others: by position, and not beyond the end.
  for (std::size_t i = 0; i < ready_.size(); ++i) {
    if (Watcher* const watcher = std::exchange(ready_[i], nullptr); watcher != nullptr) watcher->on_ready();
  }
}

bool Poller::has_news() const {
  epoll_event event;
  return ::epoll_wait(epoll_.fd(), &event, 1, 0) > 0;
}

}  // namespace tutti::tcp
