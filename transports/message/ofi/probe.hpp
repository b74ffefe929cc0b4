// Asks a TCP address whether anybody listens there. Needed because libfabric goes on trying for ever to
// connect to a process that is no more. Knows no connection of libfabric.
#pragma once

#include <cstddef>
#include <span>

namespace tutti::ofi {

class Probe {
 public:
  enum class Answer { none_yet, alive, dead };

  Probe() = default;
  ~Probe() { stop(); }
  Probe(const Probe&) = delete;
  Probe& operator=(const Probe&) = delete;

  // Starts, without waiting, to connect to a sockaddr. Other bytes are ignored.
  void start(std::span<const std::byte> address);
  bool is_running() const { return socket_ >= 0; }
  // Dead: the machine answers that nobody listens. An answer ends the probe.
  Answer poll();
  void stop();

 private:
  int socket_ = -1;
  bool is_refused_ = false;
};

}  // namespace tutti::ofi
