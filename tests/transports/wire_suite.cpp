// The contract of wire drivers (transports/message/wire_driver.hpp), sentence by sentence, on the driver that
// TUTTI_TEST_TRANSPORT names: null, the fake in memory, or tcp. Two drivers, each with its worker, are driven
// by one thread; the suite calls the drivers as a worker does. Knows no endpoint.
#include <poll.h>

#include <chrono>
#include <cstdlib>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tutti_config.hpp"

#include "tests/support/catch.hpp"
#include "tests/transports/null/null_driver.hpp"
#include "tests/transports/world.hpp"
#include "transports/message/inbox.hpp"
#include "transports/message/wire_driver.hpp"
#include "transports/message/worker.hpp"
#if TUTTI_HAVE_TRANSPORT_TCP
#include "runtime/net/network.hpp"
#include "transports/message/tcp/address.hpp"
#include "transports/message/tcp/driver.hpp"
#endif

namespace {

using namespace tutti;
using namespace tutti::message;
using Sent = WireDriver::Sent;

constexpr std::uint64_t kContext = 3;
constexpr std::uint64_t kChannel = 5;

struct Made {
  std::unique_ptr<WireDriver> driver;
  WireFacts facts;
};

Made make_null() {
  auto driver = std::make_unique<null::NullDriver>();
  WireFacts facts = driver->facts();
  return {std::move(driver), std::move(facts)};
}

#if TUTTI_HAVE_TRANSPORT_TCP
Made make_tcp() {
  Result<tcp::Poller> poller = tcp::Poller::make();
  REQUIRE(poller);
  WireFacts facts;
  facts.name = "tcp";
  facts.fetch = Fetch::piecewise;
  facts.event_fd = poller->fd();
  auto driver = std::make_unique<tcp::TcpDriver>(*std::move(poller), std::chrono::seconds(30));
  const auto interfaces = list_interfaces();
  REQUIRE(interfaces);
  const auto loopback = select_interfaces(*interfaces, "lo");
  REQUIRE(loopback);
  REQUIRE(driver->greeter().listen({loopback->front().address}));
  facts.address = tcp::to_bytes(driver->greeter().address());
  return {std::move(driver), std::move(facts)};
}
#endif

Made make() {
  const char* name = std::getenv("TUTTI_TEST_TRANSPORT");
#if TUTTI_HAVE_TRANSPORT_TCP
  if (name != nullptr && std::string(name) == "tcp") return make_tcp();
#endif
  REQUIRE((name == nullptr || std::string(name) == "null"));
  return make_null();
}

// One end.
struct Side {
  explicit Side(std::uint64_t number) : Side(number, make()) {}
  Side(std::uint64_t number, Made made)
      : instance(number),
        facts(std::move(made.facts)),
        worker(std::move(made.driver), facts.name, facts.fetch, number) {
    REQUIRE(worker.start());
  }

  WireDriver& driver() { return worker.driver(); }
  Peer& peer(const Side& other) {
    Peer& found = worker.find_peer(other.instance);
    found.set_address(other.facts.address);
    return found;
  }
  Inbox& inbox(const Side& other) { return worker.find_inbox(other.instance, kContext); }

  // The memory must stay, as the answer says.
  Sent send(const Side& to, std::uint64_t sequence, ConstByteRange bytes) {
    Link* const link = peer(to).connect();
    if (link == nullptr) return Sent::failed;
    SendOp* const op = worker.sends().take();
    op->endpoint = nullptr;
    op->is_message = true;
    op->header = {instance, kContext, kChannel, sequence, 100 + sequence};
    op->ranges.assign(std::span<const ConstByteRange>(&bytes, 1));
    const Sent answer = driver().send(*link, *op);
    if (answer != Sent::pending) worker.sends().give_back(op);
    last_sent = answer == Sent::pending ? op : nullptr;
    return answer;
  }
  bool has_sent_all() { return worker.sends().used_count() == 0; }
  void notify(const Side& to, Notice::Kind kind, std::uint64_t message_count = 0) {
    Link* const link = peer(to).connect();
    REQUIRE(link != nullptr);
    driver().notify(*link, {kind, instance, kContext, message_count});
  }

