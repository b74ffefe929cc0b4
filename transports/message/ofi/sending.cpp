// The sending half of the driver: packets, what waits for room, long messages, connections.
// Knows no receiving; see driver.hpp.
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "transports/message/ofi/driver.hpp"
#include "transports/message/worker.hpp"

namespace tutti::ofi {

using message::Link;
using message::Notice;
using message::Peer;
using message::SendOp;

namespace {

// Packets that libfabric has for one peer; beyond, a peer that does not look would take everybody's room.
constexpr std::uint32_t kMostOutstanding = 64;
// Of a long message; small messages must not wait behind too much.
constexpr std::uint32_t kMostStreaming = 32;
constexpr std::size_t kUsualWaiting = 256;
constexpr int kPacketsAtOnce = 8;  // of one long message in one call of progress

struct OfiLink final : Link {
  explicit OfiLink(Connection& to) : connection(&to) {}
  Connection* connection;
};

Connection& connection_of(const Link& link) { return *static_cast<const OfiLink&>(link).connection; }

}  // namespace

// -- connections --------------------------------------------------------------------------------------------

Connection& OfiDriver::connect_to(std::span<const std::byte> address, Peer* peer) {
  auto connection = std::make_unique<Connection>();
  connection->address = fabric_->insert(address);
  connection->raw_address.assign(address.begin(), address.end());
  connection->peer = peer;
  connection->waiting.reserve(kUsualWaiting);
  connections_.push_back(std::move(connection));
  return *connections_.back();
}

std::unique_ptr<Link> OfiDriver::connect(Peer& peer, std::span<const std::byte> address) {
  Connection& connection = connect_to(address, &peer);
  if (connection.address == FI_ADDR_NOTAVAIL) {
    peer.note_failure("its address is none of this provider's");
    return nullptr;
  }
  return std::make_unique<OfiLink>(connection);
}

void OfiDriver::disconnect(std::unique_ptr<Link> link) {
  Connection& connection = connection_of(*link);
  connection.is_given_up = true;
  connection.probe.stop();
  fail_waiting(connection);
  fail_transfers(*connection.peer);
}

void OfiDriver::fail(Connection& connection, int error, const char* what) {
  connection.probe.stop();
  if (connection.peer != nullptr) {
    connection.peer->note_failure(std::string(what) + ": " + fi_strerror(error));
  } else {
    connection.is_given_up = true;
    fail_waiting(connection);
  }
}

void OfiDriver::fail_waiting(Connection& connection) {
  while (!connection.waiting.empty()) {
    const Connection::Waiting item = connection.waiting.front();
    connection.waiting.pop_front();
    if (item.packet != nullptr) packets_.give_back(item.packet);
    if (item.op != nullptr) worker_->on_sent(*item.op, false);
  }
}

// -- packets ------------------------------------------------------------------------------------------------

Packet* OfiDriver::make_packet(PacketHeader::Kind kind) {
  Packet* packet = packets_.take();
  if (packet == nullptr) return nullptr;
  packet->is_sending = true;
  *packet->header() = PacketHeader{};
  packet->header()->kind = kind;
  packet->header()->message.sender = worker_->instance();
  return packet;
}

Packet* OfiDriver::make_message(const SendOp& op) {
  Packet* packet = make_packet(PacketHeader::Kind::message);
  if (packet == nullptr) return nullptr;
  std::byte* to = packet->payload();
  for (const iovec& range : op.ranges.items()) {
    std::memcpy(to, range.iov_base, range.iov_len);
    to += range.iov_len;
  }
  PacketHeader& header = *packet->header();
  header.payload_bytes = static_cast<std::uint32_t>(to - packet->payload());
  header.bytes = header.payload_bytes;
  header.message = op.header;
  return packet;
}

Packet* OfiDriver::make_announcement(const SendOp& op, std::uint64_t bytes, std::uint64_t request_id) {
  Packet* packet = make_packet(PacketHeader::Kind::announce);
  if (packet == nullptr) return nullptr;
  packet->header()->message = op.header;
  packet->header()->bytes = bytes;
  packet->header()->request_id = request_id;
  return packet;
}

Packet* OfiDriver::make_notice(const Notice& notice) {
  Packet* packet = make_packet(PacketHeader::Kind::notice);
  if (packet == nullptr) return nullptr;
  std::memcpy(packet->payload(), &notice, sizeof(notice));
  std::size_t bytes = sizeof(notice);
  if (notice.kind == Notice::Kind::closing && !own_address_.empty()) {
    std::memcpy(packet->payload() + bytes, own_address_.data(), own_address_.size());
    bytes += own_address_.size();
  }
  packet->header()->payload_bytes = static_cast<std::uint32_t>(bytes);
  return packet;
}

// Takes the packet unless there is no room.
OfiDriver::Posted OfiDriver::post(Connection& connection, Packet* packet) {
  if (connection.outstanding >= kMostOutstanding) return Posted::no_room;
  const std::size_t bytes = sizeof(PacketHeader) + packet->header()->payload_bytes;
  packet->connection = &connection;
  const bool is_injected = bytes <= fabric_->inject_bytes();
  const ssize_t result =
      is_injected ? fi_tinject(fabric_->endpoint(), packet->memory, bytes, connection.address, kPacketTag)
                  : fi_tsend(fabric_->endpoint(), packet->memory, bytes, packet->descriptor,
                             connection.address, kPacketTag, &packet->context);
  if (result == -FI_EAGAIN) {
    connection.is_blocked = true;
    return Posted::no_room;
  }
  if (result == 0 && !is_injected) {
    ++connection.outstanding;
    return Posted::yes;
  }
  packets_.give_back(packet);
  if (result == 0) return Posted::yes;
  fail(connection, static_cast<int>(-result), "cannot send");
  return Posted::failed;
}

void OfiDriver::wait(Connection& connection, Connection::Waiting item) {
  connection.waiting.push_back(item);
  if (!std::exchange(connection.is_listed, true)) waiting_.push_back(&connection);
}

void OfiDriver::post_or_wait(Connection& connection, Packet* packet) {
  if (connection.is_given_up) {
    packets_.give_back(packet);
  } else if (!connection.waiting.empty() || post(connection, packet) == Posted::no_room) {
    wait(connection, {packet, nullptr});
  }
}

void OfiDriver::send_packet(Link& link, Packet* packet) { post_or_wait(connection_of(link), packet); }

// True if something went.
bool OfiDriver::advance_waiting(Connection& connection) {
  bool has_moved = false;
  while (!connection.waiting.empty()) {
    const Connection::Waiting item = connection.waiting.front();
    if (connection.outstanding >= kMostOutstanding) break;
    Packet* packet = item.packet != nullptr ? item.packet : make_message(*item.op);
    if (packet == nullptr) break;
    const Posted posted = post(connection, packet);
    if (posted == Posted::no_room) {
      if (item.packet == nullptr) packets_.give_back(packet);
      break;
    }
    has_moved = true;
    if (connection.waiting.empty()) break;  // a failure has ended everything
    connection.waiting.pop_front();
    if (item.op != nullptr) worker_->on_sent(*item.op, posted == Posted::yes);
  }
  return has_moved;
}

// -- messages -----------------------------------------------------------------------------------------------

message::WireDriver::Sent OfiDriver::send(Link& link, SendOp& op) {
  Connection& connection = connection_of(link);
  op.work = nullptr;
  const std::size_t bytes = op.ranges.bytes();
  if (bytes > packets_.payload_bytes()) return send_long(connection, op, bytes);
  if (connection.waiting.empty() && connection.outstanding < kMostOutstanding) {
    Packet* packet = make_message(op);
    const Posted posted = packet == nullptr ? Posted::no_room : post(connection, packet);
    if (posted == Posted::yes) return Sent::done;
    if (posted == Posted::failed) return Sent::failed;
    if (packet != nullptr) packets_.give_back(packet);
  }
  wait(connection, {nullptr, &op});
  return Sent::pending;
}

void OfiDriver::notify(Link& link, const Notice& notice) {
  if (Packet* packet = make_notice(notice)) post_or_wait(connection_of(link), packet);
}

void OfiDriver::flush(Link& link) {
  const Connection& connection = connection_of(link);
  worker_->drain_patiently([&] { return connection.waiting.empty() && connection.outstanding == 0; });
}

// -- long messages ------------------------------------------------------------------------------------------

message::WireDriver::Sent OfiDriver::send_long(Connection& connection, SendOp& op, std::uint64_t bytes) {
  Outgoing* outgoing = outgoing_.take();
  outgoing->op = &op;
  outgoing->connection = &connection;
  outgoing->peer_request_id = 0;
  outgoing->bytes = bytes;
  outgoing->allowed_bytes = std::min<std::uint64_t>(bytes, packets_.early_bytes());
  outgoing->sent_bytes = 0;
  outgoing->cursor.start(op.ranges.items());
  Packet* packet = make_announcement(op, bytes, outgoing->request_id);
  if (packet == nullptr) {
    outgoing_.give_back(outgoing);
    fail(connection, FI_ENOMEM, "cannot send");
    return Sent::failed;
  }
  fill(*packet, *outgoing);
  post_or_wait(connection, packet);
  advance(*outgoing);
  if (outgoing->sent_bytes == bytes) {
    outgoing_.give_back(outgoing);
    return Sent::done;
  }
  op.work = outgoing;
  list(*outgoing);
  return Sent::pending;
}

// The next bytes of a long message.
void OfiDriver::fill(Packet& packet, Outgoing& outgoing) {
  PacketHeader& header = *packet.header();
  header.payload_bytes = static_cast<std::uint32_t>(
      std::min<std::uint64_t>(packets_.payload_bytes(), outgoing.allowed_bytes - outgoing.sent_bytes));
  outgoing.cursor.copy_out(packet.payload(), header.payload_bytes);
  outgoing.sent_bytes += header.payload_bytes;
}

void OfiDriver::list(Outgoing& outgoing) {
  if (outgoing.sent_bytes == outgoing.allowed_bytes || std::exchange(outgoing.is_listed, true)) return;
  streams_.push_back(&outgoing);
}

bool OfiDriver::advance_streams() {
  bool has_moved = false;
  std::erase_if(streams_, [&](Outgoing* outgoing) {
    has_moved = advance(*outgoing) || has_moved;
    outgoing->is_listed = outgoing->sent_bytes != outgoing->allowed_bytes;
    if (outgoing->sent_bytes == outgoing->bytes) {
      SendOp& op = *outgoing->op;
      end(outgoing);
      worker_->on_sent(op, true);
      return true;
    }
    return !outgoing->is_listed;
  });
  return has_moved;
}

// Sends what there is room for. True if something went.
bool OfiDriver::advance(Outgoing& outgoing) {
  Connection& connection = *outgoing.connection;
  connection.is_blocked = false;
  int count = 0;
  while (count < kPacketsAtOnce && outgoing.sent_bytes < outgoing.allowed_bytes) {
    const bool has_room = !connection.is_blocked && connection.waiting.empty();
    if (!has_room || connection.outstanding >= kMostStreaming) break;
    const bool is_asked_for = outgoing.peer_request_id != 0;
    Packet* packet = make_packet(is_asked_for ? PacketHeader::Kind::data : PacketHeader::Kind::early);
    if (packet == nullptr) break;
    packet->header()->message.match_header = outgoing.sent_bytes;
    packet->header()->request_id = is_asked_for ? outgoing.peer_request_id : outgoing.request_id;
    fill(*packet, outgoing);
    post_or_wait(connection, packet);
    ++count;
  }
  return count != 0;
}

// Not from within advance_streams(), but for the one that is advanced.
void OfiDriver::end(Outgoing* outgoing) {
  if (std::exchange(outgoing->is_listed, false)) std::erase(streams_, outgoing);
  outgoing->op->work = nullptr;
  outgoing_.give_back(outgoing);
}

void OfiDriver::fail(Outgoing* outgoing) {
  SendOp& op = *outgoing->op;
  end(outgoing);
  worker_->on_sent(op, false);
}

bool OfiDriver::cancel_send(SendOp& op) {
  if (auto* outgoing = static_cast<Outgoing*>(op.work)) {
    end(outgoing);
    return true;
  }
  // It waits for room. The receiver counts messages, so that something must come in its place.
  for (const auto& connection : connections_) {
    for (std::size_t i = 0; i < connection->waiting.count(); ++i) {
      Connection::Waiting& item = connection->waiting[i];
      if (item.op != &op) continue;
      Packet* packet = make_announcement(op, op.ranges.bytes(), 0);
      if (packet == nullptr) return false;
      item = {packet, nullptr};
      return true;
    }
  }
  return false;
}

void OfiDriver::fail_transfers(const Peer& peer) {
  const std::vector<Outgoing*> outgoing = outgoing_.used();
  for (Outgoing* one : outgoing) {
    if (one->connection->peer == &peer) fail(one);
  }
  const std::vector<Incoming*> incoming = incoming_.used();
  for (Incoming* one : incoming) {
    if (one->peer == &peer) lose(one);
  }
}

}  // namespace tutti::ofi
