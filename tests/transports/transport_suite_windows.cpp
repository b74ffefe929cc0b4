// The conformance suite of the transport seam, shared windows: what ranks show each other without messages, how they
// wake each other, last words and endings. Knows no transport's inside.
#include <linux/futex.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <optional>

#include "tests/support/catch.hpp"
#include "tests/transports/cases.hpp"
#include "tests/transports/world.hpp"

namespace {

using namespace tutti;
using namespace tutti::test;

constexpr std::uint64_t kContext = 77;

// Runs the case where ranks share memory.
void check_windows(int size, const Body& body, const std::vector<int>& expected_dead = {}) {
  const std::string answer = run_ranks(
      setup_from_environment(), size,
      [&body](Rank& self) -> std::string {
        if (self.transport->caps().heap == nullptr) return {};
        if (std::string why = self.open_all(); !why.empty()) return why;
        return body(self);
      },
      expected_dead);
  CHECK(answer == "");
}

SegmentRange range_of(const Rank& self, ByteRange memory) {
  SharedHeap::Location place;
  self.transport->caps().heap->locate(memory.data(), memory.size(), &place);
  return {place.segment, place.offset, memory.size()};
}

// Waits until the peer has exposed that range.
std::optional<SegmentRange> await_range(Rank& self, SharedWindow& window, int peer, std::uint32_t number) {
  std::optional<SegmentRange> found;
  self.wait_until([&] {
    found = window.query(static_cast<std::uint32_t>(peer), number);
    return found.has_value();
  });
  return found;
}

bool sees_end(Rank& self, SharedWindow& window, int peer) {
  return self.wait_until([&] { return window.is_gone(static_cast<std::uint32_t>(peer)); });
}

}  // namespace

TEST_CASE("transports that share no memory say so when a window is asked for") {
  const std::string answer = run_ranks(setup_from_environment(), 2, [](Rank& self) -> std::string {
    if (self.transport->caps().heap != nullptr) return {};
    const auto opened = self.open_window(kContext);
    return !opened && opened.status().code() == StatusCode::unsupported ? "" : "not refused";
  });
  CHECK(answer == "");
}

TEST_CASE("what a rank exposes is seen by all others, each number by itself, and can be written") {
  check_windows(3, [](Rank& self) -> std::string {
    auto window = self.open_window(kContext);
    if (!window) return window.status().to_string();
    SharedWindow& shared = **window;
    const auto memory = self.transport->caps().heap->allocate(100000);
    if (!memory) return memory.status().to_string();
    const std::vector<std::byte> data = pattern(memory->size(), static_cast<std::uint64_t>(self.rank));
    std::memcpy(memory->data(), data.data(), data.size());
    if (!self.barrier()) return "barrier";
    for (int other = 0; other < self.size; ++other) {
      if (other == self.rank) continue;
      if (shared.query(static_cast<std::uint32_t>(other), 0)) return "nothing has been exposed yet";
    }
    if (!self.barrier()) return "barrier";
    shared.expose(1, {});  // none
    shared.expose(0, range_of(self, memory->subspan(64, 200)));
    for (int other = 0; other < self.size; ++other) {
      if (other == self.rank) continue;
      const auto peer = static_cast<std::uint32_t>(other);
      const auto range = await_range(self, shared, other, 0);
      if (!range || range->bytes != 200) return "not exposed";
      const auto none = await_range(self, shared, other, 1);
      if (!none || none->bytes != 0) return "another range under another number";
      if (!self.wait_until([&] { return !shared.segment(peer, range->segment).empty(); }))
        return "not mapped";
      const ByteRange seen = shared.segment(peer, range->segment).subspan(range->offset, range->bytes);
      if (!has_pattern(seen.first(100), static_cast<std::uint64_t>(other), 64))
        return "something else is seen";
      if (!shared.segment(peer, 9999).empty()) return "a segment that does not exist";
      if (shared.is_gone(peer) || !shared.trouble(peer)) return "the peer lives";
      seen[100 + static_cast<std::size_t>(self.rank)] = std::byte{0xa5};
    }
    if (!self.barrier()) return "barrier";
    for (int other = 0; other < self.size; ++other) {
      if (other != self.rank && (*memory)[164 + static_cast<std::size_t>(other)] != std::byte{0xa5})
        return "a write through the window is not seen by the owner";
    }
    return self.barrier() ? "" : "barrier";
  });
}

