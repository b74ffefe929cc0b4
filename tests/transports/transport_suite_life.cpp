// The conformance suite of the transport seam, second half: control messages, opening and closing, sleeping,
// shared memory and traffic of many ranks. Knows no transport's inside.
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <deque>
#include <map>
#include <random>

#include "tests/support/catch.hpp"
#include "tests/support/test_fraction.hpp"
#include "tests/transports/cases.hpp"
#include "tests/transports/world.hpp"

namespace {

using namespace tutti;
using namespace tutti::test;

}  // namespace

TEST_CASE("control messages arrive in order, beside all channels, also from a peer that opened first") {
  const std::string answer = run_ranks(setup_from_environment(), 3, [](Rank& self) -> std::string {
    if (self.rank == 0 && !self.barrier()) return "barrier";  // the others open and send first
    if (std::string why = self.open_all(); !why.empty()) return why;
    const std::size_t count = 40;
    for (std::size_t i = 0; i < count; ++i) {
      if (i == 8 && self.rank != 0 && !self.barrier()) return "barrier";
      for (int other = 0; other < self.size; ++other) {
        if (other == self.rank) continue;
        std::vector<std::byte> bytes = pattern(4 + i * 6, i);
        bytes[0] = static_cast<std::byte>(self.rank);
        bytes[1] = static_cast<std::byte>(i);
        self.control(self.peer(other), bytes);
      }
    }
    if (!self.wait_until([&] { return self.controls.size() == 2 * count; })) return "controls are missing";
    std::array<std::size_t, 3> next{};
    for (std::size_t k = 0; k < self.controls.size(); ++k) {
      std::vector<std::byte> bytes = self.controls[k];
      const auto from = static_cast<std::size_t>(bytes[0]);
      const auto number = static_cast<std::size_t>(bytes[1]);
      if (number != next[from]++ || bytes.size() != 4 + number * 6) return "out of order or of wrong length";
      if (self.events[k].endpoint != &self.peer(static_cast<int>(from))) return "wrong endpoint";
      if (!has_pattern(ConstByteRange(bytes).subspan(2), number, 2)) return "wrong bytes";
    }
    return self.barrier() ? "" : "barrier";
  });
  CHECK(answer == "");
}

TEST_CASE("sends and receives may be posted before the peer opens its side") {
  for (const int late : {0, 1}) {
    const std::string answer = run_ranks(setup_from_environment(), 2, [late](Rank& self) -> std::string {
      if (self.rank == late && !self.barrier()) return "barrier";
      if (std::string why = self.open_all(); !why.empty()) return why;
      Endpoint& other = self.peer(1 - self.rank);
      const std::array<std::size_t, 4> sizes{8, 900, 40000, 1500000};
      std::vector<std::vector<std::byte>> out, in;
      for (const std::size_t bytes : sizes) {
        out.push_back(pattern(bytes, bytes));
        in.emplace_back(bytes);
      }
      std::vector<ConstByteRange> from(out.begin(), out.end());
      std::vector<ByteRange> to(in.begin(), in.end());
      for (std::size_t i = 0; i < sizes.size(); ++i) {
        self.send(other, 0, i, {&from[i], 1}, i);
        self.recv(other, 0, i, sink_of(&to[i]), i);
      }
      if (self.rank != late && !self.barrier()) return "barrier";
      if (!self.wait()) return "does not complete";
      if (in != out) return "wrong data";
      return self.barrier() ? "" : "barrier";
    });
    CHECK(answer == "");
  }
}

TEST_CASE("a completed send is delivered although its endpoint closes at once, and the transport ends") {
  const std::string answer = run_ranks(setup_from_environment(), 2, [](Rank& self) -> std::string {
    if (std::string why = self.open_all(); !why.empty()) return why;
    if (!self.barrier()) return "barrier";  // an address is good only as long as its transport
    Endpoint& other = self.peer(1 - self.rank);
    std::vector<std::byte> data = pattern(5000, 3);
    const ConstByteRange range = data;
    if (self.rank == 0) {
      self.send(other, 0, 1, {&range, 1}, 1);
      if (!self.wait()) return "send does not complete";
      std::fill(data.begin(), data.end(), std::byte{0});  // ours again
      other.close(true);
      other.close(true);  // idempotent
      self.peers.clear();
      self.transport.reset();
      self.shared = nullptr;
      return {};
    }
    ::timespec pause{0, 30000000};
    ::nanosleep(&pause, nullptr);  // the other side has mostly closed by then; right either way
    std::vector<std::byte> in(data.size()), more(10);
    const ByteRange to = in, to_more = more;
    self.recv(other, 0, 1, sink_of(&to), 1);
    self.recv(other, 0, 2, sink_of(&to_more), 2);
    if (!self.wait()) return "recv does not complete";
    if (in != data) return "wrong data";
    // A receive without a message fails; the endpoint stays failed.
    if (self.events.size() != 1 || self.events[0].kind != Event::Kind::failed ||
        self.events[0].request != 2) {
      return "the second receive did not fail";
    }
    self.recv(other, 1, 2, sink_of(&to_more), 3);
    if (!self.wait() || self.events.size() != 2 || self.events[1].request != 3)
      return "later posts must fail, too";
    return {};
  });
  CHECK(answer == "");
}

