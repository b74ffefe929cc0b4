// The descriptor that a worker's owner sleeps on; tells watchers of their sockets.
// Knows no connection.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/base/status.hpp"
#include "transports/message/tcp/socket.hpp"

struct epoll_event;

namespace tutti::tcp {

// The owner of a watched socket. on_ready() may remove any watcher, itself too.
class Watcher {
 public:
  virtual ~Watcher() = default;
  virtual void on_ready() = 0;
};

class Poller {
 public:
  // Errors: resource_exhausted with the system's reason.
  static Result<Poller> make();

  int fd() const { return epoll_.fd(); }
  // In a child of fork(): what it removed would no longer be watched for the parent.
  void abandon() { epoll_.close(); }
  // False with errno set.
  bool add(int fd, Watcher& watcher, bool wants_write);
  void change(int fd, Watcher& watcher, bool wants_write);
  // Before the socket is closed. News of it that was not told yet is dropped.
  void remove(int fd, const Watcher& watcher);

  // Tells what has happened; never waits.
  void poll();
  // Has anything happened? It is told by the next poll().
  bool has_news() const;

 private:
  Socket epoll_;
  std::vector<Watcher*> ready_;  // told by the poll() that is under way
};

}  // namespace tutti::tcp
