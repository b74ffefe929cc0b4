// Capabilities, addresses, opening. Knows no message; see message_transport.hpp.
#include "transports/message/message_transport.hpp"

#include <fmt/format.h>

#include <random>
#include <utility>

#include "transports/message/endpoint.hpp"
#include "transports/message/lane.hpp"

namespace tutti::message {

namespace {

// Of kernel TCP between two nodes, which every rank can have; a faster network only makes them pessimistic.
constexpr std::uint64_t kAlphaNs = 20000;
constexpr std::uint64_t kBetaPsPerByte = 800;  // 10 Gbit/s

class MessageTransport final : public Transport {
 public:
  MessageTransport(std::unique_ptr<Lane> lane, Card card, std::string_view name, std::string detail)
      : lane_(std::move(lane)), card_(std::move(card)) {
    caps_.name = name;
    caps_.family = Family::message;
    caps_.detail = std::move(detail);
    caps_.channels = kChannels;
    caps_.alpha_ns = kAlphaNs;
    caps_.beta_ps_per_byte = kBetaPsPerByte;
    caps_.has_in_place_delivery = true;
  }

  const TransportCaps& caps() const override { return caps_; }
  std::vector<std::byte> address() const override { return to_bytes(card_); }
  Result<std::uint64_t> reach(std::span<const std::byte> mine,
                              std::span<const std::byte> theirs) const override {
    const Result<Card> own = parse_card(mine);
    if (!own) return own.status();
    const Result<Card> other = parse_card(theirs);
    if (!other) return unsupported("another transport");
    TUTTI_RETURN_IF_ERROR(check_reach(*own, *other));
    return kAlphaNs;
  }

  Result<std::unique_ptr<Endpoint>> open(std::span<const std::byte> peer_address,
                                         std::uint64_t context) override {
    Result<Card> theirs = parse_card(peer_address);
    if (!theirs) return theirs.status();
    TUTTI_RETURN_IF_ERROR(check_reach(card_, *theirs));
    Inbox& inbox = lane_->find_inbox(theirs->instance, context);
    if (inbox.endpoint != nullptr || inbox.is_closed_here) {
      return invalid_argument(fmt::format("context {} was opened before", context));
    }
    inbox.peer.set_address(std::move(theirs->address));
    return std::unique_ptr<Endpoint>(std::make_unique<MessageEndpoint>(*lane_, inbox));
  }

  std::size_t progress(std::span<Event> events) override { return lane_->progress(events); }
  Waitable waitable() const override {
    Waitable waitable;
    waitable.fd = lane_->carrier().event_fd();
    return waitable;
  }
  ArmResult arm() override {
    ArmResult result;
    result.is_armed = lane_->arm();
    return result;
  }
  void leave() override { lane_->leave(); }

 private:
  std::unique_ptr<Lane> lane_;
  Card card_;
  TransportCaps caps_;
};

std::uint64_t random_id() {
  std::random_device device;
  std::uint64_t id = 0;
  while (id == 0) id = (std::uint64_t{device()} << 32U) ^ device();
  return id;
}

}  // namespace

Result<std::unique_ptr<Transport>> make_message_transport(std::unique_ptr<Carrier> carrier,
                                                          CarrierFacts facts) {
  Card card{random_id(), std::move(facts.dialect), std::move(facts.address)};
  auto lane = std::make_unique<Lane>(std::move(carrier), card.instance);
  TUTTI_RETURN_IF_ERROR(lane->start().with_context(facts.name));
  return std::unique_ptr<Transport>(std::make_unique<MessageTransport>(std::move(lane), std::move(card),
                                                                       facts.name, std::move(facts.detail)));
}

}  // namespace tutti::message
