// Arrivals at a worker, and its progress. Knows no matching; see worker.hpp.
#include "transports/message/worker.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "runtime/base/log.hpp"
#include "transports/message/endpoint.hpp"

namespace tutti::message {

namespace {

// Bound on the close handshake with peers that compute and do not poll. All sends are in the network by then.
constexpr std::chrono::milliseconds kLongestCloseHandshake{200};
constexpr std::chrono::milliseconds kLongestCompletion{1000};  // of operations that disconnecting has failed
// How long the first endpoint that closes waits for a peer's transfer while nothing moves. While something moves it
// waits kPatienceWhileMoving times as long: on a busy machine a slow transfer is not stuck.
constexpr std::chrono::milliseconds kMostPatience{500};
constexpr int kPatienceWhileMoving = 20;
constexpr int kMostCallsToSettle = 1000;
constexpr std::size_t kUsualCount = 64;  // of lists that grow on the data path
constexpr std::size_t kUsualOps = 256;   // the number under way depends on late ranks

}  // namespace

Worker::Worker(std::unique_ptr<WireDriver> driver, std::string_view name, Fetch fetch, std::uint64_t instance)
    : driver_(std::move(driver)),
      name_(name),
      fetch_(fetch),
      instance_(instance),
      pid_(::getpid()),
      patience_(kMostPatience) {
  for (std::vector<Inbox*>* list : {&listed_, &wanting_}) list->reserve(kUsualCount);
  lent_.reserve(kUsualCount);
  sends_.make_more(kUsualOps);
  recvs_.make_more(kUsualOps);
}

Worker::~Worker() {
  if (!is_own_process()) {
    driver_->abandon();
    for (auto& [key, inbox] : inboxes_) static_cast<void>(inbox.release());  // what they hold is the parent's
  } else {
    leave();
    const auto is_over = [this] { return sends_.used_count() == 0 && recvs_.used_count() == 0; };
    if (!drain(is_over, kLongestCompletion) || !driver_->finish()) {
      log_info("{}: a transport that ends does not come to rest, and is left as it is", name_);
      driver_->abandon();
    }
  }
  driver_.reset();  // while there is still what its callbacks refer to
}

void Worker::leave() {
  if (!is_own_process() || std::exchange(is_ending_, true)) return;
  for (const auto& [key, inbox] : inboxes_) inbox->clear();
  for (void* hold : lent_) driver_->release(hold);
  lent_.clear();
  close_handshake();
  for (const auto& [id, peer] : peers_) peer->disconnect();
}

void Worker::close_handshake() {
  settle();
  std::vector<Peer*> awaited;
  for (const auto& [id, peer] : peers_) {
    if (id == instance_ || peer->link() == nullptr || peer->is_gone()) continue;
    Notice notice;
    notice.kind = Notice::Kind::closing;
    notify(*peer, notice);
    awaited.push_back(peer.get());
  }
  const auto is_over = [&] {
    return std::all_of(awaited.begin(), awaited.end(),
                       [](const Peer* peer) { return peer->has_confirmed_close || peer->is_gone(); });
  };
  drain(is_over, kLongestCloseHandshake);
}

bool Worker::is_own_process() const { return ::getpid() == pid_; }

Peer& Worker::find_peer(std::uint64_t instance) {
  std::unique_ptr<Peer>& peer = peers_[instance];
  if (!peer) peer = std::make_unique<Peer>(*this, instance);
  return *peer;
}

Inbox& Worker::find_inbox(std::uint64_t instance, std::uint64_t context) {
  std::unique_ptr<Inbox>& inbox = inboxes_[Key{instance, context}];
  if (!inbox) inbox = std::make_unique<Inbox>(*driver_, find_peer(instance), context);
  return *inbox;
}

// -- what the driver says ----------------------------------------------------------------------------------

bool Worker::take_message(const MessageHeader& header, const Arrival& arrival) {
  if (is_ending_ || header.channel > kControlChannel) return false;
  Inbox& inbox = find_inbox(header.sender, header.context);
  inbox.count_message();
  list(inbox);
  if (inbox.is_closed_here) {
    inbox.owes_notice = !inbox.is_peer_told;
    return false;
  }
  inbox.add(header.channel, arrival);
  return true;
}

std::optional<Notice> Worker::take_notice(const Notice& notice) {
  switch (notice.kind) {
    case Notice::Kind::hello: {
      Inbox& inbox = find_inbox(notice.sender, notice.context);
      if (!inbox.is_closed_here) break;
      inbox.owes_notice = true;
      list(inbox);
      break;
    }
    case Notice::Kind::context_closed: {
      Inbox& inbox = find_inbox(notice.sender, notice.context);
      inbox.close_by_peer(notice.message_count);
      list(inbox);
      break;
    }
    case Notice::Kind::closing: {
      find_peer(notice.sender).note_close();
      Notice ack;
      ack.kind = Notice::Kind::closing_ack;
      ack.sender = instance_;
      return ack;
    }
    case Notice::Kind::closing_ack:
      find_peer(notice.sender).has_confirmed_close = true;
      break;
  }
  return {};
}

void Worker::on_sent(SendOp& op, bool is_ok) {
  if (op.endpoint != nullptr) op.endpoint->on_sent(op, is_ok);
  sends_.give_back(&op);
}

void Worker::on_fetched(RecvOp& op, bool is_ok) {
  if (op.endpoint != nullptr) {
    op.endpoint->on_fetched(op, is_ok);
    return;
  }
  give_back(op);
}

void Worker::give_back(RecvOp& op) {
  bounces_.give_back(op.bounce);
  op.bounce = {};
  recvs_.give_back(&op);
}

void Worker::note_piece(const RecvOp& op) {
  if (op.endpoint != nullptr) list(op.endpoint->inbox());
}

void Worker::notify(Peer& peer, Notice notice) {
  Link* link = peer.connect();
  if (link == nullptr) return;
  notice.sender = instance_;
  driver_->notify(*link, notice);
}

// -- progress -----------------------------------------------------------------------------------------------

void Worker::list(Inbox& inbox) {
  if (std::exchange(inbox.is_listed, true)) return;
  listed_.push_back(&inbox);
}

void Worker::list_all_of(const Peer& peer) {
  for (const auto& [key, inbox] : inboxes_) {
    if (&inbox->peer == &peer) list(*inbox);
  }
}

void Worker::want_peer(Inbox& inbox) {
  if (std::exchange(inbox.wants_peer, true)) return;
  wanting_.push_back(&inbox);
}

// Only when nothing moves: what has come may say that there is nobody left to connect to.
void Worker::connect_wanted() {
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

void Worker::close_failed() {
  has_failed_peers_ = false;
  for (const auto& [id, peer] : peers_) {
    if (peer->has_failed()) peer->disconnect();
  }
}

// True if it is to be called again although nothing happens.
bool Worker::advance(Inbox& inbox, EventSink& out) {
  if (inbox.endpoint != nullptr) return inbox.endpoint->advance(out);
  if (inbox.is_closed_here && std::exchange(inbox.owes_notice, false)) {
    Notice notice;
    notice.kind = Notice::Kind::context_closed;
    notice.context = inbox.context;
    inbox.is_peer_told = true;
    notify(inbox.peer, notice);
  }
  return false;
}

std::size_t Worker::progress(std::span<Event> events) {
  for (void* hold : lent_) driver_->release(hold);
  lent_.clear();
  EventSink out(events, &waiting_);
  if (!out.can_push()) return out.count();
  const bool has_moved = driver_->progress(WireDriver::Poll::awaited);
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

bool Worker::arm() {
  if (!waiting_.empty() || !listed_.empty() || !wanting_.empty() || has_failed_peers_) return false;
  return driver_->arm();
}

void Worker::settle() {
  for (int i = 0; i < kMostCallsToSettle && driver_->progress(WireDriver::Poll::all); ++i) {
  }
}

bool Worker::drain(const std::function<bool()>& condition, std::chrono::milliseconds at_rest,
                   std::chrono::milliseconds at_most) {
  const auto end = Clock::now() + at_most;
  auto rest_end = Clock::now() + at_rest;
  while (!condition()) {
    if (has_failed_peers_) close_failed();
    const auto now = Clock::now();  // before the poll: a thread that lost its CPU polls once more
    const bool has_moved = driver_->progress(WireDriver::Poll::all);
    if (has_moved) rest_end = now + at_rest;
    if (now > std::min(rest_end, end)) return false;
    if (!has_moved) ::sched_yield();
  }
  return true;
}

std::chrono::milliseconds Worker::patience() {
  if (Clock::now() > lost_patience_at_ + 2 * kMostPatience) patience_ = kMostPatience;
  return patience_;
}

bool Worker::drain_patiently(const std::function<bool()>& condition) {
  if (drain(condition, patience(), kPatienceWhileMoving * patience())) return true;
  patience_ /= 2;
  lost_patience_at_ = Clock::now();
  return false;
}

}  // namespace tutti::message
