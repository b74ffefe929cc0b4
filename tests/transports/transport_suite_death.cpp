// The conformance suite of the transport seam: ranks that end without a word. Knows no transport's inside.
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "tests/support/catch.hpp"
#include "tests/support/test_fraction.hpp"
#include "tests/transports/cases.hpp"
#include "tests/transports/faulty_transport.hpp"
#include "tests/transports/world.hpp"

namespace {

using namespace tutti;
using namespace tutti::test;

constexpr int kDeadlineMs = 60000;

// The word of another process, from a pipe. False if none comes: that process has failed.
bool hear(int pipe_end, pid_t* word) {
  pollfd there{pipe_end, POLLIN, 0};
  return ::poll(&there, 1, kDeadlineMs) == 1 && ::read(pipe_end, word, sizeof(*word)) == sizeof(*word);
}
bool say(int pipe_end, pid_t word) { return ::write(pipe_end, &word, sizeof(word)) == sizeof(word); }

// Waits for the end of a process that is no child of this one. Its sockets are closed by then.
bool await_end(pid_t process) {
  pollfd end{static_cast<int>(::syscall(SYS_pidfd_open, process, 0)), POLLIN, 0};
  if (end.fd < 0) return errno == ESRCH;
  const bool has_ended = ::poll(&end, 1, kDeadlineMs) == 1;
  ::close(end.fd);
  return has_ended;
}

}  // namespace

TEST_CASE("a rank that dies in traffic fails everything of its peers exactly once, and nothing else") {
  const Setup setup = setup_from_environment();
  if (!setup.is_faulty) return;  // the decorator does the killing
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    if (!is_selected(seed)) continue;
    const std::string answer = run_ranks(setup, 3, [seed](Rank& self) -> std::string {
      if (std::string why = self.open_all(); !why.empty()) return why;
      if (!self.barrier()) return "barrier";
      const std::vector<std::byte> data = pattern(100 + seed * 30000, seed);
      const ConstByteRange from = data;
      constexpr RequestId kMessages = 20;
      std::vector<std::vector<std::byte>> in(3 * kMessages, std::vector<std::byte>(data.size()));
      std::vector<ByteRange> to(in.begin(), in.end());
      std::size_t posted = 0;
      for (RequestId i = 0; i < kMessages; ++i) {
        if (self.rank == 2 && i == seed) kill(self.transport.get());
        for (RequestId other = 0; other < 3; ++other) {
          Endpoint& peer = self.peer(static_cast<int>(other));
          const RequestId request = other * kMessages + i;
          self.recv(peer, 0, i, sink_of(&to[request]), 1000 + request);
          self.send(peer, 0, i, {&from, 1}, 2000 + request);
          posted += 2;
        }
      }
      if (!self.wait()) return "something never completes";
      std::map<RequestId, int> failures;
      for (const Event& event : self.events) {
        if (event.kind != Event::Kind::failed) return unexpected(event);
        const RequestId request = event.request % 1000;
        if (++failures[event.request] != 1) return "a request failed twice";
        if (self.rank != 2 && request / kMessages != 2) return "a message between survivors failed";
      }
      if (self.events.size() > posted) return "more failures than posts";
      if (self.rank == 2) return {};
      for (RequestId request = 0; request < 2 * kMessages; ++request) {
        if (!has_pattern(in[request], seed)) return "a message between survivors is wrong";
      }
      // Messages of the dead rank arrived whole or not at all.
      for (RequestId request = 2 * kMessages; request < 3 * kMessages; ++request) {
        if (failures.count(1000 + request) == 0 && !has_pattern(in[request], seed))
          return "half a message was delivered";
      }
      return {};
    });
    CHECK(answer == "");
  }
}

TEST_CASE("what is sent to a process that ended right after it had connected fails") {
  const Setup setup = setup_from_environment();
  if (setup.kind != Kind::message_processes) return;  // threads cannot end so, and memory has no connections
  for (std::uint64_t round = 0; round < 5; ++round) {
    if (round != 0 && !is_selected(round)) continue;
    std::array<int, 2> to_rank_0{}, to_rank_1{};
    REQUIRE((::pipe(to_rank_0.data()) == 0 && ::pipe(to_rank_1.data()) == 0));
    const Body body = [&](Rank& self) -> std::string {
      const std::uint64_t word = 1;
      const ConstByteRange from = std::as_bytes(std::span(&word, 1));
      pid_t process = ::getpid();
      if (self.rank == 1) {
        if (std::string why = self.open_all(); !why.empty()) return why;
        self.send(self.peer(0), 0, word, {&from, 1}, 1);
        if (!say(to_rank_0[1], process)) return "no pipe";
        // From here on nothing is read: with bytes unread, the end of the process resets the connection.
        if (!hear(to_rank_1[0], &process)) return "rank 0 says nothing";
        ::_exit(0);
      }
      if (!hear(to_rank_0[0], &process)) return "rank 1 says nothing";
      for (std::uint64_t i = 0; i < 200 * (round + 1); ++i) self.progress();
      if (!say(to_rank_1[1], process)) return "no pipe";
      if (!await_end(process)) return "rank 1 does not end";
      if (std::string why = self.open_all(); !why.empty()) return why;
      std::array<std::byte, sizeof(word)> in{};
      const ByteRange to = in;
      for (RequestId request = 1; request <= 3; ++request) {
        self.send(self.peer(1), 1, word, {&from, 1}, request);
        self.recv(self.peer(1), 1, word, sink_of(&to), 10 + request);
      }
      if (!self.wait()) return "something never completes";
      for (RequestId request = 1; request <= 3; ++request) {
        const auto is_it = [request](const Event& event) {
          return event.kind == Event::Kind::failed && event.request == 10 + request;
        };
        if (std::count_if(self.events.begin(), self.events.end(), is_it) != 1)
          return "a receive did not fail";
      }
      return {};
    };
    CHECK(run_ranks(setup, 2, body, {1}) == "");
    for (const int fd : {to_rank_0[0], to_rank_0[1], to_rank_1[0], to_rank_1[1]}) ::close(fd);
  }
}
