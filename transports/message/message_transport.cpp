// Capabilities, addresses, opening. Knows no message; see message_transport.hpp.
#include "transports/message/message_transport.hpp"

#include <fmt/format.h>

#include <random>
#include <utility>

#include "transports/message/endpoint.hpp"
#include "transports/message/worker.hpp"

namespace tutti::message {

namespace {

// Of kernel TCP between two nodes, which every rank can have; a faster network only makes them pessimistic.
constexpr std::uint64_t kAlphaNs = 20000;
constexpr std::uint64_t kBetaPsPerByte = 800;  // 10 Gbit/s

class MessageTransport final : public Transport {
 public:
  MessageTransport(std::unique_ptr<Worker> worker, Address address, WireFacts facts)
      : worker_(std::move(worker)), address_(std::move(address)), event_fd_(facts.event_fd) {
    caps_.name = facts.name;
    caps_.family = Family::message;
    caps_.detail = std::move(facts.detail);
    caps_.channels = kChannels;
    caps_.alpha_ns = kAlphaNs;
    caps_.beta_ps_per_byte = kBetaPsPerByte;
    caps_.has_in_place_delivery = true;
  }

  const TransportCaps& caps() const override { return caps_; }
  std::vector<std::byte> address() const override { return to_bytes(address_); }
  Result<std::uint64_t> reach(std::span<const std::byte> mine,
                              std::span<const std::byte> theirs) const override {
    const Result<Address> own = parse_address(mine);
    if (!own) return own.status();
    const Result<Address> other = parse_address(theirs);
    if (!other) return unsupported("another transport");
    TUTTI_RETURN_IF_ERROR(check_reach(*own, *other));
    return kAlphaNs;
  }

  Result<std::unique_ptr<Endpoint>> open(std::span<const std::byte> peer_address,
                                         std::uint64_t context) override {
    Result<Address> theirs = parse_address(peer_address);
    if (!theirs) return theirs.status();
    TUTTI_RETURN_IF_ERROR(check_reach(address_, *theirs));
    Inbox& inbox = worker_->find_inbox(theirs->instance, context);
    if (inbox.endpoint != nullptr || inbox.is_closed_here) {
      return invalid_argument(fmt::format("context {} was opened before", context));
    }
    inbox.peer.set_address(std::move(theirs->driver_address));
    return std::unique_ptr<Endpoint>(std::make_unique<MessageEndpoint>(*worker_, inbox));
  }

  std::size_t progress(std::span<Event> events) override { return worker_->progress(events); }
  Waitable waitable() const override {
    Waitable waitable;
    waitable.fd = event_fd_;
    return waitable;
  }
  ArmResult arm() override {
    ArmResult result;
    result.is_armed = worker_->arm();
    return result;
  }
  void leave() override { worker_->leave(); }

 private:
  std::unique_ptr<Worker> worker_;
  Address address_;
  int event_fd_;
  TransportCaps caps_;
};

std::uint64_t random_id() {
  std::random_device device;
  std::uint64_t id = 0;
  while (id == 0) id = (std::uint64_t{device()} << 32U) ^ device();
  return id;
}

}  // namespace

Result<std::unique_ptr<Transport>> make_message_transport(std::unique_ptr<WireDriver> driver,
                                                          WireFacts facts) {
  Address address{random_id(), facts.dialect, facts.address};
  auto worker = std::make_unique<Worker>(std::move(driver), facts.name, facts.fetch, address.instance);
  TUTTI_RETURN_IF_ERROR(worker->start().with_context(facts.name));
  return std::unique_ptr<Transport>(
      std::make_unique<MessageTransport>(std::move(worker), std::move(address), std::move(facts)));
}

}  // namespace tutti::message
