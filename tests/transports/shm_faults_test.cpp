// The shm transport in bad company: refused system calls, tight limits, killed peers,
// strangers. Knows the seam and the plug-in's constructor; ranks are forked processes.
#include <fcntl.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>
#include <set>
#include <string>

#include "tests/support/call_filter.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/test_fraction.hpp"
#include "tests/transports/cases.hpp"
#include "tests/transports/killed_peer.hpp"
#include "tests/transports/world.hpp"
#include "transports/memory/shm/plugin.hpp"

namespace {

using namespace tutti;
using namespace tutti::test;

Setup processes() {
  Setup setup;
  setup.kind = Kind::shm_processes;
  return setup;
}

bool refuse_single_copy() { return filter_call(SYS_process_vm_readv, CallFilter::refuse); }

// Large messages both ways, several times; `between` is called after the first.
std::string exchange(Rank& self, const std::function<std::string()>& between = {}) {
  if (std::string why = self.open_all(); !why.empty()) return why;
  Endpoint& other = self.peer(1 - self.rank);
  for (std::uint64_t round = 0; round < 6; ++round) {
    const std::vector<std::byte> out =
        pattern((5U << 20U) + 13, round + static_cast<std::uint64_t>(self.rank));
    std::vector<std::byte> in(out.size());
    const ConstByteRange from = out;
    const ByteRange to = in;
    self.recv(other, 0, round, sink_of(&to), 1);
    self.send(other, 0, round, {&from, 1}, 2);
    if (!self.wait()) return "round " + std::to_string(round) + " does not complete";
    if (!has_pattern(in, round + static_cast<std::uint64_t>(1 - self.rank))) return "wrong data";
    if (round == 0 && between) {
      if (std::string why = between(); !why.empty()) return why;
    }
  }
  return self.barrier() ? "" : "barrier";
}

// Abstract sockets belong to a network namespace: in one of its own, other jobs of the machine come and go
// unseen. Without the right to have one the test counts on being alone.
void leave_other_jobs() { static_cast<void>(::unshare(CLONE_NEWNET)); }

// Names of this library's sockets and of everything in /dev/shm.
std::set<std::string> traces() {
  std::set<std::string> found;
  std::ifstream sockets("/proc/net/unix");
  for (std::string line; std::getline(sockets, line);) {
    if (const auto at = line.find("@tutti-"); at != std::string::npos) found.insert(line.substr(at));
  }
  const std::string command = "ls /dev/shm 2>/dev/null";
  if (FILE* list = ::popen(command.c_str(), "r")) {
    std::array<char, 256> name{};
    while (std::fgets(name.data(), name.size(), list) != nullptr) found.insert(name.data());
    ::pclose(list);
  }
  return found;
}

// The name under which a transport with this address listens: its number is the end of the address.
sockaddr_un listener_of(const std::vector<std::byte>& address, socklen_t* bytes) {
  std::array<unsigned long long, 2> nonce{};
  std::memcpy(nonce.data(), address.data() + address.size() - sizeof(nonce), sizeof(nonce));
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  const int n =
      std::snprintf(name.sun_path + 1, sizeof(name.sun_path) - 1, "tutti-%016llx%016llx", nonce[1], nonce[0]);
  *bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + static_cast<std::size_t>(n));
  return name;
}

std::size_t count_descriptors() {
  std::size_t count = 0;
  for (int fd = 0; fd < 1024; ++fd) count += ::fcntl(fd, F_GETFD) >= 0 ? 1 : 0;
  return count;
}

