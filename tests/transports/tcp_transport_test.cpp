// The tcp transport where the conformance suite does not look: who is let in, what a message that nobody
// waits for becomes, two that call each other at once. Knows the address's inside; both ends are driven by
// one thread.
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <functional>
#include <iterator>
#include <memory>
#include <vector>

#include "runtime/net/tcp_socket.hpp"
#include "tests/support/catch.hpp"
#include "tests/transports/cases.hpp"
#include "transports/message/address.hpp"
#include "transports/message/tcp/address.hpp"
#include "transports/message/tcp/greeting.hpp"
#include "transports/message/tcp/plugin.hpp"

namespace {

using namespace tutti;
using namespace tutti::test;

std::unique_ptr<Transport> make() {
  TransportSettings settings;
  settings.interface = "lo";
  auto made = make_tcp_transport(settings);
  REQUIRE(made.status().message() == "");
  return *std::move(made);
}

struct Side {
  std::unique_ptr<Transport> transport = make();
  std::unique_ptr<Endpoint> peer;
  std::vector<Event> events;

  void open(const Side& other, std::uint64_t context = 1) {
    auto opened = transport->open(other.transport->address(), context);
    REQUIRE(opened.status().message() == "");
    peer = *std::move(opened);
  }
  void progress() {
    std::array<Event, 4> batch;
    const std::size_t count = transport->progress(batch);
    events.insert(events.end(), batch.begin(), batch.begin() + static_cast<std::ptrdiff_t>(count));
  }
};

// False if it does not become true; far beyond what it takes.
bool drive(const std::vector<Side*>& sides, const std::function<bool()>& condition) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!condition()) {
    for (Side* side : sides) side->progress();
    if (std::chrono::steady_clock::now() > until) return false;
  }
  return true;
}

struct Target {
  std::uint64_t instance = 0;
  tcp::Address address;
};
Target target_of(const Side& side) {
  const auto address = message::parse_address(side.transport->address());
  REQUIRE(address);
  const auto listening = tcp::parse_address(address->driver_address);
  REQUIRE(listening);
  return {address->instance, *listening};
}

// Somebody who connects by hand.
class Stranger {
 public:
  explicit Stranger(const Target& target) : fd_(*start_connect(target.address.places.front())) {
    pollfd fd{fd_, POLLOUT, 0};
    ::poll(&fd, 1, 10000);
  }
  ~Stranger() { ::close(fd_); }
  Stranger(const Stranger&) = delete;
  Stranger& operator=(const Stranger&) = delete;
  void say(const tcp::Greeting& greeting) const {
    REQUIRE(::send(fd_, &greeting, sizeof greeting, MSG_NOSIGNAL) == ssize_t{sizeof greeting});
  }
  bool is_cut_off() const {
    std::byte byte{};
    const ssize_t got = ::recv(fd_, &byte, 1, MSG_DONTWAIT);
    return got == 0 || (got < 0 && errno == ECONNRESET);
  }
  bool has_answer() const {
    std::byte byte{};
    return ::recv(fd_, &byte, 1, MSG_DONTWAIT | MSG_PEEK) > 0;
  }

 private:
  int fd_;
};

std::size_t count_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

void exchange(Side& a, Side& b, std::size_t bytes) {
  std::vector<std::byte> out = pattern(bytes, bytes), in_a(bytes), in_b(bytes);
  const ConstByteRange from = out;
  const ByteRange to_a = in_a, to_b = in_b;
  a.events.clear();
  b.events.clear();
  constexpr RequestId kSent = 1001, kReceived = 1002;  // what else is reported is of something earlier
  std::ptrdiff_t pending = 0;
  pending += a.peer->send(0, 1, {&from, 1}, kSent) == Post::pending ? 1 : 0;
  pending += b.peer->send(0, 1, {&from, 1}, kSent) == Post::pending ? 1 : 0;
  pending += a.peer->recv(0, 1, sink_of(&to_a), kReceived) == Post::pending ? 1 : 0;
  pending += b.peer->recv(0, 1, sink_of(&to_b), kReceived) == Post::pending ? 1 : 0;
  const auto ended = [](const Side& side) {
    return std::count_if(side.events.begin(), side.events.end(), [](const Event& event) {
      return event.request == kSent || event.request == kReceived;
    });
  };
  CHECK(drive({&a, &b}, [&] { return ended(a) + ended(b) == pending; }));
  CHECK((in_a == out));  // in parentheses: Catch2 would spend a minute on writing them out
  CHECK((in_b == out));
}

}  // namespace

