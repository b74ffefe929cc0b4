// The engine of the message transports over a driver that only writes down what it is asked to do.
// Knows no library.
#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/log.hpp"
#include "tests/support/catch.hpp"
#include "transports/message/address.hpp"
#include "transports/message/endpoint.hpp"
#include "transports/message/wire_driver.hpp"
#include "transports/message/worker.hpp"

namespace {

using namespace tutti;
using namespace tutti::message;

// Nothing moves, but what `moves` makes move, and nothing can be cancelled.
class StuckDriver final : public WireDriver {
 public:
  Status start(Worker&) override { return {}; }
  bool progress(Poll) override { return moves && moves(); }
  bool arm() override { return true; }
  std::unique_ptr<Link> connect(Peer&, std::span<const std::byte>) override {
    return std::make_unique<Link>();
  }
  void disconnect(std::unique_ptr<Link>) override { ++disconnected; }
  Sent send(Link&, SendOp& op) override {
    sends.push_back(&op);
    return Sent::pending;
  }
  void notify(Link&, const Notice& notice) override { notices.push_back(notice); }
  void release(void* hold) override { released.push_back(hold); }
  void fetch(RecvOp&, void*) override {}

  std::function<bool()> moves;
  std::size_t disconnected = 0;
  std::vector<SendOp*> sends;
  std::vector<Notice> notices;
  std::vector<void*> released;
};

struct Stuck {
  Stuck() {
    auto made = std::make_unique<StuckDriver>();
    driver = made.get();
    worker = std::make_unique<Worker>(std::move(made), "stuck", Fetch::whole, 1);
  }
  StuckDriver* driver;
  std::unique_ptr<Worker> worker;
};

// With one endpoint, on which messages of no bytes are received.
struct StuckEndpoint : Stuck {
  Post receive(std::uint64_t match_header, RequestId request, bool only_polls = false) {
    Sink nothing;
    nothing.only_polls = only_polls;
    return endpoint.recv(5, match_header, nothing, request);
  }
  // The one event that there is must be a failure: of which request?
  RequestId failed() {
    std::array<Event, 4> events;
    REQUIRE(worker->progress(events) == 1);
    CHECK(events[0].kind == Event::Kind::failed);
    return events[0].request;
  }

  const LogCapture quiet{LogLevel::warn};
  Inbox& inbox = worker->find_inbox(2, 3);
  MessageEndpoint endpoint{*worker, inbox};
};

void arrive(Worker& worker, std::uint64_t sender, std::uint64_t sequence, void* hold = nullptr,
            bool is_remote = false) {
  MessageHeader header;
  header.sender = sender;
  header.context = 3;
  header.channel = 5;
  header.sequence = sequence;
  Arrival arrival;
  arrival.sequence = sequence;
  arrival.match_header = 100 + sequence;
  arrival.hold = hold;
  arrival.is_remote = is_remote;
  CHECK(worker.take_message(header, arrival));
}

Notice closed(std::uint64_t sender, std::uint64_t message_count) {
  Notice notice;
  notice.kind = Notice::Kind::context_closed;
  notice.sender = sender;
  notice.context = 3;
  notice.message_count = message_count;
  return notice;
}

}  // namespace

TEST_CASE("addresses are read back, damaged ones are refused, and dialects are compared") {
  const Address address{17, "UCX 1.13", std::vector<std::byte>(40, std::byte{5})};
  const std::vector<std::byte> bytes = to_bytes(address);
  const auto read = parse_address(bytes);
  REQUIRE(read);
  CHECK(read->instance == address.instance);
  CHECK(read->dialect == address.dialect);
  CHECK(read->driver_address == address.driver_address);
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    CHECK_FALSE(parse_address(std::span(bytes).first(length)));
  }
  for (const std::size_t at : {std::size_t{0}, std::size_t{16}, std::size_t{23}, std::size_t{24}}) {
    std::vector<std::byte> damaged = bytes;  // the magic word, and the lengths
    damaged[at] ^= std::byte{1};
    CHECK_FALSE(parse_address(damaged));
  }
  Address newer = address;
  CHECK(check_reach(address, newer));
  newer.dialect = "UCX 1.17";
  CHECK(check_reach(address, newer).message() == "UCX 1.13 here and UCX 1.17 there");
}

TEST_CASE("messages that overtake each other are put in order, and a closing is heard after all of them") {
  Stuck stuck;
  Inbox& inbox = stuck.worker->find_inbox(2, 3);
  Arrival next;
  arrive(*stuck.worker, 2, 2);
  arrive(*stuck.worker, 2, 1);
  CHECK_FALSE(inbox.take(5, &next));
  CHECK_FALSE(stuck.worker->take_notice(closed(2, 4)));
  CHECK_FALSE(inbox.is_ended());
  arrive(*stuck.worker, 2, 3);
  arrive(*stuck.worker, 2, 0);
  CHECK(inbox.is_ended());
  for (std::uint64_t sequence = 0; sequence < 4; ++sequence) {
    REQUIRE(inbox.take(5, &next));
    CHECK(next.match_header == 100 + sequence);
  }
  CHECK_FALSE(inbox.take(5, &next));
}

