// The wire driver over tagged messages of libfabric: packets, connections, detection of dead peers.
// Knows no receive and no context; see transports/message/wire_driver.hpp. receiving.cpp holds the receiving
// half.
//
// Short messages are one packet. Of a longer one the first packets come at once. When it has matched, the receiver
// asks for the rest, and delivers all of it from the packets. libfabric sees packets only, never a user's buffer.
// Packets of one sender arrive in order (FI_ORDER_SAS).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/base/running_clock.hpp"
#include "transports/message/ofi/fabric.hpp"
#include "transports/message/ofi/packets.hpp"
#include "transports/message/ofi/probe.hpp"
#include "transports/message/ofi/transfers.hpp"
#include "transports/message/operations.hpp"
#include "transports/message/wire_driver.hpp"
#include "transports/queues.hpp"

namespace tutti::ofi {

// One address that packets go to, as long as the driver lives: libfabric completes packets whenever it
// likes.
struct Connection {
  // An entry that waits for room: a packet, or a message that is not in one yet.
  struct Waiting {
    Packet* packet = nullptr;
    message::SendOp* op = nullptr;
  };
  fi_addr_t address = FI_ADDR_NOTAVAIL;
  std::vector<std::byte> raw_address;
  message::Peer* peer = nullptr;  // null: only an answer goes there
  Fifo<Waiting> waiting;
  std::uint32_t outstanding = 0;  // packets that libfabric has
  bool is_given_up = false;
  bool is_blocked = false;  // libfabric took nothing the last time
  bool is_listed = false;   // among those that wait
  Probe probe;
  Clock::time_point next_probe{};
  Clock::duration probe_pause{};
};

class OfiDriver final : public message::WireDriver {
 public:
  explicit OfiDriver(std::unique_ptr<Fabric> fabric);
  ~OfiDriver() override;

  Status start(message::Worker& worker) override;
  bool progress(Poll which) override;
  bool arm() override;

  std::unique_ptr<message::Link> connect(message::Peer& peer, std::span<const std::byte> address) override;
  void disconnect(std::unique_ptr<message::Link> link) override;

  Sent send(message::Link& link, message::SendOp& op) override;
  void notify(message::Link& link, const message::Notice& notice) override;
  void flush(message::Link& link) override;

  void release(void* hold) override;
  void fetch(message::RecvOp& op, void* hold) override;
  void pump(message::RecvOp& op) override;

  bool cancel_send(message::SendOp& op) override;
  bool cancel_fetch(message::RecvOp& op) override;
  bool finish() override;
  void abandon() override;

 private:
  // An arrival that the engine keeps: in its packet, moved out of it, or longer.
  struct Hold {
    Packet* packet = nullptr;
    ByteRange copy;
    Incoming* incoming = nullptr;
  };

  // sending.cpp
  enum class Posted : std::uint8_t { yes, no_room, failed };
  Connection& connect_to(std::span<const std::byte> address, message::Peer* peer);
  Packet* make_packet(PacketHeader::Kind kind);
  Packet* make_message(const message::SendOp& op);
  Packet* make_announcement(const message::SendOp& op, std::uint64_t bytes, std::uint64_t request_id);
  void fill(Packet& packet, Outgoing& outgoing);
  Sent send_long(Connection& connection, message::SendOp& op, std::uint64_t bytes);
  Packet* make_notice(const message::Notice& notice);
  Posted post(Connection& connection, Packet* packet);
  void post_or_wait(Connection& connection, Packet* packet);
  void send_packet(message::Link& link, Packet* packet);
  void wait(Connection& connection, Connection::Waiting item);
  bool advance_waiting(Connection& connection);
  bool advance_streams();
  bool advance(Outgoing& outgoing);
  void list(Outgoing& outgoing);
  void end(Outgoing* outgoing);
  void fail(Outgoing* outgoing);
  void fail(Connection& connection, int error, const char* what);
  void fail_waiting(Connection& connection);
  void fail_transfers(const message::Peer& peer);

  // receiving.cpp
  bool post_receives();
  void on_completions(std::span<const fi_cq_msg_entry> entries);
  void on_error();
  void on_packet(Packet* packet, std::size_t bytes);
  void on_message(Packet* packet);
  void on_announcement(Packet* packet);
  void on_go(const PacketHeader& header);
  void on_piece(Packet* packet, Incoming* incoming);
  Incoming* find_early(const PacketHeader& header) const;
  Incoming* find_asked_for(const PacketHeader& header) const;
  void answer_announcement(const Incoming& incoming, std::uint64_t request_id);
  void on_notice(const Packet* packet);
  void end(Incoming* incoming);
  void lose(Incoming* incoming);

  // driver.cpp
  void check_peers();

  std::unique_ptr<Fabric> fabric_;
  message::Worker* worker_ = nullptr;
  PacketPool packets_;
  std::vector<std::byte> own_address_;
  std::vector<std::unique_ptr<Connection>> connections_;
  std::vector<Connection*> waiting_;  // have something that waits
  std::vector<Outgoing*> streams_;    // can go on
  std::vector<Incoming*> early_;      // of which more comes unasked
  RequestTable<Outgoing> outgoing_;
  RequestTable<Incoming> incoming_;
  message::Pool<Hold> holds_;
  message::BouncePool copies_;
  std::size_t held_packets_ = 0;
  std::size_t posted_receives_ = 0;
  std::size_t idle_calls_ = 0;
  Clock::time_point next_check_{};
  Clock::time_point next_ping_{};
  bool is_abandoned_ = false;
};

}  // namespace tutti::ofi
