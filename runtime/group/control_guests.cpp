// Accepting, challenging, refusing. Knows no route; see control_guests.hpp.
#include "runtime/group/control_guests.hpp"

#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "runtime/base/tcp_socket.hpp"
#include "runtime/group/handshake.hpp"

namespace tutti {
namespace {

constexpr std::chrono::seconds kHandshakeTime{10};
constexpr std::chrono::seconds kLeavingTime{1};
constexpr std::size_t kExtraStrangers = 64;

bool is_stranger(const std::unique_ptr<Guest>& guest) {
  return guest->stage == Guest::Stage::hello || guest->stage == Guest::Stage::proof;
}

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

void ControlGuests::accept(const Door& door) {
  for (;;) {
    auto guest = std::make_unique<Guest>();
    guest->address.bytes = sizeof guest->address.storage;
    const int fd = ::accept4(door.listener.fd(), reinterpret_cast<sockaddr*>(&guest->address.storage),
                             &guest->address.bytes, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
      // Out of descriptors: look again after a tick instead of spinning on a socket that stays readable.
      may_accept_ = errno == EAGAIN || errno == EINTR || errno == ECONNABORTED;
      return;
    }
    guest->link = Link(fd);
    guest->is_remote = door.is_remote;
    guest->claim.host = "this machine";
    if (door.is_remote) {
      guest->address = guest->address.unmapped();
      limit_silence(fd, options_.silence);
      guest->claim.host = guest->address.host_text();
    } else if (!is_same_user(fd, &guest->claim.pid)) {
      continue;  // closes it
    }
    guest->until = Clock::now() + kHandshakeTime;
    const auto strangers = std::count_if(guests_.begin(), guests_.end(), is_stranger);
    if (static_cast<std::size_t>(strangers) >= static_cast<std::size_t>(options_.size) + kExtraStrangers) {
      // The oldest; erased after this poll.
      (*std::find_if(guests_.begin(), guests_.end(), is_stranger))->link.close();
    }
    guests_.push_back(std::move(guest));
  }
}

void ControlGuests::serve(Guest& guest) {
  if (!guest.link.is_open()) return;
  std::vector<Frame> frames;
  const Status status = guest.link.receive(frames);
  for (Frame& frame : frames) {
    if (guest.stage == Guest::Stage::joined) {
      owner_.on_frame(guest, std::move(frame));
    } else if (guest.stage != Guest::Stage::leaving) {
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
  HelloPayload hello;
  if (guest.stage == Guest::Stage::proof && frame.type == FrameType::proof) return on_proof(guest, frame);
  if (guest.stage != Guest::Stage::hello || frame.type != FrameType::hello) return guest.link.close();
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
    return dismiss(guest);
  }
  const Result<Nonce> nonce = make_nonce();
  if (!nonce) return refuse(guest, nonce.status());
  guest.member_nonce = hello.nonce;
  guest.nonce = *nonce;
  ChallengePayload challenge;
  challenge.nonce = guest.nonce;
  challenge.claim = own_claim_;
  challenge.proof = prove_hub(options_.secret, guest.member_nonce, guest.nonce, own_claim_);
  guest.link.send(Frame{FrameType::challenge, 0, 0, encode(challenge)});
  guest.stage = Guest::Stage::proof;
}

void ControlGuests::on_proof(Guest& guest, const Frame& frame) {
  ProofPayload proof;
  if (!decode(frame.payload, proof)) return guest.link.close();
  if (!is_equal(proof.proof, prove_member(options_.secret, guest.member_nonce, guest.nonce, proof.claim))) {
    return refuse(guest,
                  Status(StatusCode::refused, "this process does not have the job's secret (TUTTI_SECRET)"));
  }
  // Only who has the secret comes here, so the reasons give nothing away.
  if (proof.claim.build_id != options_.build_id) {
    return refuse(
        guest, Status(StatusCode::refused,
                      fmt::format("rank {} was built from '{}', rank {} of the job from '{}'; all "
                                  "ranks need the same build",
                                  proof.claim.rank, proof.claim.build_id, options_.rank, options_.build_id)));
  }
  if (const Status status = owner_.check(proof.claim); !status) return refuse(guest, status);
  if (!guest.is_remote) proof.claim.pid = guest.claim.pid;  // as the kernel tells it
  guest.claim = std::move(proof.claim);
  guest.stage = Guest::Stage::joined;
  guest.link.set_limit(kMaxPayloadBytes);
  owner_.on_joined(guest);
}

void ControlGuests::refuse(Guest& guest, const Status& why) {
  if (options_.warn) {
    options_.warn(fmt::format(
        "refused a process ({}): {}",
        guest.claim.pid != 0 ? fmt::format("pid {}", guest.claim.pid) : guest.claim.host, why.message()));
  }
  guest.link.send(Frame{FrameType::refused, 0, 0, encode(StatusPayload{why.code(), why.message()})});
  dismiss(guest);
}

void ControlGuests::dismiss(Guest& guest) {
  guest.stage = Guest::Stage::leaving;
  guest.until = Clock::now() + kLeavingTime;
}

// -- those who have joined ----------------------------------------------------------------------------------

void ControlGuests::send_to_all(const Frame& frame) {
  for (const auto& guest : guests_) {
    if (guest->stage == Guest::Stage::joined) guest->link.send(frame);
  }
}

void ControlGuests::say_goodbye(int leaving_rank) {
  for (const auto& guest : guests_) {
    if (guest->stage == Guest::Stage::joined || guest->stage == Guest::Stage::proof)
      guest->link.send(Frame{FrameType::goodbye, leaving_rank, 0, {}});
  }
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
