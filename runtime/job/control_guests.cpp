// Accepting, challenging, refusing. Knows no route; see control_guests.hpp.
#include "runtime/job/control_guests.hpp"

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
// Ranks that come at the same time to the last descriptor must not drive each other away for ever.
constexpr std::chrono::milliseconds kProofTime{500};
constexpr std::chrono::seconds kClaimTime{10};  // of a process that has proved itself, on a busy machine
constexpr std::chrono::seconds kLeavingTime{1};
constexpr std::chrono::seconds kWarningPause{1};
constexpr std::size_t kStrangerPlaces = 64;  // beside one for each rank that has not come yet
constexpr int kAcceptsAtOnce = 64;           // between looks at those that are here

Status exhausted(int rank, int error) {
  return {StatusCode::resource_exhausted,
          fmt::format("rank {} cannot let other ranks in: {}", rank, describe_system_error(error))};
}

bool is_stranger(const Guest& guest) { return guest.link.is_open() && guest.stage < Guest::Stage::claim; }

}  // namespace

std::size_t ControlGuests::append_fds(std::vector<pollfd>& fds) {
  const std::size_t before = fds.size();
  for (const Door& door : doors_) fds.push_back({may_accept_ ? door.listener.fd() : -1, POLLIN, 0});
  for (const auto& guest : guests_) {
    static_cast<void>(
        guest->link.flush());  // if it is gone: what it wrote before is still to be read, to the end
    const short events = static_cast<short>(guest->link.has_output() ? POLLIN | POLLOUT : POLLIN);
    fds.push_back({guest->link.fd(), events, 0});
  }
  return fds.size() - before;
}

void ControlGuests::serve(std::span<const pollfd> fds) {
  may_accept_ = true;
  const std::size_t guest_count = fds.size() - doors_.size();  // accept appends
  for (std::size_t i = 0; i < doors_.size(); ++i) {
    if (fds[i].revents != 0) accept(doors_[i]);
  }
  const std::size_t door_count = doors_.size();
  for (std::size_t i = 0; i < guest_count; ++i) {
    if (fds[door_count + i].revents != 0) serve(*guests_[i]);
  }
  std::erase_if(guests_, [](const auto& guest) { return !guest->link.is_open(); });
}

bool ControlGuests::has_limit() const {
  return !may_accept_ || std::any_of(guests_.begin(), guests_.end(),
                                     [](const auto& guest) { return guest->stage != Guest::Stage::joined; });
}

void ControlGuests::drop_expired() {
  const Clock::time_point now = Clock::now();
  std::erase_if(guests_, [&](const auto& guest) {
    if (guest->stage == Guest::Stage::joined) return false;
    // A refused process reads its reason and closes; we do so first only if it does not.
    return now >= guest->until;
  });
}

// -- strangers ----------------------------------------------------------------------------------------------

std::size_t ControlGuests::count_strangers() const {
  return static_cast<std::size_t>(
      std::count_if(guests_.begin(), guests_.end(), [](const auto& guest) { return is_stranger(*guest); }));
}

std::size_t ControlGuests::stranger_limit() const {
  const auto size = static_cast<std::size_t>(options_.size);
  return kStrangerPlaces + size - std::min(size, joined_count_);
}

// The one that has come least far; of these the oldest. A rank that loses its place so comes again.
bool ControlGuests::drop_stranger(Clock::duration proof_time) {
  Guest* least = nullptr;
  const Clock::time_point begun_by = Clock::now() + kStrangerTime - proof_time;
  for (const auto& guest : guests_) {
    if (!is_stranger(*guest) || (guest->stage == Guest::Stage::proof && guest->until > begun_by)) continue;
    if (least == nullptr || guest->stage < least->stage) least = guest.get();
  }
  if (least != nullptr) least->link.close();  // erased after this poll
  return least != nullptr;
}

Status ControlGuests::reserve() {
  if (reserve_.is_open()) return {};
  const int fd = ::eventfd(0, EFD_CLOEXEC);  // the cheapest kind
  if (fd < 0) return exhausted(options_.rank, errno);
  reserve_ = Link(fd);
  return {};
}

Status ControlGuests::listen(Link listener, bool is_remote) {
  TUTTI_RETURN_IF_ERROR(reserve());
  doors_.push_back({std::move(listener), is_remote});
  return {};
}

