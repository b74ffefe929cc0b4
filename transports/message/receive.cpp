// The receiving half of an endpoint: matching, checking, fetching, and completing in order.
// Knows no sending; see endpoint.hpp.
#include <algorithm>
#include <cstring>

#include "transports/message/endpoint.hpp"
#include "transports/message/worker.hpp"

namespace tutti::message {

Post MessageEndpoint::recv(std::uint32_t channel, std::uint64_t expected_header, const Sink& sink,
                           RequestId request) {
  TUTTI_ASSERT(channel < kChannels, "no such channel");
  if (is_closed_) return post_failed(request);
  if (sink.only_polls) return poll(channel, request);
  std::unique_ptr<Channel>& c = channels_[channel];
  if (!c) c = std::make_unique<Channel>();
  RecvOp* op = worker_.recvs().take();
  op->state = RecvOp::State::posted;
  op->endpoint = this;
  op->request = request;
  op->match_header = expected_header;
  op->bytes = sink.total_bytes;
  op->sink = sink;
  c->recvs.push_back(op);
  match(channel);
  if (c->recvs.count() == 1 && op->state == RecvOp::State::received) {
    c->recvs.pop_front();
    c->matched_count = 0;
    worker_.give_back(*op);
    return Post::done;
  }
  set_pending_recvs(pending_recvs_ | std::uint64_t{1} << channel);
  if (op->state != RecvOp::State::posted || inbox_.is_ended()) {
    worker_.list(inbox_);
  } else if (!inbox_.has_said_hello) {
    worker_.want_peer(inbox_);
  }
  return Post::pending;
}

Post MessageEndpoint::poll(std::uint32_t channel, RequestId request) {
  const Channel* c = channels_[channel].get();
  if (inbox_.has_next(channel) && (c == nullptr || !c->is_over)) return Post::done;
  if (inbox_.is_ended()) return post_failed(request);
  if (!inbox_.has_said_hello) worker_.want_peer(inbox_);  // else nobody would hear of the peer's end
  return Post::again;
}

void MessageEndpoint::set_pending_recvs(std::uint64_t channels) {
  if (pending_recvs_ == 0 && channels != 0) ++inbox_.peer.awaited_count;
  if (pending_recvs_ != 0 && channels == 0) --inbox_.peer.awaited_count;
  pending_recvs_ = channels;
}

void MessageEndpoint::match(std::uint32_t index) {
  Channel& c = *channels_[index];
  Arrival arrival;
  while (!c.is_over && c.matched_count < c.recvs.count() && inbox_.take(index, &arrival)) {
    begin(*c.recvs[c.matched_count++], arrival);
  }
}

void MessageEndpoint::begin(RecvOp& op, const Arrival& arrival) {
  const auto release = [&] {
    if (arrival.hold != nullptr && !arrival.is_lost) worker_.driver().release(arrival.hold);
  };
  if (arrival.match_header != op.match_header || arrival.bytes != op.sink.total_bytes) {
    op.state = RecvOp::State::mismatch;
    op.match_header = arrival.match_header;
    op.bytes = arrival.bytes;
    release();
  } else if (arrival.is_lost || (arrival.is_remote && !arrival.is_coming && inbox_.peer.is_gone())) {
    op.state = RecvOp::State::failed;
    release();
  } else if (arrival.is_remote) {
    fetch(op, arrival);
  } else {
    put(op, {arrival.data, arrival.bytes});
    op.state = RecvOp::State::received;
    release();
  }
}

// Hands all bytes of a message to its sink.
void MessageEndpoint::put(const RecvOp& op, ConstByteRange data) {
  if (data.empty()) return;
  if (op.sink.deliver != nullptr) {
    op.sink.deliver(op.sink.context, 0, data);
    return;
  }
  for (const ByteRange range : op.sink.ranges) {
    const std::size_t bytes = std::min(range.size(), data.size());
    if (bytes != 0) std::memcpy(range.data(), data.data(), bytes);
    data = data.subspan(bytes);
  }
}

// A message that is still at its sender.
void MessageEndpoint::fetch(RecvOp& op, const Arrival& arrival) {
  WireDriver& driver = worker_.driver();
  inbox_.peer.connect();  // else nobody would hear of the sender's death
  if (op.sink.deliver != nullptr && worker_.fetch() == Fetch::whole) {
    op.bounce = worker_.bounces().take(arrival.bytes);
    if (op.bounce.empty()) {
      driver.release(arrival.hold);
      op.state = RecvOp::State::failed;
      return;
    }
  } else {
    op.ranges.assign(op.sink.ranges);
  }
  fetching_.add(&op);
  op.state = RecvOp::State::moving;
  driver.fetch(op, arrival.hold);
}

// Often from within the driver's progress, where nothing may be delivered.
void MessageEndpoint::on_fetched(RecvOp& op, bool is_ok) {
  fetching_.remove(&op);
  if (is_closed_) {
    worker_.give_back(op);
    return;
  }
  op.state = !is_ok               ? RecvOp::State::failed
             : !op.bounce.empty() ? RecvOp::State::fetched
                                  : RecvOp::State::received;
  worker_.list(inbox_);
}

// Completes from the front. True if only the room for events is missing.
bool MessageEndpoint::complete(Channel& c, EventSink& out) {
  while (!c.recvs.empty()) {
    RecvOp* op = c.recvs.front();
    if (op->state == RecvOp::State::posted || op->state == RecvOp::State::moving) return false;
    if (!out.can_push()) return true;
    Event event = event_of(Event::Kind::received, op->request);
    if (op->state == RecvOp::State::fetched) put(*op, ConstByteRange(op->bounce).first(op->bytes));
    if (op->state == RecvOp::State::failed) event.kind = Event::Kind::failed;
    if (op->state == RecvOp::State::mismatch) {
      event.kind = Event::Kind::mismatch;
      event.match_header = op->match_header;
      event.bytes = op->bytes;
    }
    c.recvs.pop_front();
    c.matched_count -= c.matched_count == 0 ? 0 : 1;
    worker_.give_back(*op);
    out.push(event);
  }
  return false;
}

// Fetches of one channel complete in any order.
void MessageEndpoint::pump(Channel& c) {
  if (worker_.fetch() != Fetch::piecewise) return;
  for (std::size_t i = 0; i < c.matched_count; ++i) {
    if (c.recvs[i]->state == RecvOp::State::moving) worker_.driver().pump(*c.recvs[i]);
  }
}

// The peer has closed or ended, and all that has come was pumped: the rest will not come.
void MessageEndpoint::cancel_fetches(Channel& c) {
  for (std::size_t i = 0; i < c.matched_count; ++i) {
    RecvOp& op = *c.recvs[i];
    if (op.state != RecvOp::State::moving || !worker_.driver().cancel_fetch(op)) continue;
    fetching_.remove(&op);
    op.state = RecvOp::State::failed;
  }
}

bool MessageEndpoint::hand_out_controls(EventSink& out) {
  Arrival arrival;
  // Their data is lent until the next progress(): only what the caller takes now.
  while (out.has_room() && worker_.waiting().empty()) {
    if (!inbox_.take(kControlChannel, &arrival)) return false;
    if (arrival.is_lost || arrival.is_remote) {
      if (!arrival.is_lost) worker_.driver().release(arrival.hold);
      continue;
    }
    Event event = event_of(Event::Kind::control, 0);
    event.data = {arrival.data, arrival.bytes};
    if (arrival.hold != nullptr) worker_.lend(arrival.hold);
    out.push(event);
  }
  return true;
}

bool MessageEndpoint::advance(EventSink& out) {
  bool is_short_of_room = hand_out_controls(out);
  if (is_peer_lost() && !sends_.empty()) cancel_sends();
  for (std::uint64_t bits = pending_recvs_; bits != 0; bits &= bits - 1) {
    const auto index = static_cast<std::uint32_t>(__builtin_ctzll(bits));
    Channel& c = *channels_[index];
    match(index);
    pump(c);
    if (is_peer_lost()) cancel_fetches(c);
    if (inbox_.is_ended()) {
      for (std::size_t i = c.matched_count; i < c.recvs.count(); ++i) {
        c.recvs[i]->state = RecvOp::State::failed;
        c.is_over = true;
      }
    }
    is_short_of_room = complete(c, out) || is_short_of_room;
    if (c.recvs.empty()) set_pending_recvs(pending_recvs_ & ~(std::uint64_t{1} << index));
  }
  return is_short_of_room;
}

}  // namespace tutti::message
