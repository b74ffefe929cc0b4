// The control channel over several nodes, with threads as ranks and TCP over loopback: leaders, routes, the
// death of a leader, and a search at wrong addresses.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <mutex>
#include <set>
#include <thread>

#include <fmt/format.h>

#include "runtime/job/control_channel.hpp"
#include "runtime/job/meeting.hpp"
#include "runtime/net/tcp_socket.hpp"
#include "tests/job/control_job.hpp"
#include "tests/support/catch.hpp"

using namespace tutti;
using namespace tutti::test;
using namespace std::chrono_literals;
using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;

TEST_CASE("ranks on several nodes join, swap bytes, talk, and hear one cause") {
  Job job;
  job.node_of = GENERATE(std::vector<int>{0, 1}, std::vector<int>{0, 0, 1, 1},
                         std::vector<int>{0, 1, 2, 1, 2, 2, 0}, std::vector<int>{0, 1, 1, 1, 1, 1, 1, 1, 1});
  const std::vector<Channel> channels = open_all(job);
  const auto size = static_cast<int>(channels.size());
  std::vector<std::future<Status>> results;
  for (const Channel& channel : channels) {
    results.push_back(std::async(std::launch::async, [&channel, size]() -> Status {
      for (int round = 0; round < 10; ++round) {
        const auto text = [&](int rank) {
          return std::string(static_cast<std::size_t>(rank * round * 50), 'x');
        };
        const auto all = channel->allgather(text(channel->rank()), Clock::now() + 20s);
        if (!all) return all.status();
        for (int rank = 0; rank < size; ++rank) {
          if ((*all)[static_cast<std::size_t>(rank)] != text(rank)) return internal_error("wrong bytes");
        }
      }
      return {};
    }));
  }
  for (auto& result : results) CHECK(result.get().to_string() == Status().to_string());
  std::vector<Recorder> recorders(channels.size());
  for (std::size_t i = 0; i < channels.size(); ++i) channels[i]->set_observer(&recorders[i]);
  for (int from = 0; from < size; ++from) {
    for (int to = 0; to < size; ++to)
      channels[static_cast<std::size_t>(from)]->tell(to, fmt::format("to {}", to));
  }
  for (int from = 0; from < size; ++from)
    channels[static_cast<std::size_t>(from)]->abort(7,
                                                    Status(StatusCode::aborted, fmt::format("by {}", from)));
  for (Recorder& recorder : recorders) {
    CHECK(recorder.wait(
        [&] { return recorder.messages.size() == channels.size() && !recorder.causes.empty(); }));
  }
  for (auto& channel : channels) channel->set_observer(nullptr);
  for (std::size_t to = 0; to < recorders.size(); ++to) {
    std::sort(recorders[to].messages.begin(), recorders[to].messages.end());
    for (std::size_t from = 0; from < recorders.size(); ++from)
      CHECK(recorders[to].messages[from] == fmt::format("{}:to {}", from, to));
    CHECK(recorders[to].causes == std::vector<std::string>{recorders[0].causes[0]});
  }
}

TEST_CASE("a cause that a leader settles holds for its node, and for no other") {
  Job job;
  job.node_of = {0, 0, 1, 1};
  const std::vector<Channel> channels = open_all(job);
  std::vector<Recorder> recorders(channels.size());
  for (std::size_t i = 0; i < channels.size(); ++i) channels[i]->set_observer(&recorders[i]);
  channels[2]->settle(7, Status(StatusCode::timeout, "of the leader"));
  for (const std::size_t rank : {2, 3})
    CHECK(recorders[rank].wait([&] { return !recorders[rank].causes.empty(); }));
  channels[1]->abort(7, Status(StatusCode::aborted, "of all"));
  channels[1]->abort(8, Status(StatusCode::aborted, "of group 8"));
  for (Recorder& recorder : recorders) CHECK(recorder.wait([&] { return recorder.causes.size() == 2; }));
  for (auto& channel : channels) channel->set_observer(nullptr);
  for (std::size_t rank = 0; rank < recorders.size(); ++rank)
    CHECK(recorders[rank].causes ==
          std::vector<std::string>{rank < 2 ? "of all" : "of the leader", "of group 8"});
}