TEST_CASE("who does not prove the secret is cut off") {
  Side side;
  const Target target = target_of(side);
  tcp::Greeting hello;
  hello.sender = 77;
  hello.target = target.instance;
  const auto sign = [&](tcp::Greeting greeting, std::size_t changed = 16) {
    tcp::Secret secret = target.address.secret;
    if (changed < secret.size()) secret[changed] ^= std::byte{1};
    tcp::GreetingChain chain({}, secret);
    chain.sign(greeting);
    return greeting;
  };
  tcp::Greeting wrong_target = hello, wrong_kind = hello, changed = sign(hello);
  wrong_target.target += 1;
  wrong_kind.kind = tcp::Greeting::Kind::begin;
  changed.nonce[0] ^= std::byte{1};
  for (const tcp::Greeting& greeting :
       {hello, sign(hello, 15), sign(wrong_target), sign(wrong_kind), changed}) {
    const Stranger stranger(target);
    stranger.say(greeting);
    CHECK(drive({&side}, [&] { return stranger.is_cut_off(); }));
  }
  const Stranger friendly(target);
  friendly.say(sign(hello));
  CHECK(drive({&side}, [&] { return friendly.has_answer(); }));
}

TEST_CASE("strangers who say nothing keep nobody out, and do not pile up") {
  Side a, b;
  const Target target = target_of(a);
  std::vector<std::unique_ptr<Stranger>> strangers;
  for (int i = 0; i < 100; ++i) {
    strangers.push_back(std::make_unique<Stranger>(target));
    a.progress();
  }
  CHECK(drive({&a}, [&] { return strangers[20]->is_cut_off(); }));
  CHECK_FALSE(strangers.back()->is_cut_off());
  a.open(b);
  b.open(a);
  exchange(a, b, 100);
}

TEST_CASE("two that call each other at once have one connection") {
  Side a, b;
  a.open(b);
  b.open(a);
  const std::size_t before = count_descriptors();
  for (const std::size_t bytes : {8UL, 5000UL, 300000UL, 3000000UL}) exchange(a, b, bytes);
  CHECK(drive({&a, &b}, [&] { return count_descriptors() == before + 2; }));  // its two ends
}

TEST_CASE("a message that nobody waits for arrives although its sender has ended") {
  for (const std::size_t bytes : {100UL, 20000UL, 300000UL}) {
    for (const bool is_delivered : {false, true}) {
      CAPTURE(bytes, is_delivered);
      Side a, b;
      a.open(b);
      b.open(a);
      exchange(a, b, 8);  // connected
      a.events.clear();
      const std::vector<std::byte> out = pattern(bytes, 5);
      const ConstByteRange from = out;
      const bool is_pending = a.peer->send(3, 1, {&from, 1}, 1) == Post::pending;
      CHECK(drive({&a, &b}, [&] { return !is_pending || a.events.size() == 1; }));
      a.peer->close(true);
      a.peer.reset();
      a.transport.reset();
      for (int i = 0; i < 100; ++i) b.progress();
      b.events.clear();
      std::vector<std::byte> in(bytes);
      const ByteRange to = in;
      Collector collector;
      collector.expected = bytes;
      const Sink sink = is_delivered ? Sink{{}, bytes, &Collector::deliver, &collector} : sink_of(&to);
      const Post post = b.peer->recv(3, 1, sink, 2);
      CHECK(drive({&b}, [&] { return post == Post::done || !b.events.empty(); }));
      if (post != Post::done) CHECK(b.events[0].kind == Event::Kind::received);
      CHECK((is_delivered ? collector.data : in) == out);
      CHECK(collector.is_sound);
    }
  }
}

