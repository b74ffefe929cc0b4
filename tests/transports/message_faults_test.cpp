// Message transports in bad company: peers that are killed, that do not answer, that the
// library cannot serve. Knows the seam, and how each library is left without a device; ranks are forked
// processes of the transport that TUTTI_TEST_TRANSPORT names.
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <string>

#include "tests/support/catch.hpp"
#include "tests/support/test_fraction.hpp"
#include "tests/transports/cases.hpp"
#include "tests/transports/killed_peer.hpp"
#include "tests/transports/world.hpp"

namespace {

using namespace tutti;
using namespace tutti::test;

Setup processes() {
  const Setup setup = setup_from_environment();
  REQUIRE(setup.kind == Kind::message_processes);
  return setup;
}

// For what the peer does meanwhile without a sign of it; too short a pause only tests less.
void pause(long milliseconds) {
  const ::timespec time{milliseconds / 1000, milliseconds % 1000 * 1000000};
  ::nanosleep(&time, nullptr);  // see above
}

}  // namespace

TEST_CASE("a killed peer is reported, nothing half arrives, and the survivors go on") {
  const auto judge = [](const Rank& self, bool is_first_whole) -> std::string {
    if (!self.received.empty() && !is_first_whole) return "a message arrived in part";
    // The large message may have been taken by the kernel as a whole.
    const std::size_t complete = self.received.size() + self.sent.size();
    return self.events.size() + complete == 3 ? "" : "a post completed twice or never";
  };
  CHECK(run_ranks(processes(), 3, [&](Rank& self) { return outlive_killed_peer(self, judge); }, {2}) == "");
}

TEST_CASE("a peer killed in the middle of large messages both ways fails what was pending, once") {
  for (std::uint64_t round = 0; round < 10; ++round) {
    if (!is_selected(round)) continue;
    const std::string answer =
        run_ranks(processes(), 3,
                  [round](Rank& self) -> std::string {
                    if (std::string why = self.open_all(); !why.empty()) return why;
                    const std::vector<std::byte> data = pattern(3000000, 1);
                    const ConstByteRange from = data;
                    std::array<std::vector<std::byte>, 3> in;
                    std::array<ByteRange, 3> to;
                    for (std::size_t i = 0; i < in.size(); ++i)
                      to[i] = in[i] = std::vector<std::byte>(data.size());
                    if (!self.barrier()) return "barrier";
                    std::size_t failed = 0;
                    // Until the death shows; then the survivors still exchange a round.
                    for (std::uint64_t i = 0; failed == 0 && i < 2000; ++i) {
                      const std::size_t complete = self.received.size() + self.sent.size();
                      self.events.clear();
                      std::size_t posted = 0;
                      const std::array<int, 1> to_dead{2};
                      const std::array<int, 2> to_all{0, 1};
                      for (const int other :
                           self.rank == 2 ? std::span<const int>(to_all) : std::span<const int>(to_dead)) {
                        self.recv(self.peer(other), 0, i, sink_of(&to[static_cast<std::size_t>(other)]), 1);
                        self.send(self.peer(other), 0, i, {&from, 1}, 2);
                        posted += 2;
                      }
                      if (self.rank == 2) {
                        for (std::uint64_t calls = 0; i == 3 && calls < round * 15; ++calls) self.progress();
                        if (i == 3) ::kill(::getpid(), SIGKILL);
                      }
                      if (!wait_until_quiet(self)) return "something never completes";
                      for (const Event& event : self.events) {
                        if (event.kind != Event::Kind::failed) return "unexpected event";
                        ++failed;
                      }
                      if (self.received.size() + self.sent.size() - complete + failed > posted)
                        return "too many events";
                    }
                    if (failed == 0) return "the death is not noticed";
                    return talk(self, 1 - self.rank);
                  },
                  {2});
    CHECK(answer == "");
  }
}

