// Ranks of one node as threads, and raw connections to rank 0. Knows no test case.
#pragma once

#include <unistd.h>

#include <atomic>
#include <future>
#include <memory>
#include <string>
#include <thread>

#include "runtime/job/control_channel.hpp"
#include "runtime/job/frame_socket.hpp"

namespace tutti::test {

using namespace std::chrono_literals;

inline std::string fresh_name() {
  static std::atomic<int> count{0};
  return "tutti-test/" + std::to_string(::getpid()) + "/" + std::to_string(count++);
}

inline ControlOptions options_of(const std::string& name, int rank, int size) {
  ControlOptions options;
  options.root_name = options.job = name;
  options.secret = "the secret";
  options.build_id = "build 1";
  options.rank = rank;
  options.size = size;
  options.timeout = 20s;
  return options;
}

using Channel = std::unique_ptr<ControlChannel>;

inline std::future<Result<Channel>> open_async(ControlOptions options) {
  return std::async(std::launch::async, [options] { return ControlChannel::open(options); });
}

// A raw connection of this user that knows nothing.
inline int connect_raw(const std::string& name) {
  for (int i = 0; i < 2000; ++i) {
    const Result<int> fd = try_connect(name);
    if (fd && *fd >= 0) return *fd;
    std::this_thread::sleep_for(1ms);
  }
  return -1;
}

}  // namespace tutti::test