TEST_CASE("what an endpoint takes back while it is half sent leaves the others whole") {
  Side a, b;
  a.open(b);
  b.open(a);
  exchange(a, b, 8);
  auto second_a = a.transport->open(b.transport->address(), 2);
  auto second_b = b.transport->open(a.transport->address(), 2);
  REQUIRE((second_a && second_b));
  // More than the kernel takes while nobody reads, so that some are half written and some not begun.
  const std::size_t bytes = 500000;
  const std::vector<std::byte> out = pattern(bytes, 1), small = pattern(50, 2);
  const ConstByteRange from = out, small_from = small;
  std::vector<std::byte> in(bytes), small_in(small.size());
  const ByteRange to = in, small_to = small_in;
  for (RequestId request = 0; request < 60; ++request) (*second_a)->send(0, 1, {&from, 1}, request);
  a.peer->send(0, 1, {&small_from, 1}, 100);
  b.peer->recv(0, 1, sink_of(&small_to), 200);
  // Half of them find a receive.
  for (RequestId request = 0; request < 30; ++request) (*second_b)->recv(0, 1, sink_of(&to), 300 + request);
  (*second_a)->close(false);
  b.events.clear();
  CHECK(drive({&a, &b}, [&] { return b.events.size() == 31; }));
  std::size_t whole = 0;
  for (const Event& event : b.events) {
    const bool is_small = event.request == 200;
    if (is_small) CHECK(event.kind == Event::Kind::received);
    whole += !is_small && event.kind == Event::Kind::received ? 1 : 0;
    if (!is_small && event.kind == Event::Kind::received) CHECK((in == out));
  }
  CHECK(whole < 30);
  CHECK(small_in == small);
  exchange(a, b, 700000);
}

TEST_CASE("while one peer is awaited, what another says wakes a sleeper, who finds it with the next look") {
  Side a, b, c;
  a.open(b);
  b.open(a);
  c.open(a, 2);
  auto from_c = a.transport->open(c.transport->address(), 2);
  REQUIRE(from_c);
  exchange(a, b, 8);
  std::array<std::byte, 8> in{}, late{};
  const ByteRange to = in, to_late = late;
  const std::vector<std::byte> out = pattern(in.size(), 3);
  const ConstByteRange from = out;
  const auto send = [&](const Side& side) { return side.peer->send(0, 1, {&from, 1}, 1) == Post::pending; };
  REQUIRE((*from_c)->recv(0, 1, sink_of(&to), 1) == Post::pending);
  send(c);  // connects
  CHECK(drive({&a, &c}, [&] { return std::equal(in.begin(), in.end(), out.begin(), out.end()); }));
  CHECK(drive({&a, &c}, [&] { return c.transport->arm().is_armed; }));

  REQUIRE(a.peer->recv(0, 1, sink_of(&to_late), 2) == Post::pending);
  CHECK(drive({&a}, [&] { return a.transport->arm().is_armed; }));
  in = {};
  REQUIRE_FALSE(send(c));
  CHECK(drive({}, [&] { return !a.transport->arm().is_armed; }));
  a.progress();
  CHECK((*from_c)->recv(0, 1, sink_of(&to), 3) == Post::done);
  CHECK(std::equal(in.begin(), in.end(), out.begin(), out.end()));

  a.events.clear();
  REQUIRE_FALSE(send(b));
  CHECK(drive({&a}, [&] { return a.events.size() == 1; }));
  CHECK(late == in);
}

TEST_CASE("a connection that this process has no descriptor for fails with the limit as its trouble") {
  Side a, b;
  a.open(b);
  CHECK(a.peer->trouble());
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  const rlimit none{0, before.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);  // what is open stays
  const std::vector<std::byte> out = pattern(100, 1);
  const ConstByteRange from = out;
  const Post posted = a.peer->send(0, 1, {&from, 1}, 7);
  const bool has_failed = drive({&a}, [&] { return posted == Post::done || !a.events.empty(); });
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
  CHECK(has_failed);
  REQUIRE(a.events.size() == 1);
  CHECK(a.events[0].kind == Event::Kind::failed);
  CHECK(a.peer->trouble().code() == StatusCode::resource_exhausted);
  CHECK(a.peer->trouble().message().find("ulimit -n") != std::string::npos);
}

TEST_CASE("a child of fork() that ends its copy leaves the parent's connections watched") {
  Side a, b;
  a.open(b);
  b.open(a);
  std::array<std::byte, 8> data{}, got{};
  const ConstByteRange from = data;
  const ByteRange to = got;
  REQUIRE(a.peer->recv(0, 1, sink_of(&to), 1) == Post::pending);
  REQUIRE(b.peer->send(0, 1, {&from, 1}, 2) != Post::again);
  REQUIRE(drive({&a, &b}, [&] { return !a.events.empty(); }));
  REQUIRE(drive({&a}, [&] { return a.transport->arm().is_armed; }));
  const pid_t child = ::fork();
  if (child == 0) {
    a.peer.reset();
    a.transport.reset();
    ::_exit(0);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  REQUIRE(b.peer->send(0, 1, {&from, 1}, 3) == Post::done);
  pollfd on{a.transport->waitable().fd, POLLIN, 0};
  CHECK(::poll(&on, 1, 30000) == 1);
}