  std::uint64_t instance;
  WireFacts facts;
  Worker worker;
  SendOp* last_sent = nullptr;  // if it is pending
  RecvOp* fetching = nullptr;
};

// False if it does not become true; far beyond what it takes.
template <class Condition>
bool drive(std::initializer_list<Side*> sides, const Condition& condition) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!condition()) {
    for (Side* side : sides) side->driver().progress(WireDriver::Poll::all);
    if (std::chrono::steady_clock::now() > until) return false;
  }
  return true;
}

// The next message that `at` has of `from`.
Arrival take(Side& at, Side& from) {
  Arrival arrival;
  Inbox& inbox = at.inbox(from);
  REQUIRE(drive({&at, &from}, [&] { return inbox.has_next(kChannel); }));
  REQUIRE(inbox.take(kChannel, &arrival));
  return arrival;
}

// Its bytes, wherever they are; zeros if they cannot be had any more.
std::vector<std::byte> read(Side& at, Side& from, const Arrival& arrival) {
  std::vector<std::byte> bytes(arrival.bytes);
  if (arrival.is_lost) return bytes;
  if (!arrival.is_remote) {
    std::copy(arrival.data, arrival.data + arrival.bytes, bytes.begin());
    if (arrival.hold != nullptr) at.driver().release(arrival.hold);
    return bytes;
  }
  const ByteRange to = bytes;
  RecvOp* const op = at.worker.recvs().take();
  op->endpoint = nullptr;
  op->bytes = bytes.size();
  op->sink = Sink{{&to, 1}, bytes.size(), nullptr, nullptr};
  op->ranges.assign(op->sink.ranges);
  at.driver().fetch(*op, arrival.hold);
  const auto is_fetched = [&] {
    const bool is_over = at.worker.recvs().used_count() == 0;
    if (!is_over && at.facts.fetch == Fetch::piecewise) at.driver().pump(*op);
    return at.worker.recvs().used_count() == 0;
  };
  REQUIRE(drive({&at, &from}, is_fetched));
  return bytes;
}

}  // namespace

TEST_CASE("messages of every size arrive with their header, and are complete at the sender") {
  Side a(1), b(2);
  std::uint64_t sequence = 0;
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{40}, std::size_t{4096},
                                  std::size_t{4097}, std::size_t{100000}, std::size_t{3000001}}) {
    std::vector<std::byte> data = test::pattern(bytes, sequence);
    const Sent answer = a.send(b, sequence, data);
    REQUIRE(answer != Sent::failed);
    // Whoever is done may write to the memory again.
    if (answer == Sent::done) std::fill(data.begin(), data.end(), std::byte{0xee});
    const Arrival arrival = take(b, a);
    CHECK(arrival.bytes == bytes);
    CHECK(arrival.match_header == 100 + sequence);
    CHECK(arrival.sequence == sequence);
    CHECK(test::has_pattern(read(b, a, arrival), sequence));
    CHECK(drive({&a, &b}, [&] { return a.has_sent_all(); }));
    ++sequence;
  }
}

TEST_CASE("a driver sends to itself") {
  Side a(1);
  const std::vector<std::byte> data = test::pattern(1000, 7);
  REQUIRE(a.send(a, 0, data) != Sent::failed);
  const Arrival arrival = take(a, a);
  CHECK(test::has_pattern(read(a, a, arrival), 7));
}

TEST_CASE("a notice arrives after everything that was sent before it") {
  Side a(1), b(2);
  const std::vector<std::byte> small = test::pattern(100, 1), large = test::pattern(200000, 2);
  for (std::uint64_t i = 0; i < 20; ++i) REQUIRE(a.send(b, i, i % 5 == 3 ? large : small) != Sent::failed);
  a.notify(b, Notice::Kind::context_closed, 20);
  Inbox& inbox = b.inbox(a);
  REQUIRE(drive({&a, &b}, [&] { return inbox.is_closed_by_peer(); }));
  CHECK(inbox.message_count() == 20);
  for (int i = 0; i < 20; ++i) static_cast<void>(read(b, a, take(b, a)));
  CHECK(drive({&a, &b}, [&] { return a.has_sent_all(); }));
}

TEST_CASE("what an arrival holds stays as it is until it is released") {
  Side a(1), b(2);
  const std::vector<std::byte> first = test::pattern(1000, 1), other = test::pattern(1000, 2);
  REQUIRE(a.send(b, 0, first) != Sent::failed);
  const Arrival held = take(b, a);
  for (std::uint64_t i = 1; i < 500; ++i) {
    REQUIRE(a.send(b, i, other) != Sent::failed);
    CHECK(test::has_pattern(read(b, a, take(b, a)), 2));
  }
  CHECK(test::has_pattern(read(b, a, held), 1));
}

