// The receiving half of the driver: what arrives, and long messages on their way in.
// Knows no sending; see driver.hpp.
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "runtime/base/log.hpp"
#include "transports/message/ofi/driver.hpp"
#include "transports/message/worker.hpp"

namespace tutti::ofi {

using message::Arrival;
using message::Link;
using message::Notice;
using message::Peer;
using message::RecvOp;

namespace {

constexpr std::size_t kReceives = 64;  // posted at any time
constexpr std::size_t kMostHeld =
    256;  // packets that the engine keeps; beyond, messages are moved out of them

}  // namespace

// False if there is no memory.
bool OfiDriver::post_receives() {
  while (posted_receives_ < kReceives) {
    Packet* packet = packets_.take();
    if (packet == nullptr) return false;
    packet->is_sending = false;
    const ssize_t result = fi_trecv(fabric_->endpoint(), packet->memory, packets_.packet_bytes(),
                                    packet->descriptor, FI_ADDR_UNSPEC, kPacketTag, 0, &packet->context);
    if (result != 0) {
      packets_.give_back(packet);
      return result == -FI_EAGAIN;
    }
    ++posted_receives_;
  }
  return true;
}

void OfiDriver::on_completions(std::span<const fi_cq_msg_entry> entries) {
  for (const fi_cq_msg_entry& entry : entries) {
    auto* packet = static_cast<Packet*>(entry.op_context);
    if (packet->is_sending) {
      --packet->connection->outstanding;
      packets_.give_back(packet);
    } else {
      --posted_receives_;
      on_packet(packet, entry.len);
    }
  }
  post_receives();
}

void OfiDriver::on_error() {
  fi_cq_err_entry entry{};
  if (fi_cq_readerr(fabric_->queue(), &entry, 0) < 0 || entry.op_context == nullptr) return;
  auto* packet = static_cast<Packet*>(entry.op_context);
  if (packet->is_sending) {
    Connection& connection = *packet->connection;
    --connection.outstanding;
    packets_.give_back(packet);
    fail(connection, entry.err, "cannot send");
  } else {
    --posted_receives_;
    log_debug("ofi: a packet was lost: {}", fi_strerror(entry.err));
    packets_.give_back(packet);
    post_receives();
  }
}

// Packets with wrong sizes are not of ours.
void OfiDriver::on_packet(Packet* packet, std::size_t bytes) {
  const PacketHeader& header = *packet->header();
  const bool has_its_size =
      bytes >= sizeof(PacketHeader) && bytes - sizeof(PacketHeader) == header.payload_bytes;
  // The first bytes of a message are not more than all of it.
  if (!has_its_size || (header.kind == PacketHeader::Kind::announce && header.payload_bytes > header.bytes)) {
    packets_.give_back(packet);
    return;
  }
  switch (header.kind) {
    case PacketHeader::Kind::message:
      on_message(packet);
      return;
    case PacketHeader::Kind::announce:
      on_announcement(packet);
      return;
    case PacketHeader::Kind::early:
      on_piece(packet, find_early(header));
      return;
    case PacketHeader::Kind::data:
      on_piece(packet, find_asked_for(header));
      return;
    case PacketHeader::Kind::go:
      on_go(header);
      break;
    case PacketHeader::Kind::notice:
      on_notice(packet);
      break;
    case PacketHeader::Kind::ping:
      break;
  }
  packets_.give_back(packet);
}

void OfiDriver::on_message(Packet* packet) {
  const PacketHeader& header = *packet->header();
  Arrival arrival;
  arrival.bytes = header.payload_bytes;
  arrival.match_header = header.message.match_header;
  arrival.sequence = header.message.sequence;
  Hold* hold = nullptr;
  if (arrival.bytes != 0) {
    hold = holds_.take();
    *hold = {};
    if (held_packets_ >= kMostHeld) hold->copy = copies_.take(arrival.bytes);
    if (!hold->copy.empty()) {
      std::memcpy(hold->copy.data(), packet->payload(), arrival.bytes);
      arrival.data = hold->copy.data();
    } else {
      hold->packet = packet;
      ++held_packets_;
      arrival.data = packet->payload();
    }
    arrival.hold = hold;
  }
  const bool is_packet_free = hold == nullptr || hold->packet == nullptr;
  if (!worker_->take_message(header.message, arrival) && hold != nullptr) release(hold);
  if (is_packet_free) packets_.give_back(packet);
}

// A message that has no end yet.
void OfiDriver::on_announcement(Packet* packet) {
  const PacketHeader& header = *packet->header();
  const message::MessageHeader message = header.message;
  // The announcement of a message that was given up has no bytes.
  const bool has_bytes = header.payload_bytes != 0;
  Incoming* incoming = incoming_.take();
  incoming->op = nullptr;
  incoming->peer = &worker_->find_peer(message.sender);
  incoming->peer_request_id = header.request_id;
  incoming->bytes = header.bytes;
  incoming->arrived_bytes = 0;
  incoming->delivered_bytes = 0;
  incoming->is_dead = false;
  Hold* hold = holds_.take();
  *hold = {};
  hold->incoming = incoming;
  Arrival arrival;
  arrival.bytes = header.bytes;
  arrival.match_header = message.match_header;
  arrival.sequence = message.sequence;
  arrival.is_remote = true;
  arrival.is_coming = has_bytes && header.bytes <= packets_.early_bytes();
  arrival.hold = hold;
  if (has_bytes) early_.push_back(incoming);
  on_piece(packet, incoming);
  if (worker_->take_message(message, arrival)) return;
  // Nobody wants it, and its sender is told that the context is closed.
  end(incoming);
  holds_.give_back(hold);
}

// Null if there is none (any more). The last one is what comes most often.
Incoming* OfiDriver::find_early(const PacketHeader& header) const {
  for (std::size_t i = early_.size(); i-- > 0;) {
    Incoming* incoming = early_[i];
    if (incoming->peer_request_id == header.request_id &&
        incoming->peer->instance() == header.message.sender) {
      return incoming;
    }
  }
  return nullptr;
}

// Null if there is none (any more), or the request_id is another peer's.
Incoming* OfiDriver::find_asked_for(const PacketHeader& header) const {
  Incoming* incoming = incoming_.find(header.request_id);
  const bool is_its_own = incoming != nullptr && incoming->peer->instance() == header.message.sender;
  return is_its_own ? incoming : nullptr;
}

void OfiDriver::on_piece(Packet* packet, Incoming* incoming) {
  const PacketHeader& header = *packet->header();
  const bool is_first = header.kind == PacketHeader::Kind::announce;
  const bool is_next = incoming != nullptr && header.payload_bytes != 0 &&
                       (is_first || header.message.match_header == incoming->arrived_bytes) &&
                       header.payload_bytes <= incoming->bytes - incoming->arrived_bytes;
  if (!is_next) {  // of a message that was given up
    packets_.give_back(packet);
    return;
  }
  const bool was_early = incoming->arrived_bytes < packets_.early_bytes();
  incoming->arrived_bytes += header.payload_bytes;
  incoming->pieces.push_back(packet);
  if (was_early &&
      incoming->arrived_bytes >= std::min<std::uint64_t>(incoming->bytes, packets_.early_bytes())) {
    std::erase(early_, incoming);
  }
  if (incoming->op != nullptr) worker_->note_piece(*incoming->op);
}

// Asks for the rest of a message, or, with request_id 0, says that nobody wants it.
void OfiDriver::answer_announcement(const Incoming& incoming, std::uint64_t request_id) {
  if (incoming.bytes <= packets_.early_bytes() || incoming.peer->is_gone()) return;  // there is no rest
  Link* link = incoming.peer->connect();
  Packet* packet = link == nullptr ? nullptr : make_packet(PacketHeader::Kind::go);
  if (packet == nullptr) return;
  packet->header()->request_id = incoming.peer_request_id;
  packet->header()->message.match_header = request_id;
  send_packet(*link, packet);
}

void OfiDriver::release(void* hold) {
  auto* held = static_cast<Hold*>(hold);
  if (held->packet != nullptr) {
    --held_packets_;
    packets_.give_back(held->packet);
  }
  copies_.give_back(held->copy);
  if (held->incoming != nullptr) {
    answer_announcement(*held->incoming, 0);
    end(held->incoming);
  }
  holds_.give_back(held);
}

void OfiDriver::fetch(RecvOp& op, void* hold) {
  auto* held = static_cast<Hold*>(hold);
  Incoming* incoming = held->incoming;
  holds_.give_back(held);
  incoming->op = &op;
  incoming->cursor.start(op.ranges.items());
  op.work = incoming;
  if (incoming->is_dead) {
    lose(incoming);
    return;
  }
  answer_announcement(*incoming, incoming->request_id);
  pump(op);
}

void OfiDriver::on_go(const PacketHeader& header) {
  Outgoing* outgoing = outgoing_.find(header.request_id);
  if (outgoing == nullptr || outgoing->peer_request_id != 0) return;
  if (outgoing->connection->peer->instance() != header.message.sender) return;
  if (header.message.match_header != 0) {
    outgoing->peer_request_id = header.message.match_header;
    outgoing->allowed_bytes = outgoing->bytes;
    list(*outgoing);
    return;
  }
  message::SendOp& op = *outgoing->op;
  end(outgoing);
  worker_->on_sent(op, true);
}

void OfiDriver::pump(RecvOp& op) {
  auto* incoming = static_cast<Incoming*>(op.work);
  if (incoming == nullptr) return;
  for (; !incoming->pieces.empty(); incoming->pieces.pop_front()) {
    Packet* packet = incoming->pieces.front();
    const ConstByteRange data(packet->payload(), packet->header()->payload_bytes);
    if (op.sink.deliver != nullptr) {
      op.sink.deliver(op.sink.context, incoming->delivered_bytes, data);
    } else {
      incoming->cursor.copy_in(data.data(), data.size());
    }
    incoming->delivered_bytes += data.size();
    packets_.give_back(packet);
  }
  if (incoming->delivered_bytes != incoming->bytes) return;
  end(incoming);
  worker_->on_fetched(op, true);
}

void OfiDriver::end(Incoming* incoming) {
  for (; !incoming->pieces.empty(); incoming->pieces.pop_front()) {
    packets_.give_back(incoming->pieces.front());
  }
  std::erase(early_, incoming);
  if (incoming->op != nullptr) incoming->op->work = nullptr;
  incoming_.give_back(incoming);
}

// The rest of the message will not come.
void OfiDriver::lose(Incoming* incoming) {
  if (incoming->arrived_bytes == incoming->bytes) return;
  incoming->is_dead = true;
  if (incoming->op == nullptr) return;  // told when it matches
  RecvOp& op = *incoming->op;
  end(incoming);
  worker_->on_fetched(op, false);
}

bool OfiDriver::cancel_fetch(RecvOp& op) {
  if (auto* incoming = static_cast<Incoming*>(op.work)) end(incoming);
  return true;
}

void OfiDriver::on_notice(const Packet* packet) {
  Notice notice;
  const std::size_t bytes = packet->header()->payload_bytes;
  if (bytes < sizeof(notice)) return;
  std::memcpy(&notice, packet->payload(), sizeof(notice));
  const std::optional<Notice> answer = worker_->take_notice(notice);
  if (!answer) return;
  Link* link = worker_->find_peer(notice.sender).link();
  if (link != nullptr) {
    notify(*link, *answer);
    return;
  }
  // We have never talked to it.
  const std::span<const std::byte> address(packet->payload() + sizeof(notice), bytes - sizeof(notice));
  Connection& connection = connect_to(address, nullptr);
  Packet* ack = make_notice(*answer);
  if (ack != nullptr && connection.address != FI_ADDR_NOTAVAIL) post_or_wait(connection, ack);
}

}  // namespace tutti::ofi
