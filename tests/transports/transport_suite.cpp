// The conformance suite of the transport seam, first half: capabilities, and messages of every size, form and
// order, on the transport that the environment names (see world.hpp). Knows no transport's inside.
#include <algorithm>
#include <array>
#include <cstring>
#include <random>

#include "tests/support/catch.hpp"
#include "tests/support/test_fraction.hpp"
#include "tests/transports/cases.hpp"
#include "tests/transports/world.hpp"

namespace {

using namespace tutti;
using namespace tutti::test;

// Rank 0 sends one message of each size in some forms to rank 1, one after the other.
std::string sizes_and_forms(Rank& self, std::span<const std::size_t> piece_counts) {
  if (std::string why = self.open_all(); !why.empty()) return why;
  Endpoint& other = self.peer(1 - self.rank);
  std::uint64_t index = 0;
  for (const std::size_t bytes : threshold_sizes()) {
    for (const std::size_t pieces : piece_counts) {
      for (const bool is_delivered : {false, true}) {
        ++index;
        if (!is_selected(index)) continue;
        const std::uint64_t match_header = 1000 + index;
        if (self.rank == 0) {
          const std::vector<std::byte> data = pattern(bytes, index);
          const std::vector<ConstByteRange> ranges = split(data, pieces);
          self.send(other, static_cast<std::uint32_t>(index % 5), match_header, ranges, index);
          if (!self.wait()) return "send of " + std::to_string(bytes) + " bytes does not complete";
          continue;
        }
        std::vector<std::byte> data(bytes + 1, std::byte{0xee});
        data.resize(bytes);
        const std::vector<ByteRange> ranges = split_to(data, pieces == 3 ? 2 : pieces);
        Collector collector;
        collector.expected = bytes;
        Sink sink{ranges, bytes, nullptr, nullptr};
        if (is_delivered) sink = {{}, bytes, &Collector::deliver, &collector};
        self.recv(other, static_cast<std::uint32_t>(index % 5), match_header, sink, index);
        if (!self.wait()) return "recv of " + std::to_string(bytes) + " bytes does not complete";
        if (!collector.is_sound) return "deliveries of " + std::to_string(bytes) + " bytes break the rules";
        if (is_delivered) data = collector.data;
        if (data.size() != bytes || !has_pattern(data, index)) {
          return "wrong data, " + std::to_string(bytes) + " bytes in " + std::to_string(pieces) + " pieces";
        }
      }
    }
  }
  if (!self.events.empty()) return unexpected(self.events.front());
  return self.barrier() ? "" : "barrier";
}

}  // namespace

TEST_CASE("capabilities are complete and honest") {
  const std::string answer = run_ranks(setup_from_environment(), 2, [](Rank& self) -> std::string {
    const TransportCaps& caps = self.transport->caps();
    if (caps.name.empty() || !caps.unavailable.empty() || caps.detail.empty())
      return "name, reason or detail";
    if (caps.channels < 16) return "channels";
    if (caps.family == Family::memory && caps.heap == nullptr) return "a memory transport has a heap";
    if (!self.transport->reach(self.addresses[0], self.addresses[1]))
      return "ranks of this test reach each other";
    const std::vector<std::byte> garbage(17, std::byte{3});
    if (self.transport->reach(self.addresses[0], garbage)) return "garbage is reached";
    if (self.transport->open(garbage, 1)) return "garbage is opened";
    if (std::string why = self.open_all(); !why.empty()) return why;
    return self.barrier() ? "" : "barrier";
  });
  CHECK(answer == "");
}

TEST_CASE("messages of every size and form arrive") {
  // 70: more ranges than a `read` message can list.
  const std::array<std::size_t, 3> piece_counts{1, 3, 70};
  CHECK(run_ranks(setup_from_environment(), 2,
                  [&](Rank& self) { return sizes_and_forms(self, piece_counts); }) == "");
}