TEST_CASE("closing towards a peer that does not look ends, and gives all buffers back") {
  const std::string answer = run_ranks(processes(), 2, [](Rank& self) -> std::string {
    if (std::string why = self.open_all(); !why.empty()) return why;
    std::vector<std::byte> data = pattern(6U << 20U, 1), in(data.size());
    const ConstByteRange from = data;
    const ByteRange to = in;
    Endpoint& other = self.peer(1 - self.rank);
    // A connection there must be, or nothing could be under way.
    if (std::string why = talk(self, 1 - self.rank); !why.empty()) return why;
    if (!self.barrier()) return "barrier";
    if (self.rank == 0) {
      self.send(other, 0, 1, {&from, 1}, 1);
      self.send(other, 1, 1, {&from, 1}, 2);
      self.recv(other, 2, 1, sink_of(&to), 3);
      for (int i = 0; i < 30; ++i) self.progress();
      other.close(false);
      data.assign(data.size(), std::byte{0});  // a peer that still read here would get this
      if (!wait_until_quiet(self) || self.events.size() != 3) return "not three failures";
      return {};
    }
    pause(2000);
    self.recv(other, 0, 1, sink_of(&to), 1);
    if (!wait_until_quiet(self)) return "something never completes";
    if (self.events.empty() && in != data) return "what the sender has taken back was delivered";
    return {};
  });
  CHECK(answer == "");
}

TEST_CASE("a child that a killed peer has forked does not hide the death") {
  const Setup setup = processes();
  if (setup.name != "tcp") return;  // a library's descriptors are its own business
  const std::string answer =
      run_ranks(setup, 2,
                [](Rank& self) -> std::string {
                  if (std::string why = self.open_all(); !why.empty()) return why;
                  if (std::string why = talk(self, 1 - self.rank); !why.empty()) return why;
                  std::uint64_t child = 0;
                  const ByteRange word{reinterpret_cast<std::byte*>(&child), sizeof child};
                  if (self.rank == 1) {
                    const pid_t pid = ::fork();
                    if (pid == 0) {
                      pause(60000);
                      ::_exit(0);
                    }
                    child = static_cast<std::uint64_t>(pid);
                    const ConstByteRange from = word;
                    self.send(self.peer(0), 0, 1, {&from, 1}, 1);
                    if (!self.wait()) return "does not complete";
                    ::kill(::getpid(), SIGKILL);
                  }
                  self.recv(self.peer(1), 0, 1, sink_of(&word), 1);
                  if (!self.wait()) return "who the child is does not arrive";
                  self.recv(self.peer(1), 0, 2, sink_of(&word), 2);
                  const bool is_noticed = wait_until_quiet(self);
                  ::kill(static_cast<pid_t>(child), SIGKILL);
                  return is_noticed && self.events.size() == 1 ? "" : "the death is not noticed";
                },
                {1});
  CHECK(answer == "");
}

TEST_CASE("where the library has no device the transport is refused with the library's reason") {
  Setup setup = processes();
  if (setup.name == "tcp") return;  // needs no library
  const bool is_ucx = setup.name == "ucx";
  setup.prepare = [is_ucx](int) { ::setenv(is_ucx ? "UCX_TLS" : "FI_PROVIDER", "nonsense", 1); };
  const std::string answer = run_ranks(setup, 1, [](Rank&) -> std::string { return {}; });
  CHECK_THAT(answer, Catch::Matchers::Contains("no transport: unsupported: " + setup.name + ": "));
  const std::string reason =
      is_ucx ? "no UCX context: No such device" : "no provider can be used: cxi: No data available; efa: ";
  CHECK_THAT(answer, Catch::Matchers::Contains(reason));
}

TEST_CASE("ucx makes no shared memory that a killed rank would leave behind") {
  Setup setup = processes();
  if (setup.name != "ucx") return;
  setup.prepare = [](int) { ::unsetenv("UCX_TLS"); };
  const std::string answer = run_ranks(setup, 1, [](Rank& self) -> std::string {
    const std::string& detail = self.transport->caps().detail;
    const auto has = [&](const char* word) { return detail.find(word) != std::string::npos; };
    return has("tcp/lo") && !has("posix") && !has("sysv") ? "" : detail;
  });
  CHECK(answer == "");
}
