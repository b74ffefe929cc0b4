// Sending and closing. Knows no matching, which is in receive.cpp; see endpoint.hpp.
#include "transports/ucx/endpoint.hpp"

#include <chrono>
#include <cstring>
#include <utility>

#include "runtime/base/log.hpp"
#include "transports/ucx/lane.hpp"

namespace tutti::ucx {

namespace {

// How long close() waits for a peer that is in the middle of fetching from us, or of sending to us, before
// the connection to it is cut.
constexpr std::chrono::milliseconds kLongestTransfer{500};
constexpr std::chrono::milliseconds kLongestFence{500};
constexpr std::chrono::milliseconds kLongestCut{1000};

void on_sent_by_ucx(void* request, ucs_status_t status, void* user_data) {
  auto* op = static_cast<SendOp*>(user_data);
  ucp_request_free(request);
  if (op->endpoint != nullptr) op->endpoint->on_sent(*op, status == UCS_OK);
  op->lane->sends().give_back(op);
}

}  // namespace

UcxEndpoint::UcxEndpoint(Lane& lane, Inbox& inbox) : lane_(lane), inbox_(inbox) {
  constexpr std::size_t kUsualCount = 64;
  sends_.reserve(kUsualCount);
  fetching_.reserve(kUsualCount);
  inbox_.endpoint = this;
  lane_.list(inbox_);  // control messages may be there
}

UcxEndpoint::~UcxEndpoint() {
  close(false);
  Fifo<Event>& waiting = lane_.waiting();
  for (std::size_t i = 0; i < waiting.count(); ++i) {
    if (waiting[i].endpoint == this) waiting[i].endpoint = nullptr;
  }
}

Event UcxEndpoint::event_of(Event::Kind kind, Token token) {
  Event event;
  event.kind = kind;
  event.token = token;
  event.endpoint = this;
  return event;
}

Post UcxEndpoint::post_failed(Token token) {
  lane_.waiting().push_back(event_of(Event::Kind::failed, token));
  return Post::pending;
}

bool UcxEndpoint::is_peer_lost() const { return inbox_.peer.is_gone() || inbox_.is_closed_by_peer(); }

// -- sending ------------------------------------------------------------------------------------------------

Post UcxEndpoint::send(std::uint32_t channel, std::uint64_t word, std::span<const ConstByteRange> ranges,
                       Token token) {
  TUTTI_ASSERT(channel < kChannels, "no such channel");
  if (is_closed_ || is_peer_lost()) return post_failed(token);
  if (sends_.size() >= kMaxSends) return Post::again;
  SendOp* op = lane_.sends().take();
  op->is_message = true;
  op->token = token;
  op->header.channel = channel;
  op->header.word = word;
  op->ranges.assign(ranges);
  return submit(op, kMessageAm);
}

Post UcxEndpoint::control(ConstByteRange bytes) {
  TUTTI_ASSERT(bytes.size() <= kControlBytes, "control messages have at most 256 bytes");
  if (is_closed_ || is_peer_lost()) return Post::done;  // nobody is there to read it
  if (sends_.size() >= kMaxSends) return Post::again;
  SendOp* op = lane_.sends().take();
  op->is_message = false;
  op->header.channel = kControlChannel;
  op->header.word = 0;
  if (!bytes.empty()) std::memcpy(op->bytes.data(), bytes.data(), bytes.size());
  const ConstByteRange copy = ConstByteRange(op->bytes).first(bytes.size());
  op->ranges.assign(std::span<const ConstByteRange>(&copy, 1));
  submit(op, kControlAm);
  return Post::done;
}

Post UcxEndpoint::submit(SendOp* op, unsigned id) {
  ucp_ep_h peer = inbox_.peer.connect();
  op->lane = &lane_;
  op->endpoint = this;
  op->header.sender = lane_.instance();
  op->header.context = inbox_.context;
  op->header.sequence = next_sequence_[op->header.channel];
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.cb.send = &on_sent_by_ucx;
  param.user_data = op;
  std::size_t count = 0;
  const void* from = op->ranges.fill(&param, &count);
  const ucs_status_ptr_t sent =
      peer == nullptr ? UCS_STATUS_PTR(UCS_ERR_NOT_CONNECTED)
                      : ucp_am_send_nbx(peer, id, &op->header, sizeof(op->header), from, count, &param);
  if (UCS_PTR_IS_ERR(sent)) {
    const bool is_message = op->is_message;
    const Token token = op->token;
    lane_.sends().give_back(op);
    inbox_.peer.note_failure(UCS_PTR_STATUS(sent));
    return is_message ? post_failed(token) : Post::done;
  }
  ++next_sequence_[op->header.channel];
  ++message_count_;
  inbox_.has_said_hello = true;
  if (sent == nullptr) {
    lane_.sends().give_back(op);
    return Post::done;
  }
  op->index = sends_.size();
  sends_.push_back(op);
  return Post::pending;
}

void UcxEndpoint::on_sent(SendOp& op, bool is_ok) {
  SendOp* const last = sends_.back();
  sends_[op.index] = last;
  last->index = op.index;
  sends_.pop_back();
  if (is_closed_ || !op.is_message) return;
  // A message that the peer has dropped, because it has closed, is `sent` as well: UCX cannot tell, and its
  // news of the end of a send may come after the peer's that it has closed.
  lane_.waiting().push_back(event_of(is_ok ? Event::Kind::sent : Event::Kind::failed, op.token));
}

// -- refused ------------------------------------------------------------------------------------------------

Result<Post> UcxEndpoint::rma(std::uint32_t, const RmaRequest&, Token) {
  return unsupported("this transport has no rma yet");
}

PeerWindow UcxEndpoint::window(std::uint32_t) {
  PeerWindow none;
  none.is_gone = is_closed_ || is_peer_lost();
  return none;
}

// -- closing ------------------------------------------------------------------------------------------------

void UcxEndpoint::close(bool fence) {
  if (is_closed_) return;
  const bool is_own_process = lane_.is_own_process();
  // What the peer has said is read before it is written to: if it has ended, writing would cut off the rest.
  if (is_own_process) lane_.settle();
  is_closed_ = true;  // from here on what UCX completes is no event any more
  inbox_.endpoint = nullptr;
  inbox_.is_closed_here = true;
  if (!is_own_process) return;
  fail_all();
  inbox_.clear();  // senders of what nobody will fetch are told so
  lane_.list(inbox_);
  Peer& peer = inbox_.peer;
  if (peer.endpoint() != nullptr && !peer.is_gone()) {
    Notice notice;
    notice.kind = Notice::Kind::closed;
    notice.context = inbox_.context;
    notice.message_count = message_count_;
    inbox_.is_peer_told = true;
    lane_.notify(peer, notice);
    if (fence) flush();
  }
  stop_transfers();
}

// What was sent and completed leaves this process.
void UcxEndpoint::flush() {
  ucp_request_param_t param{};
  const ucs_status_ptr_t flushing = ucp_ep_flush_nbx(inbox_.peer.endpoint(), &param);
  if (flushing == nullptr || UCS_PTR_IS_ERR(flushing)) return;
  lane_.drain([flushing] { return ucp_request_check_status(flushing) != UCS_INPROGRESS; }, kLongestFence);
  ucp_request_free(flushing);
}

void UcxEndpoint::fail_all() {
  EventSink later({}, &lane_.waiting());
  for (std::unique_ptr<Channel>& c : channels_) {
    if (!c) continue;
    for (; !c->recvs.empty(); c->recvs.pop_front()) {
      RecvOp* op = c->recvs.front();
      const bool is_received = op->state == RecvOp::State::received;
      later.push(event_of(is_received ? Event::Kind::received : Event::Kind::failed, op->token));
      // What UCX is fetching is given back by on_fetched.
      if (op->state != RecvOp::State::moving) give_back(op);
    }
    c->matched_count = 0;
  }
  for (const SendOp* op : sends_) {
    if (op->is_message) later.push(event_of(Event::Kind::failed, op->token));
  }
  pending_recvs_ = 0;
}

// Afterwards UCX touches no buffer of ours. There is no way to cancel an active message: the peer is told
// that we have closed, which ends what it has not begun to fetch, and what it has begun is let finish; if it
// does neither, the connection is cut, for all contexts.
void UcxEndpoint::stop_transfers() {
  const auto is_over = [this] { return sends_.empty() && fetching_.empty(); };
  if (lane_.drain(is_over, kLongestTransfer)) return;
  log_info("ucx: a peer does not answer while an endpoint closes: the connection to it is cut");
  inbox_.peer.note_failure(UCS_ERR_ENDPOINT_TIMEOUT);
  if (lane_.drain(is_over, kLongestCut)) return;
  log_warn("ucx: UCX has not given back {} buffers of a closed endpoint", sends_.size() + fetching_.size());
  for (SendOp* op : sends_) op->endpoint = nullptr;
  for (RecvOp* op : fetching_) op->endpoint = nullptr;
}

}  // namespace tutti::ucx