TEST_CASE("messages of every size and form arrive whatever protocol the options lead to") {
  struct Variant {
    const char* name;
    void (*change)(MemoryOptions&);
  };
  const std::array<Variant, 7> variants{{
      {"staged only",
       [](MemoryOptions& o) {
         o.single_copy = SingleCopy::off;
         o.mapped_read_bytes = ~std::size_t{0};
       }},
      {"read as early as possible",
       [](MemoryOptions& o) { o.mapped_read_bytes = o.copied_read_bytes = 1025; }},
      {"no memory for rings",
       [](MemoryOptions& o) {
         o.staging_bytes = 0;
         o.mapped_read_bytes = ~std::size_t{0};
       }},
      {"little memory for rings",
       [](MemoryOptions& o) {
         o.staging_bytes = 200000;
         o.mapped_read_bytes = ~std::size_t{0};
       }},
      {"few small pieces",
       [](MemoryOptions& o) {
         o.piece_bytes = 832;
         o.piece_count = 2;
         o.mapped_read_bytes = ~std::size_t{0};
       }},
      {"large pieces", [](MemoryOptions& o) { o.piece_bytes = std::size_t{1} << 20U; }},
      {"single copy on", [](MemoryOptions& o) { o.single_copy = SingleCopy::on; }},
  }};
  for (std::size_t i = 0; i < variants.size(); ++i) {
    Setup setup = setup_from_environment();
    variants[i].change(setup.options);
    INFO(variants[i].name);
    const std::array<std::size_t, 1> piece_counts{1 + 2 * (i % 2)};
    CHECK(run_ranks(setup, 2, [&](Rank& self) { return sizes_and_forms(self, piece_counts); }) == "");
  }
}

TEST_CASE("contexts opened in a row and used in turn work, also where memory for rings is scarce") {
  for (const std::size_t staging_bytes : {0UL, 200000UL, 1UL << 20U, 64UL << 20U}) {
    CAPTURE(staging_bytes);
    Setup setup = setup_from_environment();
    setup.options.staging_bytes = staging_bytes;
    setup.options.mapped_read_bytes = ~std::size_t{0};
    const std::string answer = run_ranks(setup, 2, [](Rank& self) -> std::string {
      std::vector<std::unique_ptr<Endpoint>> contexts;
      for (std::uint64_t k = 0; k < 6; ++k) {
        auto endpoint = self.transport->open(self.addresses[1 - self.rank], 100 + k);
        if (!endpoint) return endpoint.status().to_string();
        contexts.push_back(std::move(*endpoint));
      }
      const std::array<std::size_t, 3> sizes{30, 1000, 300000};
      for (std::uint64_t turn = 0; turn < 40; ++turn) {
        if (turn == 20) contexts[1].reset();  // the others go on
        const std::size_t at = turn % contexts.size();
        if (contexts[at] == nullptr) continue;
        const std::size_t bytes = sizes[turn % 5 % sizes.size()];
        const std::vector<std::byte> out = pattern(bytes, turn + static_cast<std::uint64_t>(self.rank));
        std::vector<std::byte> in(bytes);
        const ConstByteRange from = out;
        const ByteRange to = in;
        const auto channel = static_cast<std::uint32_t>(turn % 2);
        self.recv(*contexts[at], channel, turn, sink_of(&to), 1);
        self.send(*contexts[at], channel, turn, {&from, 1}, 2);
        if (!self.wait()) return "turn " + std::to_string(turn) + " does not complete";
        if (!has_pattern(in, turn + static_cast<std::uint64_t>(1 - self.rank))) return "wrong data";
      }
      return self.barrier() ? "" : "barrier";
    });
    CHECK(answer == "");
  }
}

TEST_CASE("messages of every size arrive where buffers lie in the shared heap") {
  const std::string answer = run_ranks(setup_from_environment(), 2, [](Rank& self) -> std::string {
    SharedHeap* heap = self.transport->caps().heap;
    if (heap == nullptr) return {};
    if (std::string why = self.open_all(); !why.empty()) return why;
    Endpoint& other = self.peer(1 - self.rank);
    std::uint64_t index = 0;
    for (const std::size_t bytes : threshold_sizes()) {
      if (bytes == 0 || !is_selected(++index)) continue;
      auto memory = heap->allocate(bytes);
      if (!memory) return memory.status().to_string();
      if (self.rank == 0) {
        const std::vector<std::byte> data = pattern(bytes, index);
        std::memcpy(memory->data(), data.data(), bytes);
        const std::array<ConstByteRange, 2> ranges{memory->first(bytes / 2), memory->subspan(bytes / 2)};
        self.send(other, 0, index, ranges, index);
        const ConstByteRange whole = *memory;
        self.send(other, 0, index, {&whole, 1}, index);
        if (!self.wait()) return "send does not complete";
      } else {
        std::vector<std::byte> first(bytes);
        Collector collector;
        collector.expected = bytes;
        const ByteRange range = first;
        self.recv(other, 0, index, sink_of(&range), index);
        self.recv(other, 0, index, {{}, bytes, &Collector::deliver, &collector}, index);
        if (!self.wait()) return "recv does not complete";
        if (!has_pattern(first, index)) return "wrong data, " + std::to_string(bytes);
        if (!collector.is_sound || collector.data != first) return "wrong delivery, " + std::to_string(bytes);
      }
      heap->release(*memory);
    }
    return self.barrier() ? "" : "barrier";
  });
  CHECK(answer == "");
}