void ControlGuests::turn_away(const Door& door, const Status& why) {
  reserve_.close();
  const int fd = ::accept4(door.listener.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd >= 0) {
    Link link(fd);
    link.send(Frame{FrameType::refused, 0, 0, encode(StatusPayload{StatusCode::refused, why.message()})});
    static_cast<void>(link.flush());
  }
  // Another thread may have been faster: then nobody is told until one is free again.
  if (fd < 0 || !reserve()) may_accept_ = false;
}

void ControlGuests::accept(const Door& door) {
  for (int i = 0; i < kAcceptsAtOnce; ++i) {
    auto guest = std::make_unique<Guest>();
    guest->address.bytes = sizeof guest->address.storage;
    const int fd = ::accept4(door.listener.fd(), reinterpret_cast<sockaddr*>(&guest->address.storage),
                             &guest->address.bytes, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
      const int error = errno;
      if (error == EAGAIN || error == EINTR || error == ECONNABORTED) return;
      if (drop_stranger(kProofTime)) continue;
      // Look again after a tick instead of spinning on a socket that stays readable.
      may_accept_ = false;
      if (count_strangers() != 0) return;  // they join, or give their places up
      const Status why = exhausted(options_.rank, error);
      turn_away(door, why);
      if (const Clock::time_point now = Clock::now(); now >= next_exhaustion_) {
        next_exhaustion_ = now + kWarningPause;
        owner_.on_exhausted(why);
      }
      return;
    }
    if (!reserve()) may_accept_ = false;
    guest->link = Link(fd);
    guest->is_remote = door.is_remote;
    guest->claim.host = "this machine";
    if (door.is_remote) {
      guest->address = guest->address.unmapped();
      limit_silence_strictly(fd, options_.silence);
      guest->claim.host = guest->address.host_text();
    } else if (!is_same_user(fd, &guest->claim.pid)) {
      continue;  // closes it
    }
    guest->until = Clock::now() + kStrangerTime;
    if (count_strangers() >= stranger_limit()) drop_stranger({});
    guests_.push_back(std::move(guest));
    serve(*guests_.back());  // a rank has said hello by now, and is no longer the first to lose its place
  }
}

void ControlGuests::serve(Guest& guest) {
  if (!guest.link.is_open()) return;
  std::vector<Frame> frames;
  const Status status = guest.link.receive(frames);
  for (Frame& frame : frames) {
    if (guest.stage == Guest::Stage::joined) {
      owner_.on_frame(guest, std::move(frame));
    } else if (guest.stage != Guest::Stage::leaving && guest.stage != Guest::Stage::refused) {
      on_stranger_frame(guest, frame);
    }
    if (!guest.link.is_open()) return;
  }
  if (status) return;
  const bool had_joined = guest.stage == Guest::Stage::joined;
  guest.link.close();
  if (had_joined) owner_.on_lost(guest, status);
}

void ControlGuests::on_stranger_frame(Guest& guest, const Frame& frame) {
  if (guest.stage == Guest::Stage::hello && frame.type == FrameType::hello) return on_hello(guest, frame);
  if (guest.stage == Guest::Stage::proof && frame.type == FrameType::proof) return on_proof(guest, frame);
  if (guest.stage == Guest::Stage::claim && frame.type == FrameType::claim) return on_claim(guest, frame);
  guest.link.close();
}

void ControlGuests::on_hello(Guest& guest, const Frame& frame) {
  HelloPayload hello;
  // The version comes first, whatever follows it in another one.
  if (ByteReader reader(frame.payload); !reader.get(hello.version)) return guest.link.close();
  if (hello.version != kControlProtocolVersion) {
    return refuse(guest, Status(StatusCode::refused,
                                fmt::format("this process speaks control protocol {}, the job speaks {}",
                                            hello.version, kControlProtocolVersion)));
  }
  if (!decode(frame.payload, hello)) return guest.link.close();
  if (hello.job != options_.job) {
    // No warning: whoever looks for its job on a range of ports meets others.
    guest.link.send(
        Frame{FrameType::refused, 0, 0, encode(StatusPayload{StatusCode::unsupported, "another job"})});
    guest.stage = Guest::Stage::refused;
    guest.until = Clock::now() + kLeavingTime;
    return;
  }
  const Result<Nonce> nonce = make_nonce();
  if (!nonce) return refuse(guest, nonce.status());
  guest.member_nonce = hello.nonce;
  guest.nonce = *nonce;
  guest.link.send(Frame{FrameType::challenge, 0, 0, encode(ChallengePayload{guest.nonce})});
  guest.stage = Guest::Stage::proof;
}

