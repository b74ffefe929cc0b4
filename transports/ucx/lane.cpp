// What arrives at a lane, and the lane's progress. Knows no matching; see lane.hpp.
#include "transports/ucx/lane.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "runtime/base/log.hpp"
#include "transports/ucx/endpoint.hpp"

namespace tutti::ucx {

namespace {

// How long a transport that ends waits for peers that compute and do not look. What was sent is in the
// network by then.
constexpr std::chrono::milliseconds kLongestFarewell{200};
constexpr std::chrono::milliseconds kLongestDisconnect{1000};
constexpr int kMostCallsToSettle = 1000;
constexpr std::size_t kUsualCount = 64;  // of lists that grow on the data path

void on_notice_sent(void* request, ucs_status_t, void* user_data) {
  auto* op = static_cast<SendOp*>(user_data);
  ucp_request_free(request);
  op->lane->sends().give_back(op);
}

}  // namespace

Lane::Lane(std::unique_ptr<Worker> worker, std::uint64_t instance)
    : worker_(std::move(worker)), instance_(instance), pid_(::getpid()) {
  for (std::vector<Inbox*>* list : {&listed_, &wanting_}) list->reserve(kUsualCount);
  lent_.reserve(kUsualCount);
}

Lane::~Lane() {
  if (!is_own_process()) {
    worker_->abandon();
    for (auto& [key, inbox] : inboxes_) static_cast<void>(inbox.release());  // their data is UCX's
    return;
  }
  is_ending_ = true;
  for (const auto& [key, inbox] : inboxes_) inbox->clear();
  for (void* data : lent_) worker_->release(data);
  say_goodbye();
  for (const auto& [id, peer] : peers_) peer->disconnect();
  const auto is_over = [this] {
    const bool is_disconnecting = std::any_of(
        peers_.begin(), peers_.end(), [](const auto& entry) { return entry.second->is_disconnecting(); });
    return !is_disconnecting && sends_.used_count() == 0 && recvs_.used_count() == 0;
  };
  if (!drain(is_over, kLongestDisconnect) || !flush_worker()) {
    log_info("ucx: UCX does not come to rest: the worker of a transport that ends is left as it is");
    worker_->abandon();
  }
  worker_.reset();  // while there is still what its callbacks refer to
}

void Lane::say_goodbye() {
  settle();
  std::vector<Peer*> awaited;
  for (const auto& [id, peer] : peers_) {
    if (id == instance_ || peer->endpoint() == nullptr || peer->is_gone()) continue;
    Notice notice;
    notice.kind = Notice::Kind::goodbye;
    notify(*peer, notice);
    awaited.push_back(peer.get());
  }
  const auto is_over = [&] {
    return std::all_of(awaited.begin(), awaited.end(),
                       [](const Peer* peer) { return peer->has_said_farewell || peer->is_gone(); });
  };
  drain(is_over, kLongestFarewell);
}

// Connections that peers have opened to us without our asking have endpoints, too, inside UCX. With an answer
// to such a peer still to be sent, destroying the worker aborts the process (an assertion, in UCX 1.13).
bool Lane::flush_worker() {
  ucp_request_param_t param{};
  const ucs_status_ptr_t flushing = ucp_worker_flush_nbx(worker_->handle(), &param);
  if (flushing == nullptr || UCS_PTR_IS_ERR(flushing)) return true;
  const auto is_over = [flushing] { return ucp_request_check_status(flushing) != UCS_INPROGRESS; };
  const bool is_flushed = drain(is_over, kLongestDisconnect);
  ucp_request_free(flushing);
  return is_flushed;
}

Status Lane::start() {
  TUTTI_RETURN_IF_ERROR(worker_->set_handler(kMessageAm, &on_message, this));
  TUTTI_RETURN_IF_ERROR(worker_->set_handler(kControlAm, &on_message, this));
  return worker_->set_handler(kNoticeAm, &on_notice, this);
}

bool Lane::is_own_process() const { return ::getpid() == pid_; }

Peer& Lane::find_peer(std::uint64_t instance) {
  std::unique_ptr<Peer>& peer = peers_[instance];
  if (!peer) peer = std::make_unique<Peer>(*this, instance);
  return *peer;
}

Inbox& Lane::find_inbox(std::uint64_t instance, std::uint64_t context) {
  std::unique_ptr<Inbox>& inbox = inboxes_[Key{instance, context}];
  if (!inbox) inbox = std::make_unique<Inbox>(*worker_, find_peer(instance), context);
  return *inbox;
}

// -- what arrives, from within ucp_worker_progress ----------------------------------------------------------

ucs_status_t Lane::on_message(void* lane, const void* header, std::size_t header_bytes, void* data,
                              std::size_t bytes, const ucp_am_recv_param_t* param) {
  auto* self = static_cast<Lane*>(lane);
  MessageHeader message;
  if (header_bytes != sizeof(message) || self->is_ending_) return UCS_OK;  // not kept: UCX drops it
  std::memcpy(&message, header, sizeof(message));
  if (message.channel > kControlChannel) return UCS_OK;
  Inbox& inbox = self->find_inbox(message.sender, message.context);
  inbox.count_message();
  self->list(inbox);
  if (inbox.is_closed_here) {
    inbox.owes_notice = !inbox.is_peer_told;
    return UCS_OK;
  }
  Arrival arrival;
  arrival.bytes = bytes;
  arrival.word = message.word;
  arrival.sequence = message.sequence;
  arrival.is_rendezvous = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
  const bool is_kept = arrival.is_rendezvous || bytes != 0;
  if (is_kept) arrival.data = data;
  inbox.add(message.channel, arrival);
  return is_kept ? UCS_INPROGRESS : UCS_OK;
}

ucs_status_t Lane::on_notice(void* lane, const void* header, std::size_t header_bytes, void*, std::size_t,
                             const ucp_am_recv_param_t* param) {
  Notice notice;
  if (header_bytes != sizeof(notice)) return UCS_OK;
  std::memcpy(&notice, header, sizeof(notice));
  const bool has_reply = (param->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP) != 0;
  static_cast<Lane*>(lane)->take_notice(notice, has_reply ? param->reply_ep : nullptr);
  return UCS_OK;
}

void Lane::take_notice(const Notice& notice, ucp_ep_h reply) {
  switch (notice.kind) {
    case Notice::Kind::hello: {
      Inbox& inbox = find_inbox(notice.sender, notice.context);
      if (!inbox.is_closed_here) return;
      inbox.owes_notice = true;
      list(inbox);
      return;
    }
    case Notice::Kind::closed: {
      Inbox& inbox = find_inbox(notice.sender, notice.context);
      inbox.close_by_peer(notice.message_count);
      list(inbox);
      return;
    }
    case Notice::Kind::goodbye: {
      Peer& peer = find_peer(notice.sender);
      peer.note_goodbye();
      Notice farewell;
      farewell.kind = Notice::Kind::farewell;
      if (reply != nullptr) answer(reply, farewell, 0);
      return;
    }
    case Notice::Kind::farewell:
      find_peer(notice.sender).has_said_farewell = true;
      return;
  }
}

void Lane::notify(Peer& peer, const Notice& notice) {
  ucp_ep_h endpoint = peer.connect();
  if (endpoint == nullptr) return;
  answer(endpoint, notice, notice.kind == Notice::Kind::goodbye ? UCP_AM_SEND_FLAG_REPLY : 0);
}

void Lane::answer(ucp_ep_h endpoint, const Notice& notice, std::uint32_t flags) {
  SendOp* op = sends_.take();
  op->lane = this;
  op->notice = notice;
  op->notice.sender = instance_;
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = UCP_AM_SEND_FLAG_EAGER | flags;
  param.cb.send = &on_notice_sent;
  param.user_data = op;
  const ucs_status_ptr_t sent =
      ucp_am_send_nbx(endpoint, kNoticeAm, &op->notice, sizeof(op->notice), nullptr, 0, &param);
  // An error is no news: whoever is not there any more needs no notice.
  if (sent == nullptr || UCS_PTR_IS_ERR(sent)) sends_.give_back(op);
}

// -- progress -----------------------------------------------------------------------------------------------

void Lane::list(Inbox& inbox) {
  if (std::exchange(inbox.is_listed, true)) return;
  listed_.push_back(&inbox);
}

void Lane::list_all_of(const Peer& peer) {
  for (const auto& [key, inbox] : inboxes_) {
    if (&inbox->peer == &peer) list(*inbox);
  }
}

void Lane::want_peer(Inbox& inbox) {
  if (std::exchange(inbox.wants_peer, true)) return;
  wanting_.push_back(&inbox);
}

// Only when nothing moves: what has come may say that there is nobody left to connect to.
void Lane::connect_wanted() {
  for (Inbox* inbox : wanting_) {
    inbox->wants_peer = false;
    if (inbox->endpoint == nullptr || inbox->peer.is_gone()) continue;
    if (std::exchange(inbox->has_said_hello, true)) continue;
    Notice notice;
    notice.kind = Notice::Kind::hello;
    notice.context = inbox->context;
    notify(inbox->peer, notice);
  }
  wanting_.clear();
}

void Lane::close_failed() {
  has_failed_peers_ = false;
  for (const auto& [id, peer] : peers_) {
    if (peer->has_failed()) peer->disconnect();
  }
}

// True if it is to be called again although nothing happens.
bool Lane::advance(Inbox& inbox, EventSink& out) {
  if (inbox.endpoint != nullptr) return inbox.endpoint->advance(out);
  if (inbox.is_closed_here && std::exchange(inbox.owes_notice, false)) {
    Notice notice;
    notice.kind = Notice::Kind::closed;
    notice.context = inbox.context;
    inbox.is_peer_told = true;
    notify(inbox.peer, notice);
  }
  return false;
}

std::size_t Lane::progress(std::span<Event> events) {
  for (void* data : lent_) worker_->release(data);
  lent_.clear();
  EventSink out(events, &waiting_);
  if (!out.can_push()) return out.count();
  const bool has_moved = worker_->progress();
  if (has_failed_peers_) close_failed();
  if (!has_moved && !wanting_.empty()) connect_wanted();
  const std::size_t count = listed_.size();  // what is listed meanwhile waits for the next call
  for (std::size_t i = 0; i < count; ++i) {
    Inbox& inbox = *listed_[i];
    inbox.is_listed = false;
    if (advance(inbox, out)) list(inbox);
    // Both sides have closed: nothing will ever be said of this context again.
    if (inbox.is_closed_here && inbox.is_ended() && !inbox.wants_peer && !inbox.is_listed) {
      inboxes_.erase(Key{inbox.peer.instance(), inbox.context});
    }
  }
  listed_.erase(listed_.begin(), listed_.begin() + static_cast<std::ptrdiff_t>(count));
  return out.count();
}

bool Lane::arm() {
  if (!waiting_.empty() || !listed_.empty() || !wanting_.empty() || has_failed_peers_) return false;
  return worker_->arm();
}

void Lane::settle() {
  for (int i = 0; i < kMostCallsToSettle && worker_->progress(); ++i) {
  }
}

bool Lane::drain(const std::function<bool()>& condition, std::chrono::milliseconds at_most) {
  const auto until = std::chrono::steady_clock::now() + at_most;
  while (!condition()) {
    if (has_failed_peers_) close_failed();
    if (worker_->progress()) continue;
    if (std::chrono::steady_clock::now() > until) return false;
    ::sched_yield();
  }
  return true;
}

}  // namespace tutti::ucx
