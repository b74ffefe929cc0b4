// The sockets at which a process can be reached as long as it lives, whatever happens to the control tree:
// members of a group meet there to agree on its successor, and find out who is dead. Knows no protocol.
#pragma once

#include <poll.h>

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/work.hpp"
#include "runtime/job/child_connections.hpp"

namespace tutti {

std::string boot_identity();  // of this machine since its last start
// A namespace of this process ("net", "pid") among those of this boot.
std::string namespace_scope(const char* kind);
// Abstract sockets and local addresses are equal within it.
std::string network_scope();

// Opened with the first world of a process, and kept by the worlds that follow from it. Nobody serves it between
// two agreements: the kernel's queue keeps those that connect.
class MemberListener {
 public:
  // Errors: resource_exhausted, internal.
  static Result<std::shared_ptr<MemberListener>> open();
  // Makes it reachable from other network namespaces, once. Errors: those of `open_listeners`; unsupported if that
  // is null.
  Status open_network(const std::function<Result<Listeners>()>& open_listeners);

  const MemberPlace& place() const { return place_; }
  // Makes `connections` accept the processes that connect here. Errors: resource_exhausted.
  Status lend_to(ChildConnections& connections) const;
  // Held during an agreement: two of one process would take each other's connections.
  std::mutex& mutex() { return mutex_; }

 private:
  MemberPlace place_;
  FrameSocket local_;
  std::vector<FrameSocket> remote_;
  std::mutex mutex_;
};

// Finds out whether the process at a place is alive: the kernel refuses connections to one that is not.
class MemberProbe {
 public:
  enum class Verdict : std::uint8_t { unknown, alive, gone };

  // A host that does not answer for `silence` counts as gone, too.
  MemberProbe(const MemberPlace& place, std::chrono::milliseconds silence);
  Verdict verdict() const { return verdict_; }

  // For poll(2): appends descriptors, then takes their results, as one span of the same length.
  std::size_t append_fds(std::vector<pollfd>& fds) const;
  void serve(std::span<const pollfd> fds);

 private:
  struct Attempt {
    FrameSocket socket;
    bool is_connected = false;
  };
  void begin();
  void begin_remote();
  void on_connected(Attempt& attempt);

  MemberPlace place_;
  std::chrono::milliseconds silence_;
  Verdict verdict_ = Verdict::unknown;
  std::vector<Attempt> attempts_;
  bool is_refused_everywhere_ = false;  // so far
  Clock::time_point next_try_{};
  Clock::time_point silent_since_;
};

}  // namespace tutti