// No further descriptor can be opened in this process.
[[maybe_unused]] void use_up_descriptors() {
  const int next = ::dup(0);
  ::close(next);
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = static_cast<rlim_t>(next);
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

std::size_t mapped_bytes() {
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace

TEST_CASE("single copy refused on one side only is staged") {
  for (const int refused : {0, 1}) {
    Setup setup = processes();
    setup.prepare = [refused](int rank) {
      if (rank == refused && !refuse_single_copy()) ::_exit(77);
    };
    const std::string answer = run_ranks(setup, 2, [refused](Rank& self) -> std::string {
      const bool says_so = self.transport->caps().detail.find("unavailable") != std::string_view::npos;
      if (says_so != (self.rank == refused)) return "caps().detail: " + self.transport->caps().detail;
      return exchange(self);
    });
    CHECK(answer == "");
  }
}

TEST_CASE("single copy withdrawn in the middle of a job is staged") {
  for (const int refused : {0, 1}) {
    const std::string answer = run_ranks(processes(), 2, [refused](Rank& self) -> std::string {
      return exchange(self, [&]() -> std::string {
        return self.rank != refused || refuse_single_copy() ? "" : "no seccomp here";
      });
    });
    CHECK(answer == "");
  }
}

TEST_CASE("a killed peer is reported, its messages are still delivered, nothing is left behind") {
  leave_other_jobs();
  const std::set<std::string> before = traces();
  const auto judge = [](const Rank& self, bool is_first_whole) -> std::string {
    if (!is_first_whole) return "what was sent before the death is lost";
    return self.events.size() == 2 ? "" : "not two failures";
  };
  CHECK(run_ranks(processes(), 3, [&](Rank& self) { return outlive_killed_peer(self, judge); }, {2}) == "");
  CHECK(traces() == before);
}

TEST_CASE("all ranks killed at any time leave nothing behind") {
  leave_other_jobs();
  const std::set<std::string> before = traces();
  for (std::uint64_t round = 0; round < 20; ++round) {
    if (!is_selected(round)) continue;
    run_ranks(processes(), 3,
              [round](Rank& self) -> std::string {
                ::signal(SIGALRM, SIG_DFL);
                itimerval when{};
                when.it_value.tv_usec =
                    static_cast<suseconds_t>(1 + round * 1500 + static_cast<std::uint64_t>(self.rank) * 300);
                ::setitimer(ITIMER_REAL, &when,
                            nullptr);  // ends the process, as SIGKILL does, without its help
                if (!self.open_all().empty()) return "open";
                const std::vector<std::byte> data = pattern(300000, 1);
                const ConstByteRange from = data;
                std::vector<std::byte> in(data.size());
                const ByteRange to = in;
                for (std::uint64_t i = 0; i < 100000; ++i) {
                  for (int other = 0; other < self.size; ++other) {
                    self.recv(self.peer(other), 0, 0, sink_of(&to), 1);
                    self.send(self.peer(other), 0, 0, {&from, 1}, 2);
                  }
                  if (!self.wait()) break;
                }
                return "";
              },
              {0, 1, 2});
  }
  CHECK(traces() == before);
}

TEST_CASE("a process that sends and exits at once is heard") {
  const std::string answer =
      run_ranks(processes(), 2,
                [](Rank& self) -> std::string {
                  // Rank 1 opens only when rank 0 is gone: memory and messages wait in the socket.
                  if (self.rank == 1) {
                    ::timespec pause{0, 100000000};
                    ::nanosleep(&pause, nullptr);  // mostly; right either way
                  }
                  if (std::string why = self.open_all(); !why.empty()) return why;
                  const std::vector<std::byte> data = pattern(3000, 4);
                  const ConstByteRange from = data;
                  std::vector<std::byte> in(data.size());
                  const ByteRange to = in;
                  if (self.rank == 0) {
                    self.send(self.peer(1), 0, 1, {&from, 1}, 1);
                    if (!self.wait()) return "does not complete";
                    ::_exit(0);
                  }
                  self.recv(self.peer(0), 0, 1, sink_of(&to), 1);
                  return self.wait() && self.events.empty() && in == data ? "" : "the message is lost";
                },
                {0});
  CHECK(answer == "");
}

TEST_CASE("strangers and garbage at the socket are dropped and harm nobody") {
  const std::string answer = run_ranks(processes(), 2, [](Rank& self) -> std::string {
    std::vector<int> sockets;
    socklen_t bytes = 0;
    const sockaddr_un name = listener_of(self.addresses[static_cast<std::size_t>(1 - self.rank)], &bytes);
    for (int i = 0; i < 60; ++i) {
      const int fd = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
      if (::connect(fd, reinterpret_cast<const sockaddr*>(&name), bytes) != 0)
        return "cannot reach the socket";
      const std::vector<std::byte> junk =
          pattern(static_cast<std::size_t>(i) * 3, static_cast<std::uint64_t>(i));
      ::send(fd, junk.data(), junk.size(), MSG_NOSIGNAL);
      sockets.push_back(fd);  // some stay silent, some are closed
      if (i % 3 == 0) {
        ::close(sockets.back());
        sockets.pop_back();
      }
    }
    std::string why = exchange(self);
    for (const int fd : sockets) ::close(fd);
    return why;
  });
  CHECK(answer == "");
}

TEST_CASE("another node, user, transport or build is refused with the reason") {
  ShmOptions here, there;
  there.node_id = "elsewhere";
  auto a = make_shm_transport(here);
  auto b = make_shm_transport(there);
  auto c = make_shm_transport(here);
  REQUIRE(a);
  REQUIRE(b);
  REQUIRE(c);
  CHECK((*a)->reach((*a)->address(), (*c)->address()));
  const auto apart = (*a)->reach((*a)->address(), (*b)->address());
  REQUIRE_FALSE(apart);
  CHECK(apart.status().code() == StatusCode::unsupported);
  CHECK(apart.status().message().find("another node") != std::string::npos);
  CHECK_FALSE((*a)->open((*b)->address(), 1));
}

TEST_CASE("tight limits are errors that name the limit") {
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit files{3, 3};
    ::setrlimit(RLIMIT_NOFILE, &files);
    const auto made = make_shm_transport({});
    const bool is_named = !made && made.status().code() == StatusCode::resource_exhausted &&
                          made.status().message().find("ulimit -n") != std::string::npos;
    ::_exit(is_named ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  CHECK(status == 0);
  ShmOptions small;
  small.memory.heap_bytes = 1U << 20U;
  auto made = make_shm_transport(small);
  REQUIRE(made);
  const auto memory = (*made)->caps().heap->allocate(2U << 20U);
  REQUIRE_FALSE(memory);
  CHECK(memory.status().code() == StatusCode::resource_exhausted);
  CHECK((*made)->caps().heap->allocate(1U << 19U));
}

TEST_CASE("a forked child that ends in any way does not disturb its parent") {
  const std::string answer = run_ranks(processes(), 2, [](Rank& self) -> std::string {
    return exchange(self, [&]() -> std::string {
      std::vector<pid_t> children;
      for (int how = 0; how < 3; ++how) {
        const pid_t child = ::fork();
        if (child == 0) {
          if (how == 0) ::_exit(0);
          if (how == 1) ::kill(::getpid(), SIGKILL);
          self.peers.clear();  // destructors run in the child
          self.transport.reset();
          ::_exit(0);
        }
        children.push_back(child);
      }
      for (const pid_t child : children) {
        int status = 0;
        ::waitpid(child, &status, 0);
        if (child == children[2] && status != 0) return "destructors fail in a child";
      }
      return "";
    });
  });
  CHECK(answer == "");
}

TEST_CASE("segments start small and grow with what is sent") {
  const std::string answer = run_ranks(processes(), 4, [](Rank& self) -> std::string {
    constexpr std::size_t kMib = std::size_t{1} << 20U;
    const std::size_t before = mapped_bytes();
    if (std::string why = self.open_all(); !why.empty()) return why;
    std::vector<std::vector<std::byte>> in(static_cast<std::size_t>(self.size));
    for (const std::size_t bytes : {std::size_t{8}, 5 * kMib}) {
      const std::vector<std::byte> out = pattern(bytes, static_cast<std::uint64_t>(self.rank));
      const ConstByteRange from = out;
      std::vector<ByteRange> to(in.size());
      for (std::uint32_t channel = 0; channel < 4; ++channel) {
        for (int other = 0; other < self.size; ++other) {
          const auto at = static_cast<std::size_t>(other);
          in[at].assign(bytes, std::byte{0});
          to[at] = in[at];
          self.recv(self.peer(other), channel, bytes, sink_of(&to[at]), 1);
          self.send(self.peer(other), channel, bytes, {&from, 1}, 2);
        }
        if (!self.wait()) return "does not complete";
        for (int other = 0; other < self.size; ++other) {
          if (!has_pattern(in[static_cast<std::size_t>(other)], static_cast<std::uint64_t>(other)))
            return "wrong data";
        }
      }
      // Sanitizers map memory of their own.
      if (bytes == 8 && mapped_bytes() - before > 64 * kMib) return "more is mapped than 8 bytes need";
    }
    return self.barrier() ? "" : "barrier";
  });
  CHECK(answer == "");
}

TEST_CASE("a limit on the size of files is kept, and named where it is too low") {
  Setup setup = processes();
  constexpr std::size_t kLimit = std::size_t{3} << 20U;
  setup.prepare = [](int) {
    const rlimit limit{kLimit, kLimit};
    ::setrlimit(RLIMIT_FSIZE, &limit);  // beyond it, SIGXFSZ
  };
  const std::string answer = run_ranks(setup, 2, [](Rank& self) -> std::string {
    SharedHeap* heap = self.transport->caps().heap;
    for (int i = 0; i < 20; ++i) {
      if (const auto block = heap->allocate(kLimit / 2); !block) return block.status().to_string();
    }
    const auto large = heap->allocate(2 * kLimit);
    if (large) return "more than a file may hold";
    if (large.status().code() != StatusCode::resource_exhausted ||
        large.status().message().find("ulimit -f") == std::string::npos)
      return large.status().to_string();
    return exchange(self);
  });
  CHECK(answer == "");
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit limit{4096, 4096};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    const auto made = make_shm_transport({});
    const bool is_named = !made && made.status().code() == StatusCode::resource_exhausted &&
                          made.status().message().find("ulimit -f") != std::string::npos;
    ::_exit(is_named ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  CHECK(status == 0);
}

// Sanitizers reserve more address space than any limit grants, and check types through pipes, which take
// descriptors. They are built with clang.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && !defined(__clang__)
TEST_CASE("a rank without descriptors is told so by the limit's name, whichever side it is on") {
  // Rank 1 has none when it opens its side, or when the memory of the other arrives.
  for (const bool is_late : {false, true}) {
    const std::string answer = run_ranks(processes(), 2, [is_late](Rank& self) -> std::string {
      const std::vector<std::byte>& other = self.addresses[static_cast<std::size_t>(1 - self.rank)];
      if (self.rank == 0) {
        if (!is_late && !self.barrier()) return "barrier";
        auto opened = self.transport->open(other, 1);
        if (!opened) return opened.status().to_string();
        if (is_late && !self.barrier()) return "barrier";
        return self.barrier() ? "" : "barrier";
      }
      Status named;
      if (!is_late) {
        use_up_descriptors();
        named = self.transport->open(other, 1).status();
        if (!self.barrier()) return "barrier";
      } else {
        auto opened = self.transport->open(other, 1);
        if (!opened) return opened.status().to_string();
        use_up_descriptors();
        if (!self.barrier()) return "barrier";
        std::uint64_t value = 0;
        const ByteRange to(reinterpret_cast<std::byte*>(&value), sizeof(value));
        self.peers.push_back(*std::move(opened));
        self.recv(*self.peers.back(), 0, 1, sink_of(&to), 7);
        if (!wait_until_quiet(self)) return "waits for memory that cannot come";
        named = self.peers.back()->trouble();
      }
      if (!self.barrier()) return "barrier";
      return named.code() == StatusCode::resource_exhausted &&
                     named.message().find("ulimit -n") != std::string::npos
                 ? ""
                 : named.to_string();
    });
    CHECK(answer == "");
  }
}

TEST_CASE("memory of a peer that does not fit into the address space is told so by the limit's name") {
  const std::string answer = run_ranks(processes(), 2, [](Rank& self) -> std::string {
    const std::vector<std::byte>& other = self.addresses[static_cast<std::size_t>(1 - self.rank)];
    auto opened = self.transport->open(other, 1);
    if (!opened) return opened.status().to_string();
    self.peers.push_back(*std::move(opened));
    if (!self.barrier()) return "barrier";
    if (self.rank == 0) return self.barrier() ? "" : "barrier";
    const rlimit limit{mapped_bytes() + (std::size_t{512} << 10U), RLIM_INFINITY};
    ::setrlimit(RLIMIT_AS, &limit);
    std::uint64_t value = 0;
    const ByteRange to(reinterpret_cast<std::byte*>(&value), sizeof(value));
    self.recv(*self.peers.back(), 0, 1, sink_of(&to), 7);
    if (!wait_until_quiet(self)) return "waits for memory that cannot come";
    const Status named = self.peers.back()->trouble();
    if (!self.barrier()) return "barrier";
    return named.code() == StatusCode::resource_exhausted &&
                   named.message().find("ulimit -v") != std::string::npos
               ? ""
               : named.to_string();
  });
  CHECK(answer == "");
}

TEST_CASE("what one window of a peer cannot map does not end the others") {
  constexpr std::uint64_t kWindows = 20000;  // more than the first segments of link memory hold
  const std::string answer = run_ranks(processes(), 2, [](Rank& self) -> std::string {
    auto first = self.open_window(1);
    if (!first) return first.status().to_string();
    (*first)->expose(0, {0, 64, 64});
    const auto peer = static_cast<std::uint32_t>(1 - self.rank);
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!(*first)->query(peer, 0)) {
      if (std::chrono::steady_clock::now() > until) return "the first window was not found";
      self.progress();
    }
    if (!self.barrier()) return "barrier";
    std::vector<std::unique_ptr<SharedWindow>> more;
    if (self.rank == 0) {
      for (std::uint64_t context = 2; context <= kWindows; ++context) {
        auto opened = self.open_window(context);
        if (!opened) return opened.status().to_string();
        more.push_back(*std::move(opened));
      }
      return self.barrier() && self.barrier() ? "" : "barrier";
    }
    const rlimit limit{mapped_bytes() + (std::size_t{512} << 10U), RLIM_INFINITY};
    ::setrlimit(RLIMIT_AS, &limit);
    if (!self.barrier()) return "barrier";
    auto last = self.open_window(kWindows);
    if (!last) return last.status().to_string();
    constexpr int kLooks = 200;  // news is looked for now and then
    for (int looks = 0; looks < kLooks || (*last)->trouble(peer); ++looks) {
      if ((*last)->query(peer, 0)) return "the last window was mapped";
      if (std::chrono::steady_clock::now() > until) return "no trouble";
      self.progress();
    }
    if ((*first)->is_gone(peer)) return "the first window takes the peer for gone";
    if (!(*first)->query(peer, 0)) return "the first window has lost its block";
    return self.barrier() ? "" : "barrier";
  });
  CHECK(answer == "");
}
#endif

TEST_CASE("a peer costs one descriptor of its process, and an instance two") {
  const std::string answer = run_ranks(processes(), 4, [](Rank& self) -> std::string {
    const std::size_t before = count_descriptors();  // the instance's two are there
    for (std::uint64_t context = 1; context <= 3; ++context) {
      if (std::string why = self.open_all(context); !why.empty()) return why;
    }
    const auto in_a_row = static_cast<std::size_t>(self.size);
    for (std::size_t i = 0; i < self.peers.size(); ++i) {
      std::uint64_t out = i, in = 0;
      const ConstByteRange from(reinterpret_cast<std::byte*>(&out), sizeof(out));
      const ByteRange to(reinterpret_cast<std::byte*>(&in), sizeof(in));
      self.recv(*self.peers[i], 0, 1, sink_of(&to), 1);
      self.send(*self.peers[i], 0, 1, {&from, 1}, 2);
      // A peer knows this endpoint by our rank.
      const std::size_t theirs = i - i % in_a_row + static_cast<std::size_t>(self.rank);
      if (!self.wait() || in != theirs) return "wrong answer";
    }
    if (!self.barrier()) return "barrier";
    self.progress();
    const std::size_t taken = count_descriptors() - before;
    return taken <= static_cast<std::size_t>(self.size) ? "" : std::to_string(taken) + " descriptors";
  });
  CHECK(answer == "");
}