TEST_CASE("closing completes everything pending exactly once and lets go of all buffers") {
  const std::string answer = run_ranks(setup_from_environment(), 2, [](Rank& self) -> std::string {
    if (std::string why = self.open_all(); !why.empty()) return why;
    Endpoint& other = self.peer(1 - self.rank);
    std::map<RequestId, int> completions;
    std::vector<std::byte> large = pattern(6 << 20U, 1), in(large.size());
    const ConstByteRange from = large;
    const ByteRange to = in;
    std::size_t posted = 0;
    if (self.rank == 0) {
      for (RequestId request = 1; request <= 6; ++request, ++posted) {
        self.send(other, static_cast<std::uint32_t>(request % 3), 1, {&from, 1}, request);
      }
      for (RequestId request = 7; request <= 9; ++request, ++posted)
        self.recv(other, 5, 1, sink_of(&to), request);
      for (int i = 0; i < 30; ++i) self.progress();
      other.close(false);
      std::fill(large.begin(), large.end(), std::byte{0xcc});  // a peer that still read here would be a race
      large.clear();
      large.shrink_to_fit();
    } else {
      for (RequestId request = 1; request <= 6; ++request, ++posted) {
        self.recv(other, static_cast<std::uint32_t>(request % 3), 1, sink_of(&to), request);
      }
    }
    if (!self.wait()) return "something never completes";
    for (const RequestId request : self.sent) ++completions[request];
    for (const RequestId request : self.received) ++completions[request];
    for (const Event& event : self.events) {
      if (event.kind != Event::Kind::failed) return unexpected(event);
      ++completions[event.request];
    }
    for (int i = 0; i < 50; ++i) self.progress();
    for (const auto& [request, count] : completions) {
      if (count != 1) return "request " + std::to_string(request) + " completed twice";
    }
    return self.barrier() ? "" : "barrier";
  });
  CHECK(answer == "");
}

TEST_CASE("an endpoint answers after both sides have closed it") {
  const std::string answer = run_ranks(setup_from_environment(), 2, [](Rank& self) -> std::string {
    if (std::string why = self.open_all(); !why.empty()) return why;
    Endpoint& other = self.peer(1 - self.rank);
    std::uint32_t value = 1;
    const ConstByteRange from{reinterpret_cast<std::byte*>(&value), sizeof(value)};
    self.control(other, from);
    if (!self.wait_until([&] { return self.controls.size() == 1; })) return "no control message";
    if (!self.barrier()) return "barrier";
    other.close(true);
    if (!self.barrier()) return "barrier";
    for (int i = 0; i < 50; ++i) self.progress();  // the transport forgets the context
    if (!other.trouble().is_ok()) return "trouble: " + other.trouble().to_string();
    self.control(other, from);
    self.send(other, 0, 1, {&from, 1}, 1);
    return self.wait() && self.barrier() ? "" : "a send does not complete";
  });
  CHECK(answer == "");
}