TEST_CASE("a window tells whether its peer sleeps, wakes it, and shows that it has closed") {
  check_windows(2, [](Rank& self) -> std::string {
    auto opened = self.open_window(kContext);
    const auto memory = self.transport->caps().heap->allocate(4096);
    if (!opened || !memory) return "no window";
    SharedWindow& window = **opened;
    window.expose(0, range_of(self, *memory));
    const int other = 1 - self.rank;
    const auto peer = static_cast<std::uint32_t>(other);
    const auto range = await_range(self, window, other, 0);
    if (!range || !self.wait_until([&] { return !window.segment(peer, range->segment).empty(); }))
      return "not mapped";
    const PeerBell bell = window.bell(peer);
    if (bell.is_sleeping == nullptr || window.is_gone(peer)) return "not as it is";
    const auto is_asleep = [&] {  // read as PeerBell wants it
      return (bell.needs_fence ? bell.is_sleeping->fetch_add(0, std::memory_order_acq_rel)
                               : bell.is_sleeping->load(std::memory_order_acquire)) != 0;
    };
    if (!self.barrier()) return "barrier";
    auto* const flag = reinterpret_cast<std::atomic<std::uint32_t>*>(memory->data());
    auto* const theirs = reinterpret_cast<std::atomic<std::uint32_t>*>(
        window.segment(peer, range->segment).data() + range->offset);
    for (std::uint32_t round = 1; round <= 30; ++round) {
      if (self.rank == 1) {
        if (!self.wait_until(is_asleep)) return "the peer does not fall asleep";
        theirs->store(round, std::memory_order_release);
        if (is_asleep()) window.wake(peer);
        continue;
      }
      // Sleeps until its memory says that somebody was there: no message brings what was published.
      while (flag->load(std::memory_order_acquire) < round) {
        const ArmResult armed = self.transport->arm();
        const Waitable on = self.transport->waitable();
        if (on.futex_word == nullptr) return "memory transports sleep on a futex";
        if (armed.is_armed && flag->load(std::memory_order_acquire) < round) {
          const timespec limit{60, 0};
          const long woken =
              ::syscall(SYS_futex, on.futex_word, FUTEX_WAIT, armed.futex_value, &limit, nullptr, 0);
          if (woken != 0 && errno == ETIMEDOUT) return "not woken";
        }
        self.progress();
      }
    }
    if (!self.barrier()) return "barrier";
    if (!self.wait_until([&] { return !is_asleep(); }) || !self.barrier()) return "said to sleep";
    if (self.rank == 0) {
      window.close();
      return window.is_gone(peer) ? "" : "who has closed still sees a living peer";
    }
    if (!sees_end(self, window, 0)) return "still there";
    return window.segment(peer, range->segment).empty() ? "mapped memory is gone with the peer" : "";
  });
}

TEST_CASE("who looked before the peer opened its side sees what it exposes, and that it closes") {
  check_windows(2, [](Rank& self) -> std::string {
    if (self.rank == 1 && !self.barrier()) return "barrier";
    auto opened = self.open_window(kContext);
    if (!opened) return opened.status().to_string();
    SharedWindow& window = **opened;
    const auto peer = static_cast<std::uint32_t>(1 - self.rank);
    if (self.rank == 0) {
      for (int looks = 0; looks < 100; ++looks) {
        if (window.query(peer, 0)) return "nothing can be there yet";
        self.progress();
      }
      if (!self.barrier()) return "barrier";
    } else {
      window.expose(0, {3, 4096, 5});
    }
    if (window.is_gone(peer)) return "gone before it closed";
    if (self.rank == 0) {
      const auto range = await_range(self, window, 1, 0);
      if (!range || range->segment != 3 || range->offset != 4096 || range->bytes != 5) return "another range";
    }
    if (!self.barrier()) return "barrier";
    if (self.rank == 1) window.close();
    if (self.rank == 0 && !sees_end(self, window, 1)) return "the closed peer does not show";
    return self.barrier() ? "" : "barrier";
  });
}