TEST_CASE("what a closing peer still holds itself is released once, and lost") {
  Stuck stuck;
  int here = 0, there = 0;
  arrive(*stuck.worker, 2, 0, &here);
  arrive(*stuck.worker, 2, 1, &there, true);
  CHECK_FALSE(stuck.worker->take_notice(closed(2, 2)));
  CHECK(stuck.driver->released == std::vector<void*>{&there});
  Arrival next;
  Inbox& inbox = stuck.worker->find_inbox(2, 3);
  REQUIRE(inbox.take(5, &next));
  CHECK_FALSE(next.is_lost);
  REQUIRE(inbox.take(5, &next));
  CHECK(next.is_lost);
  inbox.clear();
  CHECK(stuck.driver->released.size() == 1);
}

// A connection may break for the one who sends before all that it has brought is read.
TEST_CASE("a receive that failed with the peer takes its late message with it") {
  StuckEndpoint stuck;
  arrive(*stuck.worker, 2, 0);
  CHECK(stuck.receive(100, 1) == Post::done);
  REQUIRE(stuck.receive(101, 2) == Post::pending);
  arrive(*stuck.worker, 2, 2);  // overtakes the one before it
  stuck.inbox.peer.note_failure("a send was refused");
  CHECK(stuck.failed() == 2);
  arrive(*stuck.worker, 2, 1);
  REQUIRE(stuck.receive(102, 3) == Post::pending);
  CHECK(stuck.failed() == 3);
  REQUIRE(stuck.receive(0, 4, true) == Post::pending);
  CHECK(stuck.failed() == 4);
}

TEST_CASE("a message that no receive has failed for is delivered after the peer's end") {
  StuckEndpoint stuck;
  stuck.inbox.peer.note_failure("a send was refused");
  std::array<Event, 1> events;
  CHECK(stuck.worker->progress(events) == 0);
  arrive(*stuck.worker, 2, 0);
  CHECK(stuck.receive(100, 1) == Post::done);
  REQUIRE(stuck.receive(101, 2) == Post::pending);
  CHECK(stuck.failed() == 2);
}

TEST_CASE("closing towards many peers that do not answer shares one bound, and cuts each of them") {
  const LogCapture quiet(LogLevel::warn);
  Stuck stuck;
  constexpr std::uint64_t kPeers = 40;
  std::vector<std::unique_ptr<Endpoint>> endpoints;
  const std::array<std::byte, 4> data{};
  const ConstByteRange range = data;
  for (std::uint64_t peer = 0; peer < kPeers; ++peer) {
    Inbox& inbox = stuck.worker->find_inbox(peer + 2, 3);
    inbox.peer.set_address(std::vector<std::byte>(1));
    endpoints.push_back(std::make_unique<MessageEndpoint>(*stuck.worker, inbox));
    REQUIRE(endpoints.back()->send(0, 1, {&range, 1}, peer) == Post::pending);
  }
  const std::chrono::milliseconds first = stuck.worker->patience();
  std::chrono::milliseconds sum{0};
  for (const auto& endpoint : endpoints) {
    sum += stuck.worker->patience();
    endpoint->close(false);
  }
  CHECK(sum <= 2 * first);
  CHECK(stuck.driver->disconnected == kPeers);
  CHECK(quiet.lines().size() == kPeers);  // each buffer that is not given back is told
  std::vector<Event> events(2 * kPeers);
  CHECK(stuck.worker->progress(events) == kPeers);
  for (std::uint64_t i = 0; i < kPeers; ++i) {
    CHECK(events[i].kind == Event::Kind::failed);
    CHECK(events[i].request == i);
  }
}

TEST_CASE("a connection over which something still moves is not cut when an endpoint closes") {
  StuckEndpoint slow;
  slow.inbox.peer.set_address(std::vector<std::byte>(1));
  REQUIRE(slow.endpoint.send(0, 1, {}, 7) == Post::pending);
  // Something moves every fifth of the time after which it would be taken for stuck; all is sent after ten.
  const auto step = slow.worker->patience() / 5;
  auto next = std::chrono::steady_clock::now() + step;
  int steps = 0;
  slow.driver->moves = [&] {
    if (std::chrono::steady_clock::now() < next) return false;
    next += step;
    if (++steps == 10) slow.worker->on_sent(*slow.driver->sends.at(0), true);
    return true;
  };
  slow.endpoint.close(false);
  slow.driver->moves = nullptr;
  CHECK(steps == 10);
  CHECK(slow.driver->disconnected == 0);
  CHECK(slow.failed() == 7);
}
