// A running program that obeys the line protocol of bench/peers, seen from the driver.
// Knows processes and lines, no library and no setting.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/status.hpp"

namespace tutti::tool {

class PeerProcess {
 public:
  struct Start {
    std::vector<std::string> command;
    std::vector<std::pair<std::string, std::string>> environment;  // added to this process's
  };
  // Starts the command and waits for its "ready". Errors: unsupported, with the end of what it wrote to its
  // standard error.
  static Result<PeerProcess> start(const Start& start, std::chrono::milliseconds at_most);

  PeerProcess(PeerProcess&& other) noexcept;
  PeerProcess& operator=(PeerProcess&&) = delete;
  PeerProcess(const PeerProcess&) = delete;
  ~PeerProcess();  // asks it to quit; kills its process group if it does not

  bool is_running() const { return pid_ > 0; }
  // Sends a line and returns the answer, the next line that starts with '{'. After a failure (timeout, end of
  // output) the program is killed and is_running() is false.
  Result<std::string> ask(const std::string& line, std::chrono::milliseconds at_most);

 private:
  PeerProcess() = default;
  Result<std::string> read_line(std::chrono::steady_clock::time_point deadline);
  Status failure(const std::string& what);
  void kill_group();

  pid_t pid_ = -1;
  int input_ = -1, output_ = -1, errors_ = -1;
  std::string partial_;
};

}  // namespace tutti::tool