TEST_CASE("ranks with neighbours on other nodes are asked once a second what these are to know") {
  struct Asked final : ControlObserver {
    std::mutex mutex;
    std::set<std::vector<int>> neighbours;
    void on_failure(std::uint64_t, int, const Status&) override {}
    void on_message(int, std::string_view) override {}
    void on_second(const std::vector<int>& these) override {
      const std::lock_guard lock(mutex);
      std::vector<int> sorted = these;
      std::sort(sorted.begin(), sorted.end());
      neighbours.insert(sorted);
    }
    bool has(const std::vector<int>& these) {
      const std::lock_guard lock(mutex);
      return neighbours.contains(these);
    }
  };
  Job job;
  job.node_of = {0, 0, 1, 1, 2};
  const std::vector<Channel> channels = open_all(job);
  const auto is_leader = [&](std::size_t rank) { return !channels[rank]->remote_address().empty(); };
  const int leader = is_leader(2) ? 2 : 3;
  std::vector<Asked> asked(channels.size());
  for (std::size_t i = 0; i < channels.size(); ++i) channels[i]->set_observer(&asked[i]);
  const auto until = Clock::now() + 20s;
  const auto comes = [&](std::size_t rank, const std::vector<int>& neighbours) {
    while (!asked[rank].has(neighbours) && Clock::now() < until) std::this_thread::sleep_for(10ms);
    return asked[rank].has(neighbours);
  };
  CHECK(comes(0, {leader, 4}));
  CHECK(comes(static_cast<std::size_t>(leader), {0}));
  CHECK(comes(4, {0}));
  for (const Channel& channel : channels) channel->set_observer(nullptr);
  CHECK(asked[1].neighbours.empty());
  CHECK(asked[static_cast<std::size_t>(5 - leader)].neighbours.empty());
}

TEST_CASE("an absent rank is named on every node") {
  Job job;
  job.node_of = {0, 0, 1, 1, 2};
  std::vector<std::string> heard;
  for (const auto timeout : {500ms, 5000ms, 20000ms}) {  // on a busy machine who is there may be late, too
    Job again;
    again.node_of = job.node_of;
    again.timeout = timeout;
    heard.clear();
    bool is_named_by_all = true;
    for (const auto& channel : open_some(again, {0, 1, 2, 4})) {
      heard.push_back(channel.status().message());
      is_named_by_all = is_named_by_all && heard.back().starts_with("rank 3 of 5 did not arrive within");
    }
    if (is_named_by_all) break;
  }
  for (const std::string& text : heard) CHECK_THAT(text, StartsWith("rank 3 of 5 did not arrive within"));
}

namespace {

// Rank 1 as a process, which leads its node and may be killed.
struct Leader {
  explicit Leader(const Job& job, bool finds_root) : pid(::fork()) {
    if (pid == 0) {
      for (const int number : {SIGTERM, SIGINT, SIGABRT, SIGSEGV}) ::signal(number, SIG_DFL);  // not Catch's
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ControlOptions options = job.options(1);
      options.lead_after = 0ms;
      if (!finds_root) {
        options.find_root = []() -> Result<std::vector<SocketAddress>> {
          return Status(StatusCode::timeout, "no name server");
        };
      }
      const auto channel = ControlChannel::open(options);
      for (;;) ::pause();
    }
    for (int fd = -1; fd < 0; std::this_thread::sleep_for(1ms)) {
      const Result<int> connected = try_connect(job.options(1).node_name);
      fd = connected ? *connected : -1;
      if (fd >= 0) ::close(fd);
    }
  }
  ~Leader() { kill(); }
  Leader(const Leader&) = delete;
  Leader& operator=(const Leader&) = delete;
  void kill() {
    if (pid <= 0 || is_killed) return;
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    is_killed = true;
  }
  const pid_t pid;
  bool is_killed = false;
};

}  // namespace

TEST_CASE("the death of a leader that has not reached rank 0 is told by its mates") {
  Job job;
  job.node_of = {0, 1, 2, 1, 2, 1};
  job.timeout = 60s;
  job.rejoin_time = 500ms;
  job.lead_after = 30s;  // no longer, once the node has had a leader
  Leader leader(job, false);
  auto others = std::async(std::launch::async, [&job] { return open_some(job, {0, 2, 3, 4, 5}); });
  std::this_thread::sleep_for(1s);  // ranks 3 and 5 have joined it
  leader.kill();
  for (const Result<Channel>& other : others.get()) {
    const Status& status = other.status();
    CHECK(status.code() == StatusCode::peer_failed);
    CHECK(status.peer() == 1);
    CHECK_THAT(status.message(), StartsWith(fmt::format("rank 1 (pid {} on node1) is gone", leader.pid)) &&
                                     Contains("SIGKILL"));
  }
}

TEST_CASE("a leader that dies at any moment of the start is named by all") {
  for (int moment = 0; moment < 20; ++moment) {
    Job job;
    job.node_of = {0, 1, 1, 1};
    job.timeout = 4s;
    job.rejoin_time = 200ms;
    Leader leader(job, true);
    // Each leaves as soon as it knows.
    std::vector<std::future<Status>> others;
    for (const int rank : {0, 2, 3}) {
      others.push_back(std::async(std::launch::async, [&job, rank] {
        const Result<Channel> channel = job.open(rank);
        return channel ? (*channel)->allgather("here", Clock::now() + 60s).status() : channel.status();
      }));
    }
    // All moments until shortly after the tree is complete.
    std::this_thread::sleep_for(moment * 500us);
    leader.kill();
    for (auto& other : others) {
      const Status status = other.get();
      INFO("moment " << moment << ": " << status.to_string());
      // It may have died before anybody knew it.
      CHECK(status.peer() == 1);
      CHECK_THAT(status.message(), StartsWith(fmt::format("rank 1 (pid {} on node1) is gone", leader.pid)) ||
                                       StartsWith("rank 1 of 4 did not arrive"));
    }
  }
}

