// Jobs on simulated nodes over loopback: options of their ranks, ranks as threads, an observer that records
// events. Knows no test case.
#pragma once

#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "runtime/job/control_channel.hpp"
#include "runtime/net/tcp_socket.hpp"
#include "tests/support/catch.hpp"

namespace tutti::test {

using namespace std::chrono_literals;

using Channel = std::unique_ptr<ControlChannel>;

struct Listener {
  int fd = -1;
  SocketAddress address;
};

// Somebody listens at a free port of loopback.
inline Result<Listener> try_listen() {
  const auto fd = listen_at(*parse_socket_address("127.0.0.1:0"));
  if (!fd) return fd.status();
  Listener listener{*fd, {}};
  listener.address.bytes = sizeof listener.address.storage;
  ::getsockname(*fd, reinterpret_cast<sockaddr*>(&listener.address.storage), &listener.address.bytes);
  return listener;
}

inline Listener open_listener() {
  const auto listener = try_listen();
  REQUIRE(listener);
  return *listener;
}

// A job of ranks on nodes; ranks of one node meet under a name that other nodes do not see.
struct Job {
  std::string name = [] {
    static std::atomic<int> count{0};
    return fmt::format("tutti-tree-test/{}/{}", ::getpid(), count++);
  }();
  std::vector<int> node_of;
  Listener listener = open_listener();
  std::vector<SocketAddress> wrong_places;  // looked at, too
  std::chrono::milliseconds timeout{20000};
  std::chrono::milliseconds rejoin_time{30000};
  std::chrono::milliseconds lead_after{50};  // ranks of an even number lead at once
  int degree = 32;
  std::function<Result<Listeners>()> open_listeners = []() -> Result<Listeners> {
    const auto opened = try_listen();
    if (!opened) return opened.status();
    Listeners listeners;
    listeners.sockets.emplace_back(opened->fd);
    listeners.addresses.push_back(opened->address);
    return listeners;
  };

  ControlOptions options(int rank) const {
    const int node = node_of[static_cast<std::size_t>(rank)];
    ControlOptions options;
    options.root_name = fmt::format("{}/root/{}", name, node);
    options.node_name = fmt::format("{}/node/{}", name, node);
    options.job = name;
    options.secret = "the secret";
    options.build_id = "build 1";
    options.host = fmt::format("node{}", node);
    options.rank = rank;
    options.size = static_cast<int>(node_of.size());
    options.timeout = timeout;
    options.rejoin_time = rejoin_time;
    options.degree = degree;
    if (rank != 0) {
      options.find_root = [this]() -> Result<std::vector<SocketAddress>> {
        std::vector<SocketAddress> places = wrong_places;
        places.push_back(listener.address);
        return places;
      };
      options.lead_after = rank % 2 == 0 ? 0ms : lead_after;
      options.open_listeners = open_listeners;
    }
    return options;
  }

  Result<Channel> open(int rank) const {
    Listeners listeners;
    if (rank == 0) listeners.sockets.emplace_back(listener.fd);
    return ControlChannel::open(options(rank), std::move(listeners));
  }
};

inline std::vector<Result<Channel>> open_some(const Job& job, const std::vector<int>& ranks) {
  std::vector<std::future<Result<Channel>>> futures;
  for (const int rank : ranks) {
    futures.push_back(std::async(std::launch::async, [&job, rank] { return job.open(rank); }));
  }
  std::vector<Result<Channel>> channels;
  for (auto& future : futures) channels.push_back(future.get());
  return channels;
}

inline std::vector<Channel> open_all(const Job& job) {
  std::vector<int> ranks;
  for (int rank = static_cast<int>(job.node_of.size()); rank-- > 0;) ranks.push_back(rank);
  std::vector<Channel> channels(ranks.size());
  for (Result<Channel>& channel : open_some(job, ranks)) {
    INFO(channel.status().to_string());
    REQUIRE(channel);
    channels[static_cast<std::size_t>((*channel)->rank())] = *std::move(channel);
  }
  return channels;
}

struct Recorder final : ControlObserver {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::pair<int, std::string>> deaths;
  std::vector<std::string> causes, messages;
  void on_failure(std::uint64_t group, int dead_rank, const Status& cause) override {
    const std::lock_guard lock(mutex);
    if (group == 0) deaths.emplace_back(dead_rank, cause.message());
    if (group != 0) causes.push_back(cause.message());
    changed.notify_all();
  }
  void on_message(int source, std::string_view bytes) override {
    const std::lock_guard lock(mutex);
    messages.push_back(fmt::format("{}:{}", source, bytes));
    changed.notify_all();
  }
  template <class Condition>
  bool wait(Condition condition) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, 20s, condition);
  }
};

}  // namespace tutti::test
