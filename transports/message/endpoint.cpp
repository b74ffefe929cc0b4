// Sending and closing. Knows no matching, which is in receive.cpp; see endpoint.hpp.
#include "transports/message/endpoint.hpp"

#include <cstring>
#include <utility>

#include "runtime/base/log.hpp"
#include "transports/message/worker.hpp"

namespace tutti::message {

MessageEndpoint::MessageEndpoint(Worker& worker, Inbox& inbox) : worker_(worker), inbox_(inbox) {
  inbox_.endpoint = this;
  worker_.list(inbox_);  // control messages may be there
}

MessageEndpoint::~MessageEndpoint() {
  close(false);
  Fifo<Event>& waiting = worker_.waiting();
  for (std::size_t i = 0; i < waiting.count(); ++i) {
    if (waiting[i].endpoint == this) waiting[i].endpoint = nullptr;
  }
}

Event MessageEndpoint::event_of(Event::Kind kind, RequestId request) {
  Event event;
  event.kind = kind;
  event.request = request;
  event.endpoint = this;
  return event;
}

Post MessageEndpoint::post_failed(RequestId request) {
  worker_.waiting().push_back(event_of(Event::Kind::failed, request));
  return Post::pending;
}

// The worker frees the inbox of an endpoint that is closed here and at the peer.
Status MessageEndpoint::trouble() const { return is_closed_ ? Status() : inbox_.peer.trouble(); }

bool MessageEndpoint::is_peer_lost() const { return inbox_.peer.is_gone() || inbox_.is_closed_by_peer(); }

// -- sending ------------------------------------------------------------------------------------------------

Post MessageEndpoint::send(std::uint32_t channel, std::uint64_t match_header,
                           std::span<const ConstByteRange> ranges, RequestId request) {
  TUTTI_ASSERT(channel < kChannels, "no such channel");
  if (is_closed_ || is_peer_lost()) return post_failed(request);
  if (sends_.count() >= kMaxSends) return Post::again;
  SendOp* op = worker_.sends().take();
  op->is_message = true;
  op->request = request;
  op->header.channel = channel;
  op->header.match_header = match_header;
  op->ranges.assign(ranges);
  return submit(op);
}

Post MessageEndpoint::control(ConstByteRange bytes) {
  TUTTI_ASSERT(bytes.size() <= kControlBytes, "control messages have at most 256 bytes");
  if (is_closed_ || is_peer_lost()) return Post::done;  // nobody is there to read it
  if (sends_.count() >= kMaxSends) return Post::again;
  SendOp* op = worker_.sends().take();
  op->is_message = false;
  op->header.channel = kControlChannel;
  op->header.match_header = 0;
  if (!bytes.empty()) std::memcpy(op->bytes.data(), bytes.data(), bytes.size());
  const ConstByteRange copy = ConstByteRange(op->bytes).first(bytes.size());
  op->ranges.assign(std::span<const ConstByteRange>(&copy, 1));
  submit(op);
  return Post::done;
}

Post MessageEndpoint::submit(SendOp* op) {
  Link* link = inbox_.peer.connect();
  op->endpoint = this;
  op->header.sender = worker_.instance();
  op->header.context = inbox_.context;
  op->header.sequence = next_sequence_[op->header.channel];
  const WireDriver::Sent sent =
      link == nullptr ? WireDriver::Sent::failed : worker_.driver().send(*link, *op);
  if (sent == WireDriver::Sent::failed) {
    const bool is_message = op->is_message;
    const RequestId request = op->request;
    worker_.sends().give_back(op);
    return is_message ? post_failed(request) : Post::done;
  }
  ++next_sequence_[op->header.channel];
  ++message_count_;
  inbox_.has_said_hello = true;
  if (sent == WireDriver::Sent::done) {
    worker_.sends().give_back(op);
    return Post::done;
  }
  sends_.add(op);
  return Post::pending;
}

void MessageEndpoint::on_sent(SendOp& op, bool is_ok) {
  sends_.remove(&op);
  if (is_closed_ || !op.is_message) return;
  // A message that the peer has dropped, because it has closed, may be `sent` as well. A driver need not be able to
  // tell, and may report the end of a send after the peer's close.
  worker_.waiting().push_back(event_of(is_ok ? Event::Kind::sent : Event::Kind::failed, op.request));
}

// The peer has closed or ended: nobody will ask for what it has not taken.
void MessageEndpoint::cancel_sends() {
  sends_.each([&](SendOp* op) {
    if (!worker_.driver().cancel_send(*op)) return;
    sends_.remove(op);
    if (op->is_message) worker_.waiting().push_back(event_of(Event::Kind::failed, op->request));
    worker_.sends().give_back(op);
  });
}

// -- closing ------------------------------------------------------------------------------------------------

void MessageEndpoint::close(bool fence) {
  if (is_closed_) return;
  const bool is_own_process = worker_.is_own_process();
  // Read before writing: if the peer has ended, a write would reset the connection and lose unread messages.
  if (is_own_process) worker_.settle();
  is_closed_ = true;  // from here on what the driver completes is no event any more
  inbox_.endpoint = nullptr;
  inbox_.is_closed_here = true;
  if (!is_own_process) return;
  fail_all();
  inbox_.clear();  // senders of what nobody will fetch are told so
  worker_.list(inbox_);
  Peer& peer = inbox_.peer;
  if (Link* link = peer.link(); link != nullptr && !peer.is_gone()) {
    Notice notice;
    notice.kind = Notice::Kind::context_closed;
    notice.context = inbox_.context;
    notice.message_count = message_count_;
    inbox_.is_peer_told = true;
    worker_.notify(peer, notice);
    if (fence && message_count_ != 0) worker_.driver().flush(*link);
  }
  stop_transfers();
}

void MessageEndpoint::fail_all() {
  EventSink later({}, &worker_.waiting());
  for (std::unique_ptr<Channel>& c : channels_) {
    if (!c) continue;
    for (; !c->recvs.empty(); c->recvs.pop_front()) {
      RecvOp* op = c->recvs.front();
      const bool is_received = op->state == RecvOp::State::received;
      later.push(event_of(is_received ? Event::Kind::received : Event::Kind::failed, op->request));
      // Fetches under way are given back by stop_transfers().
      if (op->state != RecvOp::State::moving) worker_.give_back(*op);
    }
    c->matched_count = 0;
  }
  sends_.each([&](const SendOp* op) {
    if (op->is_message) later.push(event_of(Event::Kind::failed, op->request));
  });
  set_pending_recvs(0);
}

// Afterwards the driver touches no buffer of ours. Some drivers cannot cancel transfers under way. The peer knows
// that we have closed: it drops what it has not begun to fetch, and finishes the rest. If it does neither, the
// connection is cut, for all contexts.
void MessageEndpoint::stop_transfers() {
  WireDriver& driver = worker_.driver();
  sends_.each([&](SendOp* op) {
    if (!driver.cancel_send(*op)) return;
    sends_.remove(op);
    worker_.sends().give_back(op);
  });
  fetching_.each([&](RecvOp* op) {
    if (!driver.cancel_fetch(*op)) return;
    fetching_.remove(op);
    worker_.give_back(*op);
  });
  const auto is_over = [this] { return sends_.empty() && fetching_.empty(); };
  if (worker_.drain_patiently(is_over)) return;
  log_info("{}: a peer does not answer while an endpoint closes: the connection to it is cut",
           worker_.name());
  inbox_.peer.note_failure("it does not answer while an endpoint closes");
  if (worker_.drain_patiently(is_over)) return;
  log_warn("{}: {} buffers of a closed endpoint are not given back", worker_.name(),
           sends_.count() + fetching_.count());
  sends_.each([](SendOp* op) { op->endpoint = nullptr; });
  fetching_.each([](RecvOp* op) { op->endpoint = nullptr; });
}

}  // namespace tutti::message