TEST_CASE("without rank 0 a node says where it has looked") {
  Job job;
  job.node_of = {0, 1, 1};
  job.timeout = 700ms;
  ::close(job.listener.fd);
  for (const auto& channel : open_some(job, {1, 2})) {
    CHECK(channel.status().code() == StatusCode::timeout);
    CHECK_THAT(channel.status().message(), StartsWith("rank 0 of 3 did not arrive within") &&
                                               Contains(job.listener.address.to_text()) &&
                                               Contains("Connection refused"));
  }
}

TEST_CASE("a place where another job or a stranger listens is passed over") {
  Job other, job;
  other.node_of = {0, 1};
  job.node_of = {0, 1, 1};
  const Listener silent = open_listener(), talkative = open_listener();
  job.wrong_places = {other.listener.address, silent.address, talkative.address};
  std::atomic<bool> is_over{false}, has_talked{true};
  std::thread stranger([&] {
    while (!is_over) {
      const int fd = ::accept(talkative.fd, nullptr, nullptr);
      if (fd < 0) {
        std::this_thread::sleep_for(5ms);
        continue;
      }
      if (::send(fd, "220 smtp ready\r\n", 16, MSG_NOSIGNAL) <= 0) has_talked = false;
      std::this_thread::sleep_for(5ms);
      ::close(fd);
    }
  });
  const std::vector<Channel> others = open_all(other), channels = open_all(job);
  is_over = true;
  stranger.join();
  CHECK(has_talked);
  auto barrier = std::async(std::launch::async, [&] { return channels[1]->barrier(Clock::now() + 20s); });
  auto barrier2 = std::async(std::launch::async, [&] { return channels[2]->barrier(Clock::now() + 20s); });
  CHECK(channels[0]->barrier(Clock::now() + 20s));
  CHECK(barrier.get());
  CHECK(barrier2.get());
  ::close(silent.fd);
  ::close(talkative.fd);
}

TEST_CASE("another node with another secret, size or build is refused, and the job goes on") {
  Job job;
  job.node_of = {0, 1, 2};
  auto first = std::async(std::launch::async, [&] { return job.open(0); });
  const auto reason = [&](auto change) {
    ControlOptions options = job.options(2);
    change(options);
    const Status status = ControlChannel::open(options).status();
    CHECK(status.code() == StatusCode::refused);
    return status.message();
  };
  CHECK_THAT(reason([](ControlOptions& o) { o.secret = "guess"; }), Contains("another secret"));
  CHECK_THAT(reason([](ControlOptions& o) { o.size = 4; }), Contains("expects 4 ranks"));
  CHECK_THAT(reason([](ControlOptions& o) { o.build_id = "build 2"; }), Contains("'build 2'"));
  CHECK_THAT(reason([](ControlOptions& o) { o.rank = 7; }),
             Contains("rank 7 is not one of the job's 3 ranks"));
  auto rest = open_some(job, {1, 2});
  const auto zero = first.get();
  REQUIRE(zero);
  for (const auto& channel : rest) CHECK(channel);
}

TEST_CASE("a double on another node is refused by the rank 0 that knows both") {
  Job job;
  job.node_of = {0, 1, 1, 2};
  auto first = std::async(std::launch::async, [&] { return job.open(0); });
  auto second = std::async(std::launch::async, [&] { return ControlChannel::open(job.options(1)); });
  ControlOptions wrong = job.options(1);
  wrong.root_name += "/elsewhere";
  wrong.node_name += "/elsewhere";
  wrong.timeout = 20s;
  // One of the two claims rank 1 first; the other hears so.
  auto doubled = std::async(std::launch::async, [&] { return ControlChannel::open(wrong); });
  const auto is_refused = [](const Status& status) {
    return status.code() == StatusCode::refused &&
           status.message().find("has joined already") != std::string::npos;
  };
  auto rest = open_some(job, {2, 3});
  const auto a = second.get(), b = doubled.get(), zero = first.get();
  CHECK((is_refused(a.status()) || is_refused(b.status())));
  CHECK((a.is_ok() || b.is_ok()));
  CHECK(zero);
  for (const auto& channel : rest) CHECK(channel);
}

TEST_CASE("candidate ports follow from the job alone") {
  const auto ports = candidate_ports("torchrun/1/0");
  CHECK(ports == candidate_ports("torchrun/1/0"));
  CHECK(ports != candidate_ports("torchrun/1/1"));
  for (const PortRange range : {PortRange{20000, 20100}, PortRange{7, 9}, PortRange{5, 5}}) {
    const auto narrow = candidate_ports("torchrun/1/0", range);
    CHECK(narrow == candidate_ports("torchrun/1/0", range));
    for (const std::uint16_t port : narrow) CHECK((port >= range.first && port <= range.last));
    if (range.count() <= 16) CHECK(std::set<int>(narrow.begin(), narrow.end()).size() == range.count());
  }
  CHECK(ports.size() == 16);
  for (const std::uint16_t port : ports) CHECK((port >= 1024 && port < 32768));
}
