// Progress, and looking after peers that may have vanished. Knows no message; see driver.hpp.
#include "transports/message/ofi/driver.hpp"

#include <rdma/fi_errno.h>

#include <algorithm>
#include <array>
#include <utility>

#include "transports/message/worker.hpp"

namespace tutti::ofi {

namespace {

constexpr std::size_t kCompletionsAtOnce = 32;
constexpr std::size_t kIdleCallsBetweenChecks = 256;
constexpr std::chrono::milliseconds kBetweenChecks{50};
// A dead peer is noticed by sending to it. With many peers one takes longer to come to.
constexpr std::chrono::milliseconds kBetweenPings{250};
constexpr std::size_t kPeersInFullPace = 64;
// How long a peer may take to accept a connection before its address is probed for the first time. Peers that
// compute accept late, and each probe takes a place in their queue: so the pauses grow.
constexpr std::chrono::milliseconds kFirstProbe{250};
constexpr std::chrono::seconds kLongestProbePause{60};
constexpr std::chrono::milliseconds kLongestRest{200};

}  // namespace

OfiDriver::OfiDriver(std::unique_ptr<Fabric> fabric)
    : fabric_(std::move(fabric)), packets_(*fabric_), own_address_(fabric_->address()) {
  constexpr std::size_t kUsualCount = 64;
  constexpr std::size_t kUsualHolds = 512;
  holds_.make_more(kUsualHolds);
  waiting_.reserve(kUsualCount);
  streams_.reserve(kUsualCount);
  early_.reserve(kUsualCount);
}

OfiDriver::~OfiDriver() {
  if (is_abandoned_) {
    fabric_->abandon();
    packets_.abandon();
  }
  fabric_.reset();  // before the packets that it may still write to
}

Status OfiDriver::start(message::Worker& worker) {
  worker_ = &worker;
  return post_receives() ? Status() : Status(StatusCode::resource_exhausted, "no memory for packets");
}

bool OfiDriver::progress(Poll) {
  std::array<fi_cq_msg_entry, kCompletionsAtOnce> entries;
  const ssize_t count = fi_cq_read(fabric_->queue(), entries.data(), entries.size());
  bool has_moved = true;
  if (count > 0) {
    on_completions(std::span(entries).first(static_cast<std::size_t>(count)));
  } else if (count == -FI_EAVAIL) {
    on_error();
  } else {
    has_moved = false;
  }
  if (!waiting_.empty()) {
    std::erase_if(waiting_, [&](Connection* connection) {
      has_moved = advance_waiting(*connection) || has_moved;
      connection->is_listed = !connection->waiting.empty();
      return !connection->is_listed;
    });
  }
  if (!streams_.empty()) has_moved = advance_streams() || has_moved;
  if (has_moved) {
    idle_calls_ = 0;
  } else if (++idle_calls_ % kIdleCallsBetweenChecks == 0) {
    check_peers();
  }
  return has_moved;
}

bool OfiDriver::arm() {
  check_peers();
  return fabric_->try_wait();
}

// libfabric does not report the death of a peer of a connectionless endpoint; only packets to it fail. Without a
// connection some providers try for ever to make one. Then the peer's address is probed.
void OfiDriver::check_peers() {
  const Clock::time_point now = Clock::now();
  if (now < next_check_) return;
  next_check_ = now + kBetweenChecks;
  const bool is_ping_due = now >= next_ping_;
  if (is_ping_due) {
    next_ping_ = now + kBetweenPings * std::max<std::size_t>(1, connections_.size() / kPeersInFullPace);
  }
  for (std::size_t i = 0; i < connections_.size(); ++i) {
    Connection& connection = *connections_[i];
    if (connection.is_given_up || connection.peer == nullptr || connection.peer->is_gone()) continue;
    if (connection.outstanding == 0 && connection.waiting.empty() && is_ping_due) {
      if (Packet* packet = make_packet(PacketHeader::Kind::ping)) post_or_wait(connection, packet);
    }
    if (connection.outstanding != 0 || connection.waiting.empty()) {
      connection.probe.stop();
      connection.probe_pause = kFirstProbe;
      connection.next_probe = now + kFirstProbe;
    } else if (connection.probe.is_running()) {
      if (connection.probe.poll() == Probe::Answer::dead) fail(connection, FI_ECONNREFUSED, "nobody listens");
    } else if (now >= connection.next_probe) {
      connection.probe.start(connection.raw_address);
      connection.probe_pause = std::min<Clock::duration>(2 * connection.probe_pause, kLongestProbePause);
      connection.next_probe = now + connection.probe_pause;
    }
  }
}

bool OfiDriver::finish() {
  const auto is_over = [this] {
    return std::all_of(connections_.begin(), connections_.end(), [](const auto& connection) {
      return connection->outstanding == 0 && connection->waiting.empty();
    });
  };
  worker_->drain(is_over, kLongestRest);
  return true;  // what libfabric still has are packets, which end with its endpoint
}

void OfiDriver::abandon() { is_abandoned_ = true; }

}  // namespace tutti::ofi
