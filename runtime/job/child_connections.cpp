// Accepting, challenging, refusing. Knows no route; see child_connections.hpp.
#include "runtime/job/child_connections.hpp"

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "runtime/job/handshake.hpp"
#include "runtime/net/tcp_socket.hpp"

namespace tutti {
namespace {

constexpr std::chrono::seconds kStrangerTime{3};
// Ranks that compete for the last descriptor must not displace each other for ever.
constexpr std::chrono::milliseconds kProofTime{500};
constexpr std::chrono::seconds kClaimTime{10};  // of a process that has proved itself, on a busy machine
constexpr std::chrono::seconds kLeavingTime{1};
constexpr std::chrono::seconds kWarningPause{1};
constexpr std::size_t kStrangerSlots = 64;  // plus one for each rank that has not joined yet
constexpr int kAcceptsAtOnce = 64;          // before existing children are served again

Status exhausted(int rank, int error) {
  return {StatusCode::resource_exhausted,
          fmt::format("rank {} cannot let other ranks in: {}", rank, describe_system_error(error))};
}

bool is_stranger(const ChildConnection& child) {
  return child.socket.is_open() && child.stage < ChildConnection::Stage::claim;
}

bool is_remote_member(const ChildConnection& child) {
  return child.is_remote && child.socket.is_open() && child.stage == ChildConnection::Stage::joined;
}

}  // namespace

std::size_t ChildConnections::append_fds(std::vector<pollfd>& fds) {
  const std::size_t before = fds.size();
  if (std::exchange(must_close_unused_, false))
    std::erase_if(listeners_, [](const Listener& each) { return each.is_remote && !each.is_used; });
  for (const Listener& listener : listeners_)
    fds.push_back({may_accept_ ? listener.socket.fd() : -1, POLLIN, 0});
  for (const auto& child : children_) {
    static_cast<void>(
        child->socket.flush());  // on failure the frames that it wrote before are still read, to the end
    const short events = static_cast<short>(child->socket.has_output() ? POLLIN | POLLOUT : POLLIN);
    fds.push_back({child->socket.fd(), events, 0});
  }
  return fds.size() - before;
}

void ChildConnections::serve(std::span<const pollfd> fds) {
  may_accept_ = true;
  const std::size_t child_count = fds.size() - listeners_.size();  // accept appends
  for (std::size_t i = 0; i < listeners_.size(); ++i) {
    if (fds[i].revents != 0) accept(listeners_[i]);
  }
  const std::size_t listener_count = listeners_.size();
  for (std::size_t i = 0; i < child_count; ++i) {
    if (fds[listener_count + i].revents != 0) serve(*children_[i]);
  }
  std::erase_if(children_, [](const auto& child) { return !child->socket.is_open(); });
}

bool ChildConnections::has_limit() const {
  return !may_accept_ || std::any_of(children_.begin(), children_.end(), [](const auto& child) {
    return child->stage != ChildConnection::Stage::joined;
  });
}

void ChildConnections::drop_expired() {
  const Clock::time_point now = Clock::now();
  std::erase_if(children_, [&](const auto& child) {
    if (child->stage == ChildConnection::Stage::joined) return false;
    // A refused process reads its reason and closes; after its deadline we close first.
    return now >= child->until;
  });
}

bool ChildConnections::has_remote_members() const {
  return std::ranges::any_of(children_, [](const auto& child) { return is_remote_member(*child); });
}

std::vector<const ChildConnection*> ChildConnections::remote_members() const {
  std::vector<const ChildConnection*> members;
  for (const auto& child : children_) {
    if (is_remote_member(*child)) members.push_back(child.get());
  }
  return members;
}

// -- strangers ----------------------------------------------------------------------------------------------

std::size_t ChildConnections::count_strangers() const {
  return static_cast<std::size_t>(std::count_if(children_.begin(), children_.end(),
                                                [](const auto& child) { return is_stranger(*child); }));
}

std::size_t ChildConnections::stranger_limit() const {
  const auto size = static_cast<std::size_t>(options_.size);
  return kStrangerSlots + size - std::min(size, joined_count_);
}

// Picks the stranger that has come least far; of these the oldest. A rank that is dropped so tries again.
bool ChildConnections::drop_stranger(Clock::duration proof_time) {
  ChildConnection* least = nullptr;
  const Clock::time_point begun_by = Clock::now() + kStrangerTime - proof_time;
  for (const auto& child : children_) {
    if (!is_stranger(*child) || (child->stage == ChildConnection::Stage::proof && child->until > begun_by))
      continue;
    if (least == nullptr || child->stage < least->stage) least = child.get();
  }
  if (least != nullptr) least->socket.close();  // erased after this poll
  return least != nullptr;
}

Status ChildConnections::reserve() {
  if (reserve_.is_open()) return {};
  const int fd = ::eventfd(0, EFD_CLOEXEC);  // the cheapest kind
  if (fd < 0) return exhausted(options_.rank, errno);
  reserve_ = FrameSocket(fd);
  return {};
}

Status ChildConnections::listen(FrameSocket socket, bool is_remote) {
  TUTTI_RETURN_IF_ERROR(reserve());
  listeners_.push_back({std::move(socket), is_remote, false});
  return {};
}

void ChildConnections::turn_away(const Listener& listener, const Status& why) {
  reserve_.close();
  const int fd = ::accept4(listener.socket.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd >= 0) {
    FrameSocket socket(fd);
    socket.send(Frame{FrameType::refused, 0, 0, encode(StatusPayload{StatusCode::refused, why.message()})});
    static_cast<void>(socket.flush());
  }
  // Another thread may have taken the descriptor: then no process is told until one is free again.
  if (fd < 0 || !reserve()) may_accept_ = false;
}

void ChildConnections::accept(const Listener& listener) {
  for (int i = 0; i < kAcceptsAtOnce; ++i) {
    auto child = std::make_unique<ChildConnection>();
    child->address.bytes = sizeof child->address.storage;
    const int fd = ::accept4(listener.socket.fd(), reinterpret_cast<sockaddr*>(&child->address.storage),
                             &child->address.bytes, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
      const int error = errno;
      if (error == EAGAIN || error == EINTR || error == ECONNABORTED) return;
      if (drop_stranger(kProofTime)) continue;
      // Poll again after a tick instead of spinning on a socket that stays readable.
      may_accept_ = false;
      if (count_strangers() != 0) return;  // they join, or give up their slots
      const Status why = exhausted(options_.rank, error);
      turn_away(listener, why);
      if (const Clock::time_point now = Clock::now(); now >= next_exhaustion_) {
        next_exhaustion_ = now + kWarningPause;
        owner_.on_exhausted(why);
      }
      return;
    }
    if (!reserve()) may_accept_ = false;
    child->socket = FrameSocket(fd);
    child->is_remote = listener.is_remote;
    child->listener_fd = listener.socket.fd();
    child->claim.host = "this machine";
    if (listener.is_remote) {
      child->address = child->address.unmapped();
      limit_silence_strictly(fd, options_.silence);
      child->claim.host = child->address.host_text();
    } else if (!is_same_user(fd, &child->claim.pid)) {
      continue;  // closes it
    }
    child->until = Clock::now() + kStrangerTime;
    if (count_strangers() >= stranger_limit()) drop_stranger({});
    children_.push_back(std::move(child));
    serve(*children_.back());  // a rank has sent hello by now, and is no longer the first to be dropped
  }
}

void ChildConnections::serve(ChildConnection& child) {
  if (!child.socket.is_open()) return;
  std::vector<Frame> frames;
  Status status = child.socket.receive(frames);
  for (std::size_t i = 0; i < frames.size(); ++i) {
    if (child.stage == ChildConnection::Stage::joined) {
      owner_.on_frame(child, std::move(frames[i]));
    } else if (child.stage != ChildConnection::Stage::leaving &&
               child.stage != ChildConnection::Stage::refused) {
      on_stranger_frame(child, frames[i]);
    }
    if (!child.socket.is_open()) return;
    if (status && i + 1 == frames.size()) status = child.socket.parse(frames);  // behind a proof
  }
  if (status) return;
  const bool had_joined = child.stage == ChildConnection::Stage::joined;
  if (had_joined && !child.is_remote) child.process = inspect_peer(child.socket.fd(), child.claim.pid);
  child.socket.close();
  if (had_joined) owner_.on_lost(child, status);
}

void ChildConnections::on_stranger_frame(ChildConnection& child, const Frame& frame) {
  if (child.stage == ChildConnection::Stage::hello && frame.type == FrameType::hello)
    return on_hello(child, frame);
  if (child.stage == ChildConnection::Stage::proof && frame.type == FrameType::proof)
    return on_proof(child, frame);
  if (child.stage == ChildConnection::Stage::claim && frame.type == FrameType::claim)
    return on_claim(child, frame);
  child.socket.close();
}

void ChildConnections::on_hello(ChildConnection& child, const Frame& frame) {
  HelloPayload hello;
  // The version comes first, whatever follows it in another one.
  if (ByteReader reader(frame.payload); !reader.get(hello.version)) return child.socket.close();
  if (hello.version != kControlProtocolVersion) {
    return refuse(child, Status(StatusCode::refused,
                                fmt::format("this process speaks control protocol {}, the job speaks {}",
                                            hello.version, kControlProtocolVersion)));
  }
  if (!decode(frame.payload, hello)) return child.socket.close();
  if (hello.job != options_.job) {
    // No warning: a rank that searches a range of ports for its job meets others.
    child.socket.send(
        Frame{FrameType::refused, 0, 0, encode(StatusPayload{StatusCode::unsupported, "another job"})});
    child.stage = ChildConnection::Stage::refused;
    child.until = Clock::now() + kLeavingTime;
    return;
  }
  const Result<Nonce> nonce = make_nonce();
  if (!nonce) return refuse(child, nonce.status());
  child.member_nonce = hello.nonce;
  child.nonce = *nonce;
  child.socket.send(Frame{FrameType::challenge, 0, 0, encode(ChallengePayload{child.nonce})});
  child.stage = ChildConnection::Stage::proof;
}

void ChildConnections::on_proof(ChildConnection& child, const Frame& frame) {
  ProofPayload payload;
  if (!decode(frame.payload, payload)) return child.socket.close();
  MemberClaim offered;
  offered.offer = payload.offer;
  if (!is_equal(payload.proof,
                prove(options_.secret, ProofRole::member, child.member_nonce, child.nonce, offered))) {
    return refuse(child,
                  Status(StatusCode::refused, "this process has another secret than the job (TUTTI_SECRET)"));
  }
  ClaimPayload welcome;
  welcome.claim = own_claim_;
  welcome.claim.offer = make_offer(options_.security);
  welcome.proof = prove(options_.secret, ProofRole::hub, child.member_nonce, child.nonce, welcome.claim);
  child.socket.send(Frame{FrameType::welcome, 0, 0, encode(welcome)});
  if (child.is_remote) {
    const WireTerms terms = combine(payload.offer, welcome.claim.offer);
    child.socket.protect(
        make_control_session(options_.secret, terms, child.member_nonce, child.nonce, false));
  }
  child.stage = ChildConnection::Stage::claim;
  child.until = Clock::now() + kClaimTime;
}

void ChildConnections::on_claim(ChildConnection& child, const Frame& frame) {
  ClaimPayload payload;
  if (!decode(frame.payload, payload)) return child.socket.close();
  MemberClaim& claim = payload.claim;
  if (!is_equal(payload.proof,
                prove(options_.secret, ProofRole::claim, child.member_nonce, child.nonce, claim)))
    return child.socket.close();
  if (claim.build_id != options_.build_id) {
    return refuse(child, Status(StatusCode::refused,
                                fmt::format("rank {} was built from '{}', rank {} of the job from '{}'; all "
                                            "ranks need the same build",
                                            claim.rank, claim.build_id, options_.rank, options_.build_id)));
  }
  if (const Status status = owner_.check(claim); !status) return refuse(child, status);
  if (!child.is_remote) claim.pid = child.claim.pid;  // as the kernel tells it
  child.claim = std::move(claim);
  for (Listener& listener : listeners_) {
    if (listener.socket.fd() == child.listener_fd) listener.is_used = true;
  }
  child.stage = ChildConnection::Stage::joined;
  ++joined_count_;
  child.socket.set_limit(kMaxPayloadBytes);
  owner_.on_joined(child);
}

// A stranger can be refused very often: one line a second.
void ChildConnections::refuse(ChildConnection& child, const Status& why) {
  const Clock::time_point now = Clock::now();
  if (options_.warn && now >= next_warning_) {
    const std::string who = child.claim.pid != 0 ? fmt::format("pid {}", child.claim.pid) : child.claim.host;
    options_.warn(
        fmt::format("refused a process ({}): {}{}", who, why.message(),
                    unsaid_ == 0 ? "" : fmt::format(" (and {} more since the last line)", unsaid_)));
    next_warning_ = now + kWarningPause;
    unsaid_ = 0;
  } else {
    ++unsaid_;
  }
  child.socket.send(Frame{FrameType::refused, 0, 0, encode(StatusPayload{why.code(), why.message()})});
  child.stage = ChildConnection::Stage::refused;
  child.until = now + kLeavingTime;
}

void ChildConnections::dismiss(ChildConnection& child) {
  child.stage = ChildConnection::Stage::leaving;
  child.until = Clock::now() + kLeavingTime;
}

// -- joined children ----------------------------------------------------------------------------------------

void ChildConnections::send_to_all(const Frame& frame) {
  for (const auto& child : children_) {
    if (child->stage != ChildConnection::Stage::joined) continue;
    child->socket.send(frame);
    // Flushed now: this process may end once it delivers the frame to itself. Reading finds a broken
    // connection.
    static_cast<void>(child->socket.flush());
  }
}

void ChildConnections::send_to_all_known(const Frame& frame) {
  for (const auto& child : children_) {
    if (child->stage == ChildConnection::Stage::joined || child->stage == ChildConnection::Stage::claim)
      child->socket.send(frame);
  }
}

void ChildConnections::say_goodbye(int leaving_rank) {
  send_to_all_known(Frame{FrameType::goodbye, leaving_rank, 0, {}});
}

void ChildConnections::finish(Clock::time_point until) {
  stop_listening();
  for (const auto& child : children_) {
    while (child->socket.is_open() && child->socket.flush() && child->socket.has_output() &&
           Clock::now() < until) {
      pollfd writable{child->socket.fd(), POLLOUT, 0};
      ::poll(&writable, 1, 100);
    }
  }
  children_.clear();
}

}  // namespace tutti
