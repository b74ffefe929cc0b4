// The receiving half of an endpoint: matching, checking, fetching, and completing in order.
// Knows no sending; see endpoint.hpp.
#include <algorithm>
#include <cstring>

#include "transports/ucx/endpoint.hpp"
#include "transports/ucx/lane.hpp"

namespace tutti::ucx {

namespace {

void give_back_to(Lane& lane, RecvOp* op) {
  lane.bounces().give_back(op->bounce);
  op->bounce = {};
  lane.recvs().give_back(op);
}

void on_fetched_by_ucx(void* request, ucs_status_t status, std::size_t bytes, void* user_data) {
  auto* op = static_cast<RecvOp*>(user_data);
  ucp_request_free(request);
  if (op->endpoint != nullptr) {
    op->endpoint->on_fetched(*op, status == UCS_OK && bytes == op->bytes);
  } else {
    give_back_to(*op->lane, op);
  }
}

}  // namespace

Post UcxEndpoint::recv(std::uint32_t channel, std::uint64_t expected_word, const Sink& sink, Token token) {
  TUTTI_ASSERT(channel < kChannels, "no such channel");
  if (is_closed_) return post_failed(token);
  std::unique_ptr<Channel>& c = channels_[channel];
  if (!c) c = std::make_unique<Channel>();
  RecvOp* op = lane_.recvs().take();
  op->state = RecvOp::State::posted;
  op->lane = &lane_;
  op->endpoint = this;
  op->token = token;
  op->word = expected_word;
  op->bytes = sink.total_bytes;
  op->sink = sink;
  c->recvs.push_back(op);
  match(channel);
  if (c->recvs.count() == 1 && op->state == RecvOp::State::received) {
    c->recvs.pop_front();
    c->matched_count = 0;
    give_back(op);
    return Post::done;
  }
  pending_recvs_ |= std::uint64_t{1} << channel;
  if (op->state != RecvOp::State::posted || inbox_.is_ended()) {
    lane_.list(inbox_);
  } else if (!inbox_.has_said_hello) {
    lane_.want_peer(inbox_);
  }
  return Post::pending;
}

void UcxEndpoint::match(std::uint32_t index) {
  Channel& c = *channels_[index];
  Arrival arrival;
  while (c.matched_count < c.recvs.count() && inbox_.take(index, &arrival)) {
    begin(*c.recvs[c.matched_count++], arrival);
  }
}

void UcxEndpoint::begin(RecvOp& op, const Arrival& arrival) {
  const bool has_data = arrival.data != nullptr && !arrival.is_lost;
  if (arrival.word != op.word || arrival.bytes != op.sink.total_bytes) {
    op.state = RecvOp::State::mismatch;
    op.word = arrival.word;
    op.bytes = arrival.bytes;
    if (has_data) lane_.worker().release(arrival.data);
    return;
  }
  if (arrival.is_lost) {
    op.state = RecvOp::State::failed;
    return;
  }
  if (arrival.is_rendezvous && !inbox_.peer.is_gone()) {
    fetch(op, arrival);
    return;
  }
  if (arrival.is_rendezvous) {
    lane_.worker().release(arrival.data);
    op.state = RecvOp::State::failed;
    return;
  }
  put(op, {static_cast<const std::byte*>(arrival.data), arrival.bytes});
  if (has_data) lane_.worker().release(arrival.data);
  op.state = RecvOp::State::received;
}

// Hands all bytes of a message to its sink.
void UcxEndpoint::put(const RecvOp& op, ConstByteRange data) {
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
void UcxEndpoint::fetch(RecvOp& op, const Arrival& arrival) {
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.cb.recv_am = &on_fetched_by_ucx;
  param.user_data = &op;
  inbox_.peer.connect();  // else nobody would hear of the sender's death
  std::size_t count = 0;
  void* to = nullptr;
  if (op.sink.deliver != nullptr) {
    op.bounce = lane_.bounces().take(arrival.bytes);
    to = op.bounce.data();
    count = arrival.bytes;
  } else {
    op.ranges.assign(op.sink.ranges);
    to = op.ranges.fill(&param, &count);
  }
  if (to == nullptr) {
    lane_.worker().release(arrival.data);
    op.state = RecvOp::State::failed;
    return;
  }
  fetching_.push_back(&op);
  op.state = RecvOp::State::moving;
  const ucs_status_ptr_t fetching =
      ucp_am_recv_data_nbx(lane_.worker().handle(), arrival.data, to, count, &param);
  if (fetching == nullptr || UCS_PTR_IS_ERR(fetching)) on_fetched(op, fetching == nullptr);
}

// From within ucp_worker_progress, where nothing may be delivered.
void UcxEndpoint::on_fetched(RecvOp& op, bool is_ok) {
  std::erase(fetching_, &op);
  if (is_closed_) {
    give_back(&op);
    return;
  }
  op.state = !is_ok                       ? RecvOp::State::failed
             : op.sink.deliver != nullptr ? RecvOp::State::fetched
                                          : RecvOp::State::received;
  lane_.list(inbox_);
}

void UcxEndpoint::give_back(RecvOp* op) { give_back_to(lane_, op); }

// Completes from the front. True if only the room for events is missing.
bool UcxEndpoint::complete(Channel& c, EventSink& out) {
  while (!c.recvs.empty()) {
    RecvOp* op = c.recvs.front();
    if (op->state == RecvOp::State::posted || op->state == RecvOp::State::moving) return false;
    if (!out.can_push()) return true;
    Event event = event_of(Event::Kind::received, op->token);
    if (op->state == RecvOp::State::fetched) put(*op, ConstByteRange(op->bounce).first(op->bytes));
    if (op->state == RecvOp::State::failed) event.kind = Event::Kind::failed;
    if (op->state == RecvOp::State::mismatch) {
      event.kind = Event::Kind::mismatch;
      event.word = op->word;
      event.bytes = op->bytes;
    }
    c.recvs.pop_front();
    c.matched_count -= c.matched_count == 0 ? 0 : 1;
    give_back(op);
    out.push(event);
  }
  return false;
}

bool UcxEndpoint::hand_out_controls(EventSink& out) {
  Arrival arrival;
  // Their data is lent until the next progress(): only what the caller takes now.
  while (out.has_room() && lane_.waiting().empty()) {
    if (!inbox_.take(kControlChannel, &arrival)) return false;
    if (arrival.is_lost || arrival.is_rendezvous) {
      if (!arrival.is_lost) lane_.worker().release(arrival.data);
      continue;
    }
    Event event = event_of(Event::Kind::control, 0);
    event.data = {static_cast<const std::byte*>(arrival.data), arrival.bytes};
    if (arrival.data != nullptr) lane_.lend(arrival.data);
    out.push(event);
  }
  return true;
}

bool UcxEndpoint::advance(EventSink& out) {
  bool is_short_of_room = hand_out_controls(out);
  for (std::uint64_t bits = pending_recvs_; bits != 0; bits &= bits - 1) {
    const auto index = static_cast<std::uint32_t>(__builtin_ctzll(bits));
    Channel& c = *channels_[index];
    match(index);
    if (inbox_.is_ended()) {
      for (std::size_t i = c.matched_count; i < c.recvs.count(); ++i) {
        c.recvs[i]->state = RecvOp::State::failed;
      }
    }
    is_short_of_room = complete(c, out) || is_short_of_room;
    if (c.recvs.empty()) pending_recvs_ &= ~(std::uint64_t{1} << index);
  }
  return is_short_of_room;
}

}  // namespace tutti::ucx