TEST_CASE("many contexts come and go without exhausting anything") {
  const std::string answer = run_ranks(setup_from_environment(), 2, [](Rank& self) -> std::string {
    const std::uint64_t rounds = is_selected(1) ? 2500 : 60;  // more than a directory holds
    for (std::uint64_t round = 0; round < rounds; ++round) {
      std::vector<std::unique_ptr<Endpoint>> open;
      for (std::uint64_t k = 0; k < 4; ++k) {
        auto endpoint = self.transport->open(self.addresses[1 - self.rank], 100 + round * 4 + k);
        if (!endpoint) return "round " + std::to_string(round) + ": " + endpoint.status().to_string();
        open.push_back(std::move(*endpoint));
      }
      for (std::uint64_t k = 0; k < 4; ++k) {
        std::uint64_t out = round * 4 + k + static_cast<std::uint64_t>(self.rank);
        std::uint64_t in = 0;
        const ConstByteRange from{reinterpret_cast<std::byte*>(&out), sizeof(out)};
        const ByteRange to{reinterpret_cast<std::byte*>(&in), sizeof(in)};
        self.send(*open[k], 0, round, {&from, 1}, 1);
        self.recv(*open[k], 0, round, sink_of(&to), 2);
        if (!self.wait()) return "does not complete";
        if (in != round * 4 + k + static_cast<std::uint64_t>(1 - self.rank))
          return "message of another context";
      }
      for (auto& endpoint : open) endpoint->close(true);
    }
    return self.barrier() ? "" : "barrier";
  });
  CHECK(answer == "");
}

TEST_CASE("an endpoint to oneself works") {
  const std::string answer = run_ranks(setup_from_environment(), 1, [](Rank& self) -> std::string {
    if (std::string why = self.open_all(); !why.empty()) return why;
    for (const std::size_t bytes : {0UL, 30UL, 500UL, 9000UL, 900000UL}) {
      const std::vector<std::byte> out = pattern(bytes, bytes);
      std::vector<std::byte> in(bytes);
      const ConstByteRange from = out;
      const ByteRange to = in;
      self.recv(self.peer(0), 0, 1, sink_of(&to), 1);
      self.send(self.peer(0), 0, 1, {&from, 1}, 2);
      if (!self.wait() || in != out) return "wrong or stuck at " + std::to_string(bytes);
    }
    return {};
  });
  CHECK(answer == "");
}

TEST_CASE("a sleeper is woken by data, by control messages and by consumption") {
  const std::string answer = run_ranks(setup_from_environment(), 2, [](Rank& self) -> std::string {
    if (std::string why = self.open_all(); !why.empty()) return why;
    Endpoint& other = self.peer(1 - self.rank);
    const std::vector<std::byte> large = pattern(900000, 9);
    std::vector<std::byte> in(large.size());
    const ConstByteRange from = large;
    const ByteRange to = in;
    std::uint64_t ball = 0;
    const ConstByteRange ball_from{reinterpret_cast<std::byte*>(&ball), sizeof(ball)};
    const ByteRange ball_to{reinterpret_cast<std::byte*>(&ball), sizeof(ball)};
    const std::uint64_t rounds = is_selected(1) ? 300 : 40;
    for (std::uint64_t round = 0; round < rounds; ++round) {
      // Ping and pong, both sleeping whenever they wait; now and then something large.
      if (self.rank == 0) {
        ball = round;
        self.send(other, 0, round, {&ball_from, 1}, 1);
        self.recv(other, 0, round, sink_of(&ball_to), 2);
      } else {
        self.recv(other, 0, round, sink_of(&ball_to), 1);
        while (self.pending != 0) self.sleep_once();
        ball += 5;
        self.send(other, 0, round, {&ball_from, 1}, 2);
      }
      while (self.pending != 0) self.sleep_once();
      if (self.rank == 0 && ball != round + 5) return "wrong answer";
      if (round % 20 != 0) continue;
      if (self.rank == 0) {
        self.send(other, 1, 1, {&from, 1}, 3);
        while (self.pending != 0) self.sleep_once();
        while (self.controls.size() <= round / 20) self.sleep_once();
      } else {
        self.recv(other, 1, 1, sink_of(&to), 3);
        while (self.pending != 0) self.sleep_once();
        if (in != large) return "wrong large message";
        self.control(other, ConstByteRange(large).first(10));
      }
    }
    return self.barrier() ? "" : "barrier";
  });
  CHECK(answer == "");
}