TEST_CASE("a sleeper that waits for what a peer will expose is woken") {
  check_windows(2, [](Rank& self) -> std::string {
    auto opened = self.open_window(kContext);
    if (!opened) return opened.status().to_string();
    SharedWindow& window = **opened;
    const auto peer = static_cast<std::uint32_t>(1 - self.rank);
    window.expose(0, {1, 64, 1});
    if (!await_range(self, window, 1 - self.rank, 0) || !self.barrier()) return "not exposed";
    if (self.rank == 1) {
      const PeerBell bell = window.bell(0);
      if (!self.wait_until([&] { return bell.is_sleeping->load(std::memory_order_acquire) != 0; }))
        return "does not sleep";
      window.expose(1, {1, 64, 2});
    } else {
      while (!window.query(peer, 1)) {
        const ArmResult armed = self.transport->arm();
        if (armed.is_armed && !window.query(peer, 1)) {
          const timespec limit{60, 0};
          const long woken = ::syscall(SYS_futex, self.transport->waitable().futex_word, FUTEX_WAIT,
                                       armed.futex_value, &limit, nullptr, 0);
          if (woken != 0 && errno == ETIMEDOUT) return "not woken";
        }
        self.progress();
      }
    }
    return self.barrier() ? "" : "barrier";
  });
}

TEST_CASE("a last word gets to every member once, also to one that opens later, and before the end") {
  check_windows(3, [](Rank& self) -> std::string {
    if (self.rank == 2 && !self.barrier()) return "barrier";
    auto opened = self.open_window(kContext);
    auto elsewhere = self.open_window(kContext + 1);
    if (!opened || !elsewhere) return "no window";
    SharedWindow& window = **opened;
    const std::vector<std::byte> word = pattern(SharedWindow::kMostNoticeBytes, 5);
    if (self.rank == 0) {
      window.expose(0, {});
      window.notify(word);
      window.notify(ConstByteRange(word).first(3));  // there is one only
      window.close();
    } else if (self.rank == 1) {
      if (!await_range(self, window, 0, 0)) return "not exposed";
      while (!window.is_gone(0)) self.progress();
      if (self.controls.size() != 1) return "the end before the last word";
    }
    if (self.rank != 2 && !self.barrier()) return "barrier";
    if (self.rank == 2) {
      while (!window.is_gone(0)) self.progress();
    }
    const std::size_t expected = self.rank == 0 ? 0 : 1;
    if (!self.wait_until([&] { return self.controls.size() == expected; })) return "no last word";
    for (int i = 0; i < 100; ++i) self.progress();
    if (self.controls.size() != expected) return "more than one";
    if (expected == 1 && self.controls[0] != word) return "another word";
    return self.barrier() ? "" : "barrier";
  });
}

TEST_CASE("windows that are opened and closed again and again take no more memory than at once") {
  check_windows(2, [](Rank& self) -> std::string {
    constexpr std::uint64_t kRounds = 20000;  // more than a directory has entries
    constexpr std::uint64_t kBetween = 500;
    for (std::uint64_t round = 0; round < kRounds; ++round) {
      auto opened = self.open_window(kContext + round);
      if (!opened) return "round " + std::to_string(round) + ": " + opened.status().to_string();
      (*opened)->expose(0, {1, 64, round + 1});
      const auto range = await_range(self, **opened, 1 - self.rank, 0);
      if (!range || range->bytes != round + 1) return "another context's range";
      if (round % kBetween == 0 && !self.barrier()) return "barrier";
    }
    return self.barrier() ? "" : "barrier";
  });
}

TEST_CASE("a window shows that its peer was killed, and what it had exposed") {
  if (setup_from_environment().kind != Kind::shm_processes) return;
  check_windows(3,
                [](Rank& self) -> std::string {
                  auto opened = self.open_window(kContext);
                  if (!opened) return opened.status().to_string();
                  SharedWindow& window = **opened;
                  window.expose(0, {1, 64, 7});
                  for (int other = 0; other < self.size; ++other) {
                    if (other != self.rank && !await_range(self, window, other, 0)) return "not exposed";
                  }
                  if (!self.barrier()) return "barrier";
                  if (self.rank == 2) ::kill(::getpid(), SIGKILL);
                  if (!sees_end(self, window, 2)) return "the death is not seen";
                  const auto range = window.query(2, 0);
                  return range && range->bytes == 7 ? "" : "what it had exposed is lost";
                },
                {2});
}