TEST_CASE("messages of one channel match in order, whatever their sizes") {
  const std::string answer = run_ranks(setup_from_environment(), 2, [](Rank& self) -> std::string {
    if (std::string why = self.open_all(); !why.empty()) return why;
    Endpoint& other = self.peer(1 - self.rank);
    const std::array<std::size_t, 9> sizes{0, 8, 40, 41, 1000, 5000, 20000, 70000, 300000};
    const std::size_t count = is_selected(1) ? 300 : 60;
    std::vector<std::vector<std::byte>> out, in(count);
    std::vector<ConstByteRange> out_ranges;
    std::vector<ByteRange> in_ranges;
    std::mt19937 random(5);
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t bytes = sizes[random() % sizes.size()];
      out.push_back(pattern(bytes, i));
      in[i].resize(bytes);
    }
    for (std::size_t i = 0; i < count; ++i) {
      out_ranges.emplace_back(out[i]);
      in_ranges.emplace_back(in[i]);
    }
    // Both directions at once, everything posted before anything is waited for.
    for (std::size_t i = 0; i < count; ++i) self.send(other, 3, i, {&out_ranges[i], 1}, i);
    for (std::size_t i = 0; i < count; ++i) self.recv(other, 3, i, sink_of(&in_ranges[i]), 1000 + i);
    if (!self.wait()) return "does not complete";
    for (std::size_t i = 0; i < count; ++i) {
      if (in[i] != out[i]) return "message " + std::to_string(i) + " is wrong";
    }
    if (!std::is_sorted(self.received.begin(), self.received.end())) return "completed out of order";
    if (!self.events.empty()) return unexpected(self.events.front());
    return self.barrier() ? "" : "barrier";
  });
  CHECK(answer == "");
}

TEST_CASE("an unmatched message blocks neither another channel nor another context") {
  const std::string answer = run_ranks(setup_from_environment(), 2, [](Rank& self) -> std::string {
    if (std::string why = self.open_all(); !why.empty()) return why;
    auto second = self.transport->open(self.addresses[1 - self.rank], 77);
    if (!second) return second.status().to_string();
    Endpoint& other = self.peer(1 - self.rank);
    const std::vector<std::byte> large = pattern(3 << 20U, 1);
    const std::vector<std::byte> small = pattern(16, 2);
    const ConstByteRange large_range = large;
    const ConstByteRange small_range = small;
    std::vector<std::byte> large_in(large.size()), small_in(small.size()), large_in2(large.size());
    const ByteRange large_to = large_in, small_to = small_in, large_to2 = large_in2;
    if (self.rank == 0) {
      for (int i = 0; i < 40; ++i) self.send(other, 0, 1, {&small_range, 1}, 1);  // fills channel 0
      self.send(other, 1, 2, {&large_range, 1}, 2);                               // nobody receives for now
      self.send(other, 2, 3, {&large_range, 1}, 3);
      self.send(**second, 1, 4, {&small_range, 1}, 4);
      if (!self.wait()) return "does not complete";
    } else {
      self.recv(**second, 1, 4, sink_of(&small_to), 4);
      if (!self.wait() || small_in != small) return "the other context is blocked";
      self.recv(other, 2, 3, sink_of(&large_to), 3);
      if (!self.wait() || large_in != large) return "channel 2 is blocked";
      self.recv(other, 1, 2, sink_of(&large_to2), 2);
      if (!self.wait() || large_in2 != large) return "channel 1 is wrong";
      for (int i = 0; i < 40; ++i) {
        small_in.assign(small.size(), std::byte{0});
        self.recv(other, 0, 1, sink_of(&small_to), 1);
        if (!self.wait() || small_in != small) return "channel 0 is wrong";
      }
    }
    const bool is_through = self.barrier();
    second->reset();
    return is_through ? "" : "barrier";
  });
  CHECK(answer == "");
}