TEST_CASE("heap memory is zeroed, aligned and found") {
  const std::string answer = run_ranks(setup_from_environment(), 2, [](Rank& self) -> std::string {
    SharedHeap* heap = self.transport->caps().heap;
    if (heap == nullptr) return {};
    std::vector<ByteRange> blocks;
    for (std::size_t round = 0; round < 3; ++round) {
      for (const std::size_t bytes : {1UL, 64UL, 100UL, 5000UL, 3UL << 20U}) {
        auto memory = heap->allocate(bytes);
        if (!memory) return memory.status().to_string();
        if (memory->size() != bytes || reinterpret_cast<std::uintptr_t>(memory->data()) % 64 != 0)
          return "alignment";
        if (std::any_of(memory->begin(), memory->end(), [](std::byte b) { return b != std::byte{0}; })) {
          return "not zeroed";
        }
        std::memset(memory->data(), 0x77, bytes);
        blocks.push_back(*memory);
      }
      for (std::size_t i = round % 2; i < blocks.size(); i += 2) heap->release(blocks[i]);
      std::vector<ByteRange> kept;
      for (std::size_t i = 1 - round % 2; i < blocks.size(); i += 2) kept.push_back(blocks[i]);
      blocks = kept;
    }
    std::byte ordinary{};
    SharedHeap::Location place;
    if (heap->locate(&ordinary, 1, &place)) return "an ordinary byte is said to be in the heap";
    auto memory = heap->allocate(100000);
    if (!memory) return memory.status().to_string();
    const std::vector<std::byte> data = pattern(memory->size(), static_cast<std::uint64_t>(self.rank));
    std::memcpy(memory->data(), data.data(), data.size());
    return heap->locate(memory->data() + 50, 200, &place) ? "" : "heap memory is not located";
  });
  CHECK(answer == "");
}

TEST_CASE("random traffic of many ranks arrives in order and unchanged") {
  const Setup setup = setup_from_environment();
  std::uint64_t index = 0;
  for (const int size : {2, 3, 4, 8, 16}) {
    if (!is_selected(index++)) continue;
    const std::string answer = run_ranks(setup, size, [](Rank& self) -> std::string {
      if (std::string why = self.open_all(); !why.empty()) return why;
      constexpr std::uint32_t kUsed = 3;
      const std::size_t per_peer = 120 / static_cast<std::size_t>(self.size);
      struct Message {
        std::vector<std::byte> data;
        ConstByteRange from;
        ByteRange to;
        Collector collector;
        std::uint64_t seed = 0;
      };
      // A message is a function of (sender, receiver, channel, number): both sides know it.
      auto bytes_of = [](std::uint64_t seed) {
        std::mt19937_64 random(seed);
        const std::array<std::size_t, 6> limits{40, 64, 1024, 9000, 100000, 400000};
        const std::uint64_t pick = random() % 20;
        return random() % limits[pick < 15 ? pick % 4 : 4 + pick % 2];
      };
      auto seed_of = [&](int from, int to, std::uint32_t channel, std::size_t number) {
        return ((static_cast<std::uint64_t>(from) * 64 + static_cast<std::uint64_t>(to)) * 64 + channel) *
                   4096 +
               number;
      };
      std::deque<Message> messages;
      std::mt19937 random(static_cast<unsigned>(self.rank));
      for (std::size_t number = 0; number < per_peer; ++number) {
        for (int step = 0; step < self.size; ++step) {
          const int to = (self.rank + step) % self.size;
          const int from = (self.rank - step + self.size) % self.size;
          const std::uint32_t channel = static_cast<std::uint32_t>(number) % kUsed;
          Message& in = messages.emplace_back();
          in.seed = seed_of(from, self.rank, channel, number);
          const std::size_t bytes = bytes_of(in.seed);
          in.collector.expected = bytes;
          Sink sink{{}, bytes, &Collector::deliver, &in.collector};
          if (number % 2 == 0) {
            in.data.resize(bytes);
            in.to = in.data;
            sink = {{&in.to, 1}, bytes, nullptr, nullptr};
          }
          self.recv(self.peer(from), channel, in.seed, sink, 1);
          Message& out = messages.emplace_back();
          out.seed = seed_of(self.rank, to, channel, number);
          out.data = pattern(bytes_of(out.seed), out.seed);
          out.from = out.data;
          self.send(self.peer(to), channel, out.seed, {&out.from, 1}, 2);
        }
        if (random() % 3 == 0 && !self.wait(20)) return "does not complete";
      }
      if (!self.wait()) return "does not complete";
      for (const Message& message : messages) {
        if (!message.collector.is_sound) return "deliveries break the rules";
        const bool is_delivered = message.data.empty();
        const std::vector<std::byte>& data = is_delivered ? message.collector.data : message.data;
        if (is_delivered && data.size() != message.collector.expected) return "delivered too little";
        if (!has_pattern(data, message.seed)) return "wrong data";
      }
      if (!self.events.empty()) return unexpected(self.events.front());
      return self.barrier() ? "" : "barrier";
    });
    CHECK(answer == "");
  }
}