TEST_CASE("a remote message that is released completes at its sender") {
  Side a(1), b(2);
  const std::vector<std::byte> data = test::pattern(2000000, 1);
  REQUIRE(a.send(b, 0, data) == Sent::pending);
  const Arrival arrival = take(b, a);
  REQUIRE(arrival.is_remote);
  b.driver().release(arrival.hold);
  CHECK(drive({&a, &b}, [&] { return a.has_sent_all(); }));
}

TEST_CASE("a send that is taken back is not read any more, and its place in the channel is kept") {
  Side a(1), b(2);
  std::vector<std::byte> data = test::pattern(2000000, 1);
  const std::vector<std::byte> next = test::pattern(10, 2);
  REQUIRE(a.send(b, 0, data) == Sent::pending);
  if (a.driver().cancel_send(*a.last_sent)) {
    a.worker.sends().give_back(a.last_sent);
    data = {};  // a sanitizer sees whoever reads it
  }
  REQUIRE(a.send(b, 1, next) != Sent::failed);
  const Arrival lost = take(b, a);
  CHECK(lost.sequence == 0);
  CHECK(lost.bytes == 2000000);
  static_cast<void>(read(b, a, lost));
  CHECK(test::has_pattern(read(b, a, take(b, a)), 2));
  CHECK(drive({&a, &b}, [&] { return a.has_sent_all(); }));
}

TEST_CASE("a connection that is given up completes its sends") {
  Side a(1), b(2);
  const std::vector<std::byte> data = test::pattern(2000000, 1);
  for (std::uint64_t i = 0; i < 3; ++i) REQUIRE(a.send(b, i, data) == Sent::pending);
  a.peer(b).disconnect();
  CHECK(drive({&a}, [&] { return a.has_sent_all(); }));
}

TEST_CASE("a peer that is not there is told as a failure") {
  Side a(1);
  auto b = std::make_unique<Side>(2);
  Peer& gone = a.peer(*b);
  b.reset();
  static_cast<void>(gone.connect());
  CHECK(drive({&a}, [&] { return gone.has_failed(); }));
  CHECK(gone.is_gone());
}

TEST_CASE("what was flushed arrives although its sender has ended, and so does its end") {
  Side b(2);
  auto a = std::make_unique<Side>(1);
  Peer& sender = b.peer(*a);
  const std::vector<std::byte> data = test::pattern(1000, 1);
  REQUIRE(a->send(b, 0, data) != Sent::failed);
  Link* const link = a->peer(b).link();
  REQUIRE(link != nullptr);
  REQUIRE(drive({a.get(), &b}, [&] { return a->has_sent_all(); }));
  a->driver().flush(*link);
  Inbox& inbox = b.inbox(*a);
  a.reset();
  REQUIRE(drive({&b}, [&] { return inbox.has_next(kChannel) && sender.is_gone(); }));
  Arrival arrival;
  REQUIRE(inbox.take(kChannel, &arrival));
  CHECK(test::has_pattern(ConstByteRange(arrival.data, arrival.bytes), 1));
  b.driver().release(arrival.hold);
}

TEST_CASE("whoever sleeps is woken by what arrives") {
  Side a(1), b(2);
  const std::vector<std::byte> data = test::pattern(8, 1);
  for (std::uint64_t i = 0; i < 3; ++i) {  // the first one connects
    REQUIRE(drive({&a, &b}, [&] { return b.driver().arm(); }));
    REQUIRE(a.send(b, i, data) != Sent::failed);
    Inbox& inbox = b.inbox(a);
    while (!inbox.has_next(kChannel)) {
      a.driver().progress(WireDriver::Poll::all);
      if (b.driver().arm()) {
        pollfd on{b.facts.event_fd, POLLIN, 0};
        // Long only where it would never end; `a` must be driven while they connect.
        REQUIRE(::poll(&on, 1, a.has_sent_all() ? 60000 : 1) >= (a.has_sent_all() ? 1 : 0));
      }
      b.driver().progress(WireDriver::Poll::all);
    }
    CHECK(test::has_pattern(read(b, a, take(b, a)), 1));
  }
}
