// Dispatch to connections, and the polling of sockets. Knows no frame; see driver.hpp.
#include "transports/message/tcp/driver.hpp"

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "transports/message/worker.hpp"

namespace tutti::tcp {

using message::Arrival;
using message::Link;
using message::Notice;
using message::Peer;
using message::RecvOp;
using message::SendOp;
using message::WireDriver;

namespace {

// Up to so many connections are read without epoll: one system call each, which brings the data along.
constexpr std::size_t kReadBlindly = 4;
// Idle connections are read every 8th call.
constexpr std::uint32_t kCallsBetweenReads = 8;
// New connections are polled for every 32nd call.
constexpr std::uint32_t kCallsBetweenPolls = 32;
// After so many calls without a sleep, connections are taken out of the poller.
constexpr std::uint32_t kCallsUntilAwake = 1024;

struct TcpLink final : Link {
  explicit TcpLink(Connection* to) : connection(to) {}
  Connection* connection;  // null: to ourselves
};

Connection* connection_of(const Link& link) { return static_cast<const TcpLink&>(link).connection; }

Incoming& incoming_of(void* hold) { return *static_cast<Incoming*>(static_cast<Hold*>(hold)); }

// Moves both directions on. `is_read`: its socket is read whether it is known to be readable or not.
bool advance(Connection& connection, bool is_read) {
  const bool has_pushed = connection.push();
  if (!is_read && !connection.is_ready && !connection.input.has_leftover()) return has_pushed;
  return connection.pull() || has_pushed;
}

}  // namespace

Status TcpDriver::start(message::Worker& worker) {
  worker_ = &worker;
  greeter_.start(worker.instance());
  return {};
}

// -- progress -----------------------------------------------------------------------------------------------

void TcpDriver::poll_sockets(bool reads_blindly) {
  if (calls_ == kCallsUntilAwake && reads_blindly) {
    for (Connection* connection : open_) connection->ignore();
  } else if (!reads_blindly) {
    for (Connection* connection : open_) connection->watch();
  }
  if (greeter_.is_busy()) greeter_.check_deadlines();
  if (!reads_blindly || greeter_.is_busy() || calls_ % kCallsBetweenPolls == 0) poller_.poll();
}

bool TcpDriver::progress(Poll which) {
  const bool reads_blindly = open_.size() <= kReadBlindly;
  const std::size_t open_count = open_.size();
  ++calls_;
  poll_sockets(reads_blindly);
  bool has_moved = open_.size() != open_count;
  bool has_ended = false;
  const bool reads_all = which == Poll::all || calls_ % kCallsBetweenReads == 0;
  for (std::size_t i = 0; i < open_.size(); ++i) {
    Connection& connection = *open_[i];
    const bool is_read = reads_blindly && (reads_all || connection.is_awaited());
    if (advance(connection, is_read)) has_moved = true;
    if (connection.state() == Connection::State::ended) has_ended = true;
  }
  if (has_ended)
    std::erase_if(open_, [](const Connection* c) { return c->state() == Connection::State::ended; });
  return has_moved;
}

bool TcpDriver::arm() {
  calls_ = 0;
  for (Connection* connection : open_) {
    if (connection->state() == Connection::State::open && !connection->arm()) return false;
  }
  if (!poller_.has_news()) return true;
  calls_ = kCallsBetweenPolls - 1;  // the next one finds it
  return false;
}

// -- connections --------------------------------------------------------------------------------------------

Connection& TcpDriver::find_connection(std::uint64_t instance) {
  std::unique_ptr<Connection>& connection = connections_[instance];
  if (!connection)
    connection = std::make_unique<Connection>(*worker_, poller_, outgoings_, stores_, instance);
  return *connection;
}

bool TcpDriver::is_connected(std::uint64_t instance) const {
  const auto found = connections_.find(instance);
  return found != connections_.end() && found->second->state() != Connection::State::waiting;
}

void TcpDriver::on_connected(std::uint64_t instance, Socket socket, const WireSession& session) {
  Connection& connection = find_connection(instance);
  connection.open(std::move(socket), session);
  if (connection.state() == Connection::State::open) open_.push_back(&connection);
}

void TcpDriver::on_unreachable(std::uint64_t instance, const Status& why) {
  if (why.code() == StatusCode::resource_exhausted) worker_->find_peer(instance).note_trouble(why);
  find_connection(instance).end(why.message());
}

std::unique_ptr<Link> TcpDriver::connect(Peer& peer, std::span<const std::byte> address) {
  if (peer.instance() == worker_->instance()) return std::make_unique<TcpLink>(nullptr);
  Connection& connection = find_connection(peer.instance());
  if (connection.state() == Connection::State::waiting) {
    const Result<Address> theirs = parse_address(address);
    if (!theirs) {
      connection.end(theirs.status().message());
      return nullptr;
    }
    greeter_.call(peer.instance(), *theirs);
  }
  return std::make_unique<TcpLink>(&connection);
}

void TcpDriver::disconnect(std::unique_ptr<Link> link) {
  Connection* const connection = connection_of(*link);
  if (connection == nullptr) return;
  greeter_.forget(connection->peer());
  connection->end({});
}

// -- sending ------------------------------------------------------------------------------------------------

WireDriver::Sent TcpDriver::send(Link& link, SendOp& op) {
  Connection* const connection = connection_of(link);
  if (connection == nullptr) return send_to_self(op);
  if (connection->state() == Connection::State::ended) return Sent::failed;
  return connection->output.send(op);
}

WireDriver::Sent TcpDriver::send_to_self(const SendOp& op) {
  Arrival arrival;
  arrival.bytes = op.ranges.bytes();
  arrival.match_header = op.header.match_header;
  arrival.sequence = op.header.sequence;
  if (arrival.bytes == 0) {
    worker_->take_message(op.header, arrival);
    return Sent::done;
  }
  const ByteRange memory = worker_->bounces().take(arrival.bytes);
  if (memory.empty()) return Sent::failed;
  std::byte* to = memory.data();
  for (const iovec& item : op.ranges.items()) {
    std::memcpy(to, item.iov_base, item.iov_len);
    to += item.iov_len;
  }
  Incoming& incoming = *stores_.incomings.take();
  incoming.memory = memory;
  arrival.data = memory.data();
  arrival.hold = static_cast<Hold*>(&incoming);
  if (!worker_->take_message(op.header, arrival)) free_incoming(*worker_, stores_, incoming);
  return Sent::done;
}

void TcpDriver::notify(Link& link, const Notice& notice) {
  Connection* const connection = connection_of(link);
  if (connection == nullptr) {
    worker_->take_notice(notice);
  } else if (connection->state() != Connection::State::ended) {
    connection->output.put(to_frame(notice));
  }
}

void TcpDriver::flush(Link& link) {
  const Connection* const connection = connection_of(link);
  if (connection == nullptr) return;
  worker_->drain_patiently([connection] { return connection->output.is_empty(); });
}

// -- receiving ----------------------------------------------------------------------------------------------

void TcpDriver::release(void* hold) {
  auto* const held = static_cast<Hold*>(hold);
  if (held->kind == Hold::Kind::block) return stores_.blocks.release(static_cast<Block*>(held));
  Incoming& incoming = incoming_of(hold);
  if (incoming.connection != nullptr) return incoming.connection->input.release(incoming);
  free_incoming(*worker_, stores_, incoming);
}

void TcpDriver::fetch(RecvOp& op, void* hold) {
  Incoming& incoming = incoming_of(hold);
  op.work = &incoming;
  if (incoming.connection != nullptr) return incoming.connection->input.fetch(incoming, op);
  settle(*worker_, stores_, incoming, op);
}

void TcpDriver::pump(RecvOp& op) {
  Incoming& incoming = *static_cast<Incoming*>(op.work);
  if (incoming.connection != nullptr) return incoming.connection->input.pump(op);
  settle(*worker_, stores_, incoming, op);
}

// -- ending -------------------------------------------------------------------------------------------------

bool TcpDriver::cancel_send(SendOp& op) {
  static_cast<Outgoing*>(op.work)->output->cancel(op);
  return true;
}

bool TcpDriver::cancel_fetch(RecvOp& op) {
  Incoming& incoming = *static_cast<Incoming*>(op.work);
  if (incoming.connection != nullptr) {
    incoming.connection->input.cancel(incoming);
  } else {
    free_incoming(*worker_, stores_, incoming);
  }
  return true;
}

}  // namespace tutti::tcp