void ControlGuests::on_proof(Guest& guest, const Frame& frame) {
  ProofPayload payload;
  if (!decode(frame.payload, payload)) return guest.link.close();
  if (!is_equal(payload.proof, prove(options_.secret, ProofRole::member, guest.member_nonce, guest.nonce))) {
    return refuse(guest,
                  Status(StatusCode::refused, "this process has another secret than the job (TUTTI_SECRET)"));
  }
  ClaimPayload welcome;
  welcome.claim = own_claim_;
  welcome.proof = prove(options_.secret, ProofRole::hub, guest.member_nonce, guest.nonce, own_claim_);
  guest.link.send(Frame{FrameType::welcome, 0, 0, encode(welcome)});
  guest.stage = Guest::Stage::claim;
  guest.until = Clock::now() + kClaimTime;
}

void ControlGuests::on_claim(Guest& guest, const Frame& frame) {
  ClaimPayload payload;
  if (!decode(frame.payload, payload)) return guest.link.close();
  MemberClaim& claim = payload.claim;
  if (!is_equal(payload.proof,
                prove(options_.secret, ProofRole::claim, guest.member_nonce, guest.nonce, claim)))
    return guest.link.close();
  if (claim.build_id != options_.build_id) {
    return refuse(guest, Status(StatusCode::refused,
                                fmt::format("rank {} was built from '{}', rank {} of the job from '{}'; all "
                                            "ranks need the same build",
                                            claim.rank, claim.build_id, options_.rank, options_.build_id)));
  }
  if (const Status status = owner_.check(claim); !status) return refuse(guest, status);
  if (!guest.is_remote) claim.pid = guest.claim.pid;  // as the kernel tells it
  guest.claim = std::move(claim);
  guest.stage = Guest::Stage::joined;
  ++joined_count_;
  guest.link.set_limit(kMaxPayloadBytes);
  owner_.on_joined(guest);
}

// A stranger can be refused very often: one line a second.
void ControlGuests::refuse(Guest& guest, const Status& why) {
  const Clock::time_point now = Clock::now();
  if (options_.warn && now >= next_warning_) {
    const std::string who = guest.claim.pid != 0 ? fmt::format("pid {}", guest.claim.pid) : guest.claim.host;
    options_.warn(
        fmt::format("refused a process ({}): {}{}", who, why.message(),
                    unsaid_ == 0 ? "" : fmt::format(" (and {} more since the last line)", unsaid_)));
    next_warning_ = now + kWarningPause;
    unsaid_ = 0;
  } else {
    ++unsaid_;
  }
  guest.link.send(Frame{FrameType::refused, 0, 0, encode(StatusPayload{why.code(), why.message()})});
  guest.stage = Guest::Stage::refused;
  guest.until = now + kLeavingTime;
}

void ControlGuests::dismiss(Guest& guest) {
  guest.stage = Guest::Stage::leaving;
  guest.until = Clock::now() + kLeavingTime;
}

// -- those who have joined ----------------------------------------------------------------------------------

void ControlGuests::send_to_all(const Frame& frame) {
  for (const auto& guest : guests_) {
    if (guest->stage != Guest::Stage::joined) continue;
    guest->link.send(frame);
    // Written now: this process may end as soon as it hears itself. Reading finds a broken connection.
    static_cast<void>(guest->link.flush());
  }
}

void ControlGuests::send_to_all_known(const Frame& frame) {
  for (const auto& guest : guests_) {
    if (guest->stage == Guest::Stage::joined || guest->stage == Guest::Stage::claim) guest->link.send(frame);
  }
}

void ControlGuests::say_goodbye(int leaving_rank) {
  send_to_all_known(Frame{FrameType::goodbye, leaving_rank, 0, {}});
}

void ControlGuests::finish(Clock::time_point until) {
  stop_listening();
  for (const auto& guest : guests_) {
    while (guest->link.is_open() && guest->link.flush() && guest->link.has_output() && Clock::now() < until) {
      pollfd writable{guest->link.fd(), POLLOUT, 0};
      ::poll(&writable, 1, 100);
    }
  }
  guests_.clear();
}

}  // namespace tutti