TEST_CASE("a wrong match header or length is reported, delivers nothing and is consumed") {
  const std::string answer = run_ranks(setup_from_environment(), 2, [](Rank& self) -> std::string {
    if (std::string why = self.open_all(); !why.empty()) return why;
    Endpoint& other = self.peer(1 - self.rank);
    const std::array<std::size_t, 7> sizes{0, 24, 600, 3000, 50000, 700000, 2500000};
    RequestId request = 0;
    for (const std::size_t bytes : sizes) {
      for (const bool is_header_wrong : {false, true}) {
        ++request;
        const std::vector<std::byte> data = pattern(bytes, request);
        const ConstByteRange range = data;
        if (self.rank == 0) {
          self.send(other, 0, 7, {&range, 1}, request);
          self.send(other, 0, 8, {&range, 1}, request);
          if (!self.wait()) return "send does not complete";
          continue;
        }
        std::vector<std::byte> untouched(bytes + (is_header_wrong ? 0 : 1), std::byte{0x5a});
        std::vector<std::byte> good(bytes);
        const ByteRange untouched_to = untouched, good_to = good;
        self.events.clear();
        self.recv(other, 0, is_header_wrong ? 9 : 7, sink_of(&untouched_to), request);
        self.recv(other, 0, 8, sink_of(&good_to), request + 100);
        if (!self.wait()) return "recv does not complete";
        if (self.events.size() != 1 || self.events[0].kind != Event::Kind::mismatch)
          return "no mismatch event";
        const Event& event = self.events[0];
        if (event.request != request || event.match_header != 7 || event.bytes != bytes ||
            event.endpoint != &other) {
          return "the mismatch event says something else";
        }
        if (std::count(untouched.begin(), untouched.end(), std::byte{0x5a}) !=
            static_cast<std::ptrdiff_t>(untouched.size())) {
          return "something was delivered";
        }
        if (good != data) return "the next message is wrong";
      }
    }
    return self.barrier() ? "" : "barrier";
  });
  CHECK(answer == "");
}

TEST_CASE("what has arrived is seen without receiving it, and that nothing will come any more") {
  const std::string answer = run_ranks(setup_from_environment(), 2, [](Rank& self) -> std::string {
    if (std::string why = self.open_all(); !why.empty()) return why;
    Endpoint& other = self.peer(1 - self.rank);
    Sink only_poll;
    only_poll.only_polls = true;
    constexpr RequestId kPoll = 99;
    const auto poll = [&] { return other.recv(2, 0, only_poll, kPoll); };
    const std::array<std::size_t, 6> sizes{0, 24, 600, 50000, 700000, 2500000};
    for (const std::size_t bytes : sizes) {
      const std::vector<std::byte> data = pattern(bytes, bytes);
      const ConstByteRange from = data;
      if (self.rank == 0 && poll() != Post::again) return "something is there too early";
      if (!self.barrier()) return "barrier";
      if (self.rank == 1) {
        self.send(other, 2, 5, {&from, 1}, 1);
        if (!self.wait()) return "send does not complete";
        continue;
      }
      // Asleep as long as nothing is there.
      Post seen = poll();
      for (; seen == Post::again; seen = poll()) self.sleep_once();
      if (seen != Post::done) return "the end is seen, and not the message";
      if (!self.wait_until([&] { return poll() == Post::done; })) return "it is there no more";
      std::vector<std::byte> in(bytes);
      const ByteRange to = in;
      self.recv(other, 2, 5, sink_of(&to), 2);
      if (!self.wait() || in != data) return "what was seen is not what arrives";
    }
    // Messages sent before the end arrive before the end.
    const ConstByteRange last;
    if (self.rank == 1) {
      self.send(other, 2, 6, {&last, 1}, 3);
      if (!self.wait() || !self.barrier()) return "the last send does not complete";
      other.close(true);
      return self.barrier() ? "" : "barrier";
    }
    const auto wait_for = [&](Post wanted) {
      Post seen = Post::again;
      return self.wait_until([&] { return (seen = poll()) != Post::again; }) && seen == wanted;
    };
    if (!wait_for(Post::done) || !self.barrier()) return "the last message does not come";
    if (!self.barrier()) return "barrier";
    if (!wait_for(Post::done)) return "the last message is not there any more";
    self.recv(other, 2, 6, Sink{}, 4);
    if (!self.wait()) return "the last message is not received";
    if (!wait_for(Post::pending)) return "the end is not seen";
    const auto is_told = [&] { return !self.events.empty() && self.events.back().request == kPoll; };
    return self.wait_until(is_told) && self.events.back().kind == Event::Kind::failed
               ? ""
               : "the end is not told by an event";
  });
  CHECK(answer == "");
}
