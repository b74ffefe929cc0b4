// Fuzzes the headers of message transports (ucx and ofi carry them beside the bytes): messages, whole or
// still at their sender, and notices with any contents, against receives that wait and messages that nobody
// waits for.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "tests/fuzz/fuzz_input.hpp"
#include "transports/message/endpoint.hpp"
#include "transports/message/wire_driver.hpp"
#include "transports/message/worker.hpp"

using namespace tutti;
using namespace tutti::message;

namespace {

constexpr std::uint64_t kOwnInstance = 1, kPeer = 2, kContext = 3, kMatchHeader = 4;
constexpr std::size_t kBytes = 5000;

struct StubLink final : Link {
  explicit StubLink(Peer& p) : peer(p) {}
  Peer& peer;
};

// Sends nothing, and delivers what the input says. Lent memory must come back.
class StubDriver final : public WireDriver {
 public:
  Status start(Worker& worker) override {
    worker_ = &worker;
    return {};
  }
  bool progress(Poll) override { return false; }
  bool arm() override { return true; }
  std::unique_ptr<Link> connect(Peer& peer, std::span<const std::byte>) override {
    return std::make_unique<StubLink>(peer);
  }
  void disconnect(std::unique_ptr<Link>) override {}
  Sent send(Link&, SendOp&) override { return Sent::done; }
  void notify(Link&, const Notice& notice) override {
    // `closing` waits for its answer.
    if (notice.kind == Notice::Kind::closing) worker_->take_notice({Notice::Kind::closing_ack, kPeer, 0, 0});
  }
  void release(void* hold) override {
    if (lent_.erase(hold) != 1) std::abort();
    delete static_cast<std::vector<std::byte>*>(hold);
  }
  void fetch(RecvOp& op, void* hold) override {
    release(hold);
    worker_->on_fetched(op, fetch_works_);
  }
  bool cancel_send(SendOp&) override { return true; }
  bool cancel_fetch(RecvOp&) override { return true; }

  void bring(const MessageHeader& header, std::span<const std::byte> payload, std::uint64_t bytes_at_sender,
             bool fetch_works) {
    fetch_works_ = fetch_works;
    Arrival arrival;
    arrival.match_header = header.match_header;
    arrival.sequence = header.sequence;
    arrival.is_remote = bytes_at_sender != 0;
    arrival.bytes = arrival.is_remote ? bytes_at_sender : payload.size();
    if (arrival.bytes != 0) {
      auto* const hold = new std::vector<std::byte>(payload.begin(), payload.end());
      lent_.insert(hold);
      arrival.hold = hold;
      if (!arrival.is_remote) arrival.data = hold->data();
    }
    if (!worker_->take_message(header, arrival) && arrival.hold != nullptr && lent_.count(arrival.hold) != 0)
      release(arrival.hold);
  }

 private:
  Worker* worker_ = nullptr;
  bool fetch_works_ = true;
  std::set<void*> lent_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input{{reinterpret_cast<const std::byte*>(data), size}};
  auto made = std::make_unique<StubDriver>();
  StubDriver& driver = *made;
  Worker worker(std::move(made), "stub", Fetch::whole, kOwnInstance);
  if (!worker.start()) std::abort();
  std::vector<std::byte> memory(3 * kBytes);
  const std::array<ByteRange, 3> to{ByteRange(memory).first(kBytes),
                                    ByteRange(memory).subspan(kBytes, kBytes),
                                    ByteRange(memory).subspan(2 * kBytes)};
  std::array<Event, 8> events;
  Inbox& inbox = worker.find_inbox(kPeer, kContext);
  inbox.peer.set_address({std::byte{1}});
  MessageEndpoint endpoint(worker, inbox);
  for (std::uint32_t i = 0; i < to.size(); ++i)
    endpoint.recv(i % 2, kMatchHeader, {{&to[i], 1}, kBytes, nullptr, nullptr}, i + 1);
  while (!input.rest.empty()) {
    const auto choice = input.take<std::uint8_t>();
    if (choice % 4 == 0) {
      const auto header = input.take<MessageHeader>();
      driver.bring(header, input.take_bytes(input.take<std::uint8_t>()), 0, true);
    } else if (choice % 4 == 1) {
      const auto header = input.take<MessageHeader>();
      driver.bring(header, {}, input.take<std::uint16_t>(), (choice & 4U) != 0);
    } else if (choice % 4 == 2) {
      static_cast<void>(worker.take_notice(input.take<Notice>()));
    }
    while (worker.progress(events) != 0) {
    }
  }
  endpoint.close(false);
  while (worker.progress(events) != 0) {
  }
  return 0;
}
