// Carrying messages through queues in memory; see null_driver.hpp. Knows no receive.
#include "tests/transports/null/null_driver.hpp"

#include <cstring>
#include <optional>
#include <utility>

#include "transports/message/worker.hpp"

namespace tutti::null {

using message::Arrival;
using message::Link;
using message::Notice;
using message::Peer;
using message::RecvOp;
using message::SendOp;

namespace {

// Longer messages stay at the sender until they are fetched.
constexpr std::size_t kShortBytes = 4096;

}  // namespace

struct NullDriver::NullLink final : Link {
  NullLink(Peer& to, std::shared_ptr<Mailbox> target) : peer(to), mailbox(std::move(target)) {}
  Peer& peer;
  std::shared_ptr<Mailbox> mailbox;
};

NullDriver::NullDriver() : mailbox_(Mailbox::make()) {}

NullDriver::~NullDriver() {
  for (const Offer& offer : offers_) static_cast<void>(offer.remote->take_back());
  mailbox_->close();
}

message::WireFacts NullDriver::facts() const {
  message::WireFacts facts;
  facts.name = "null";
  facts.detail = "queues between threads of one process";
  facts.dialect = "null";
  facts.address.resize(sizeof(std::uint64_t));
  const std::uint64_t number = mailbox_->number();
  std::memcpy(facts.address.data(), &number, sizeof number);
  facts.event_fd = mailbox_->event_fd();
  return facts;
}

// -- life and progress --------------------------------------------------------------------------------------

Status NullDriver::start(message::Worker& worker) {
  worker_ = &worker;
  return {};
}

bool NullDriver::progress(Poll) {
  // Before the packets are taken: what a peer has sent before it ended is delivered first.
  std::vector<Peer*> ended;
  for (const NullLink* link : links_) {
    if (link->mailbox->is_closed()) ended.push_back(&link->peer);
  }
  bool has_moved = complete_offers();
  while (std::unique_ptr<Packet> packet = mailbox_->take()) {
    take(std::move(packet));
    has_moved = true;
  }
  for (Peer* peer : ended) peer->note_failure("its driver has ended");
  return has_moved;
}

bool NullDriver::arm() { return mailbox_->arm(); }

void NullDriver::take(std::unique_ptr<Packet> packet) {
  if (packet->kind == Packet::Kind::news) {
    complete_offers();
  } else if (packet->kind == Packet::Kind::notice) {
    const std::optional<Notice> answer = worker_->take_notice(packet->notice);
    if (answer) post(*packet->sender, *answer);
  } else {
    Arrival arrival;
    arrival.data = packet->bytes.data();
    arrival.bytes = packet->total_bytes;
    arrival.match_header = packet->header.match_header;
    arrival.sequence = packet->header.sequence;
    arrival.is_remote = packet->remote != nullptr;
    arrival.hold = packet.get();
    const message::MessageHeader header = packet->header;
    if (worker_->take_message(header, arrival)) {
      static_cast<void>(packet.release());  // given back by release() or fetch()
    } else if (packet->remote) {
      packet->remote->drop();
    }
  }
}

bool NullDriver::complete_offers() {
  std::vector<SendOp*> complete;
  std::erase_if(offers_, [&](const Offer& offer) {
    if (!offer.remote->is_over()) return false;
    complete.push_back(offer.op);
    return true;
  });
  for (SendOp* op : complete) worker_->on_sent(*op, true);
  return !complete.empty();
}

// -- connections --------------------------------------------------------------------------------------------

std::unique_ptr<Link> NullDriver::connect(Peer& peer, std::span<const std::byte> address) {
  std::uint64_t number = 0;
  if (address.size() == sizeof number) std::memcpy(&number, address.data(), sizeof number);
  std::shared_ptr<Mailbox> mailbox = Mailbox::find(number);
  if (!mailbox) {
    peer.note_failure("nobody is at its address");
    return nullptr;
  }
  auto link = std::make_unique<NullLink>(peer, std::move(mailbox));
  links_.push_back(link.get());
  return link;
}

void NullDriver::disconnect(std::unique_ptr<Link> link) {
  std::erase(links_, link.get());
  std::vector<std::pair<SendOp*, bool>> complete;
  std::erase_if(offers_, [&](const Offer& offer) {
    if (offer.link != link.get()) return false;
    complete.emplace_back(offer.op, !offer.remote->take_back());
    return true;
  });
  for (const auto& [op, is_ok] : complete) worker_->on_sent(*op, is_ok);
}

// -- sending ------------------------------------------------------------------------------------------------

message::WireDriver::Sent NullDriver::send(Link& link, SendOp& op) {
  auto& to = static_cast<NullLink&>(link);
  auto packet = std::make_unique<Packet>();
  packet->kind = Packet::Kind::message;
  packet->header = op.header;
  packet->total_bytes = op.ranges.bytes();
  if (packet->total_bytes > kShortBytes) {
    packet->remote = std::make_shared<Remote>(mailbox_, op.ranges);
    offers_.push_back({&op, packet->remote, &to});
    to.mailbox->put(std::move(packet));
    return Sent::pending;
  }
  for (const iovec& item : op.ranges.items()) {
    const auto* from = static_cast<const std::byte*>(item.iov_base);
    packet->bytes.insert(packet->bytes.end(), from, from + item.iov_len);
  }
  to.mailbox->put(std::move(packet));
  return Sent::done;
}

void NullDriver::notify(Link& link, const Notice& notice) {
  post(*static_cast<NullLink&>(link).mailbox, notice);
}

void NullDriver::post(Mailbox& to, const Notice& notice) {
  auto packet = std::make_unique<Packet>();
  packet->kind = Packet::Kind::notice;
  packet->notice = notice;
  packet->sender = mailbox_;
  to.put(std::move(packet));
}

// -- receiving and taking back ------------------------------------------------------------------------------

void NullDriver::release(void* hold) {
  const std::unique_ptr<Packet> packet(static_cast<Packet*>(hold));
  if (packet->remote) packet->remote->drop();
}

void NullDriver::fetch(RecvOp& op, void* hold) {
  const std::unique_ptr<Packet> packet(static_cast<Packet*>(hold));
  const iovec bounce{op.bounce.data(), op.bounce.size()};
  const bool is_ok =
      packet->remote->copy_to(op.bounce.empty() ? op.ranges.items() : std::span<const iovec>(&bounce, 1));
  worker_->on_fetched(op, is_ok);
}

bool NullDriver::cancel_send(SendOp& op) {
  std::erase_if(offers_, [&](const Offer& offer) {
    if (offer.op != &op) return false;
    static_cast<void>(offer.remote->take_back());  // fetched or not, nobody reads its memory any more
    return true;
  });
  return true;
}

}  // namespace tutti::null
