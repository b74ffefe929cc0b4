// The control thread of rank 0: lets members in, refuses everybody else, relays, stamps the first cause of a
// failure. Knows no transport and no meaning of the messages it relays.
//
// Everything is non-blocking and bounded, for the socket can be reached by any process of the machine:
// another user's connection is closed unread, a stranger has few bytes and seconds, and their number is
// limited.
#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "runtime/group/control_channel.hpp"
#include "runtime/group/fork_guard.hpp"
#include "runtime/group/handshake.hpp"
#include "runtime/group/link.hpp"

namespace tutti {
namespace {

constexpr std::chrono::seconds kHandshakeTime{10};
constexpr std::chrono::seconds kNameTakenTime{
    2};  // an earlier life of this job may still be closing its socket
constexpr std::chrono::seconds kGoodbyeTime{1};
constexpr std::chrono::milliseconds kTick{100};  // while something has a time limit
constexpr std::size_t kExtraStrangers = 64;
constexpr std::size_t kMaxStampedGroups = 4096;

class ControlHub final : public ControlChannel {
 public:
  explicit ControlHub(const ControlOptions& options)
      : ControlChannel(options), places_(static_cast<std::size_t>(options.size)) {
    wake_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (wake_ >= 0) close_on_fork(wake_);
    places_[0].presence = Presence::present;
  }
  ~ControlHub() override { stop_thread(); }

 private:
  enum class Stage : std::uint8_t { hello, proof, joined, leaving };
  struct Guest {
    Link link;
    Stage stage = Stage::hello;
    int rank = -1;
    int pid = 0;
    Nonce member_nonce{};
    Nonce nonce{};
    Clock::time_point until;  // all stages but joined
  };
  enum class Presence : std::uint8_t { absent, present, departed, dead };
  struct Place {
    Presence presence = Presence::absent;
    Guest* guest = nullptr;
    int pid = 0;
  };
  struct Gather {
    std::vector<std::optional<std::string>> values;
    std::size_t arrived = 0;
    bool is_failed = false;
  };

  void run() override;
  bool listen();
  void poll_once();
  void accept_guests();
  void serve(Guest& guest);
  void on_stranger_frame(Guest& guest, const Frame& frame);
  void on_proof(Guest& guest, const Frame& frame);
  Status check_claim(const MemberClaim& claim) const;
  void refuse(Guest& guest, const Status& why);
  void admit(Guest& guest, int rank);
  void on_member_frame(int source, const Frame& frame);
  void on_gather(int source, const Frame& frame);
  void settle_gather(std::uint64_t number, Gather& gather);
  void on_who(int source, const Frame& frame);
  void on_failure_request(const Frame& frame);
  void on_gone(int rank, Presence how);
  void send_to(int rank, const Frame& frame);
  void send_to_all(const Frame& frame);
  void drop_expired();
  void check_deadline();
  void say_goodbye();
  bool is_complete() const;
  std::vector<int> ranks_not_in(const Gather& gather) const;
  std::vector<int> absent_ranks() const;

  Link listener_;
  std::vector<std::unique_ptr<Guest>> guests_;
  std::vector<Place> places_;
  std::map<std::uint64_t, Gather> gathers_;
  std::map<std::uint64_t, FailurePayload> stamped_;  // by group
  bool is_ready_ = false;
  bool is_over_ = false;
  bool may_accept_ = true;
};

void ControlHub::run() {
  if (!listen()) return;
  while (!is_over_ && !is_stopping()) {
    for (const Frame& frame : take_outbox()) on_member_frame(0, frame);
    poll_once();
    drop_expired();
    if (!is_ready_) check_deadline();
  }
  say_goodbye();
}

bool ControlHub::listen() {
  const Clock::time_point until = std::min(Clock::now() + kNameTakenTime, deadline_);
  for (;;) {
    const Result<int> fd = listen_at(options_.meeting_point);
    if (fd) {
      listener_ = Link(*fd);
      return true;
    }
    const bool may_retry = fd.status().code() == StatusCode::resource_exhausted && Clock::now() < until;
    if (!may_retry || is_stopping()) {
      lose(fd.status());
      finish_start(fd.status());
      return false;
    }
    pollfd wake{wake_, POLLIN, 0};
    ::poll(&wake, 1, static_cast<int>(kTick.count()));
  }
}

void ControlHub::poll_once() {
  std::vector<pollfd> fds;
  fds.reserve(guests_.size() + 2);
  fds.push_back({wake_, POLLIN, 0});
  fds.push_back({may_accept_ ? listener_.fd() : -1, POLLIN, 0});
  bool has_limit = !is_ready_ || !may_accept_;
  for (const auto& guest : guests_) {
    static_cast<void>(
        guest->link.flush());  // if it is gone: what it wrote before is still to be read, to the end
    const short events = static_cast<short>(guest->link.has_output() ? POLLIN | POLLOUT : POLLIN);
    fds.push_back({guest->link.fd(), events, 0});
    has_limit = has_limit || guest->stage != Stage::joined;
  }
  may_accept_ = true;
  if (::poll(fds.data(), fds.size(), has_limit ? static_cast<int>(kTick.count()) : -1) < 0) return;
  drain_wake();
  const std::size_t guest_count = fds.size() - 2;  // accept_guests appends
  if (fds[1].revents != 0) accept_guests();
  for (std::size_t i = 0; i < guest_count; ++i) {
    if (fds[i + 2].revents != 0) serve(*guests_[i]);
  }
  std::erase_if(guests_, [](const auto& guest) { return !guest->link.is_open(); });
}

// -- strangers ----------------------------------------------------------------------------------------------

void ControlHub::accept_guests() {
  for (;;) {
    const int fd = ::accept4(listener_.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
      // Out of descriptors: look again after a tick instead of spinning on a socket that stays readable.
      may_accept_ = errno == EAGAIN || errno == EINTR || errno == ECONNABORTED;
      return;
    }
    auto guest = std::make_unique<Guest>();
    guest->link = Link(fd);
    if (!is_same_user(fd, &guest->pid)) continue;  // closes it
    guest->until = Clock::now() + kHandshakeTime;
    const auto is_stranger = [](const auto& g) {
      return g->stage == Stage::hello || g->stage == Stage::proof;
    };
    const auto strangers = std::count_if(guests_.begin(), guests_.end(), is_stranger);
    if (static_cast<std::size_t>(strangers) >= places_.size() + kExtraStrangers) {
      (*std::find_if(guests_.begin(), guests_.end(), is_stranger))
          ->link.close();  // the oldest; erased after this poll
    }
    guests_.push_back(std::move(guest));
  }
}

void ControlHub::serve(Guest& guest) {
  if (!guest.link.is_open()) return;
  std::vector<Frame> frames;
  const Status status = guest.link.receive(frames);
  for (const Frame& frame : frames) {
    if (guest.stage == Stage::joined) {
      on_member_frame(guest.rank, frame);
    } else if (guest.stage != Stage::leaving) {
      on_stranger_frame(guest, frame);
    }
    if (!guest.link.is_open()) return;
  }
  if (status) return;
  const int rank = guest.stage == Stage::joined ? guest.rank : -1;
  guest.link.close();
  if (rank >= 0) on_gone(rank, Presence::dead);
}

void ControlHub::on_stranger_frame(Guest& guest, const Frame& frame) {
  HelloPayload hello;
  if (guest.stage == Stage::proof && frame.type == FrameType::proof) return on_proof(guest, frame);
  if (guest.stage != Stage::hello || frame.type != FrameType::hello || !decode(frame.payload, hello)) {
    return guest.link.close();
  }
  if (hello.version != kControlProtocolVersion) {
    return refuse(guest, Status(StatusCode::refused,
                                fmt::format("this process speaks control protocol {}, the job speaks {}",
                                            hello.version, kControlProtocolVersion)));
  }
  const Result<Nonce> nonce = make_nonce();
  if (!nonce) return refuse(guest, nonce.status());
  guest.member_nonce = hello.nonce;
  guest.nonce = *nonce;
  ChallengePayload challenge;
  challenge.nonce = guest.nonce;
  challenge.proof = prove_hub(options_.secret, guest.member_nonce, guest.nonce);
  guest.link.send(Frame{FrameType::challenge, 0, 0, encode(challenge)});
  guest.stage = Stage::proof;
}

void ControlHub::on_proof(Guest& guest, const Frame& frame) {
  ProofPayload proof;
  if (!decode(frame.payload, proof)) return guest.link.close();
  if (!is_equal(proof.proof, prove_member(options_.secret, guest.member_nonce, guest.nonce, proof.claim))) {
    return refuse(guest,
                  Status(StatusCode::refused, "this process does not have the job's secret (TUTTI_SECRET)"));
  }
  if (const Status claim = check_claim(proof.claim); !claim) return refuse(guest, claim);
  admit(guest, proof.claim.rank);
}

// Only called for who has the secret, so the reasons give nothing away.
Status ControlHub::check_claim(const MemberClaim& claim) const {
  const auto refused = [](std::string text) { return Status(StatusCode::refused, std::move(text)); };
  if (claim.build_id != options_.build_id) {
    return refused(
        fmt::format("rank {} was built from '{}', rank 0 of the job from '{}'; all ranks need the same build",
                    claim.rank, claim.build_id, options_.build_id));
  }
  if (claim.size != options_.size) {
    return refused(fmt::format("rank {} expects {} ranks, rank 0 of the job expects {} (WORLD_SIZE)",
                               claim.rank, claim.size, options_.size));
  }
  if (claim.rank < 0 || claim.rank >= options_.size) {
    return refused(fmt::format("rank {} is not one of the job's {} ranks (RANK)", claim.rank, options_.size));
  }
  const Place& place = places_[static_cast<std::size_t>(claim.rank)];
  if (place.presence != Presence::absent) {
    return refused(fmt::format(
        "rank {} of this job has joined already (pid {}); every process needs a rank of its own (RANK)",
        claim.rank, claim.rank == 0 ? ::getpid() : place.pid));
  }
  return {};
}

void ControlHub::refuse(Guest& guest, const Status& why) {
  warn(fmt::format("refused a process (pid {}): {}", guest.pid, why.message()));
  guest.link.send(Frame{FrameType::refused, 0, 0, encode(StatusPayload{why.code(), why.message()})});
  guest.stage = Stage::leaving;
  guest.until = Clock::now() + kGoodbyeTime;
}

void ControlHub::admit(Guest& guest, int rank) {
  guest.stage = Stage::joined;
  guest.rank = rank;
  guest.link.set_limit(kMaxPayloadBytes);
  places_[static_cast<std::size_t>(rank)] = Place{Presence::present, &guest, guest.pid};
  if (!is_complete()) return;
  is_ready_ = true;
  for (std::size_t other = 1; other < places_.size(); ++other) {
    send_to(static_cast<int>(other),
            Frame{FrameType::ready, 0, static_cast<int>(other), encode(StatusPayload{})});
  }
  finish_start({});
}

void ControlHub::drop_expired() {
  const Clock::time_point now = Clock::now();
  std::erase_if(guests_, [&](const auto& guest) {
    if (guest->stage == Stage::joined) return false;
    // A refused process reads its reason and closes; we do so first only if it does not.
    return now >= guest->until;
  });
}

// -- members ------------------------------------------------------------------------------------------------

void ControlHub::on_member_frame(int source, const Frame& frame) {
  switch (frame.type) {
    case FrameType::gather:
      return on_gather(source, frame);
    case FrameType::who:
      return on_who(source, frame);
    case FrameType::failure:
      return on_failure_request(frame);
    case FrameType::message:
      if (frame.target < 0 || frame.target >= options_.size) return;
      return send_to(frame.target, Frame{FrameType::message, source, frame.target, frame.payload});
    case FrameType::goodbye:
      return on_gone(source, Presence::departed);
    default:
      return;  // a member of our own build sends nothing else
  }
}

void ControlHub::on_gather(int source, const Frame& frame) {
  GatherPayload payload;
  if (!decode(frame.payload, payload) || payload.values.size() != 1) return;
  Gather& gather = gathers_[payload.number];
  gather.values.resize(places_.size());
  std::optional<std::string>& mine = gather.values[static_cast<std::size_t>(source)];
  if (mine.has_value()) return;
  mine = std::move(payload.values[0]);
  ++gather.arrived;
  settle_gather(payload.number, gather);
}

// Answers a gather that is complete, or that can never be because a rank has gone.
void ControlHub::settle_gather(std::uint64_t number, Gather& gather) {
  if (gather.arrived == places_.size()) {
    GatherPayload all{number, {}};
    for (auto& value : gather.values) all.values.push_back(*std::move(value));
    gathers_.erase(number);
    return send_to_all(Frame{FrameType::gathered, 0, 0, encode(all)});
  }
  if (gather.is_failed) return;
  for (const int rank : ranks_not_in(gather)) {
    const Presence presence = places_[static_cast<std::size_t>(rank)].presence;
    if (presence != Presence::departed && presence != Presence::dead) continue;
    gather.is_failed = true;
    const std::string text = presence == Presence::dead
                                 ? describe_death(rank, places_[static_cast<std::size_t>(rank)].pid)
                                 : fmt::format("rank {} has left the world", rank);
    return send_to_all(Frame{FrameType::gather_failed, 0, 0, encode(GatherPayload{number, {text}})});
  }
}

std::vector<int> ControlHub::ranks_not_in(const Gather& gather) const {
  std::vector<int> ranks;
  for (std::size_t rank = 0; rank < places_.size(); ++rank) {
    if (rank >= gather.values.size() || !gather.values[rank]) ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

std::vector<int> ControlHub::absent_ranks() const {
  std::vector<int> ranks;
  for (std::size_t rank = 0; rank < places_.size(); ++rank) {
    if (places_[rank].presence == Presence::absent) ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

void ControlHub::on_who(int source, const Frame& frame) {
  GatherPayload payload;
  if (!decode(frame.payload, payload)) return;
  const auto found = gathers_.find(payload.number);
  const std::vector<int> missing = payload.number == 0       ? absent_ranks()
                                   : found == gathers_.end() ? std::vector<int>()
                                                             : ranks_not_in(found->second);
  if (missing.empty()) return;  // complete by now: the answer is on its way
  send_to(source, Frame{FrameType::missing, 0, source,
                        encode(GatherPayload{payload.number, {name_ranks(missing, options_.size)}})});
}

void ControlHub::on_failure_request(const Frame& frame) {
  FailurePayload failure;
  if (!decode(frame.payload, failure) || failure.group == 0 || stamped_.size() >= kMaxStampedGroups) return;
  if (!stamped_.emplace(failure.group, failure).second) return;  // a cause was stamped before
  failure.dead_rank = -1;
  send_to_all(Frame{FrameType::failure, 0, 0, encode(failure)});
}

void ControlHub::on_gone(int rank, Presence how) {
  Place& place = places_[static_cast<std::size_t>(rank)];
  if (place.presence != Presence::present) return;
  place.guest = nullptr;
  if (!is_ready_) {  // it gave up waiting or crashed; another process may take its place until the deadline
    place.presence = Presence::absent;
    return;
  }
  place.presence = how;
  if (how == Presence::dead) {
    const FailurePayload failure{0, rank, rank, StatusCode::peer_failed, describe_death(rank, place.pid)};
    send_to_all(Frame{FrameType::failure, 0, 0, encode(failure)});
  }
  std::vector<std::uint64_t> numbers;
  for (const auto& [number, gather] : gathers_) numbers.push_back(number);
  for (const std::uint64_t number : numbers) settle_gather(number, gathers_[number]);
}

void ControlHub::send_to(int rank, const Frame& frame) {
  if (rank == 0) return deliver(frame);
  Guest* guest = places_[static_cast<std::size_t>(rank)].guest;
  if (guest != nullptr) guest->link.send(frame);
}

void ControlHub::send_to_all(const Frame& frame) {
  // The others first: our own listener may take its time.
  for (std::size_t rank = places_.size(); rank-- > 0;) send_to(static_cast<int>(rank), frame);
}

// -- start and end ------------------------------------------------------------------------------------------

bool ControlHub::is_complete() const {
  return std::all_of(places_.begin(), places_.end(),
                     [](const Place& place) { return place.presence == Presence::present; });
}

void ControlHub::check_deadline() {
  if (Clock::now() < deadline_) return;
  const Status status(StatusCode::timeout,
                      fmt::format("{} did not arrive within {}", name_ranks(absent_ranks(), options_.size),
                                  format_seconds(options_.timeout)));
  for (const auto& guest : guests_) {
    if (guest->stage == Stage::joined) {
      guest->link.send(
          Frame{FrameType::refused, 0, guest->rank, encode(StatusPayload{status.code(), status.message()})});
    }
  }
  is_over_ = true;
  lose(status);
  finish_start(status);
}

void ControlHub::say_goodbye() {
  listener_.close();
  for (const Frame& frame : take_outbox()) on_member_frame(0, frame);
  const Clock::time_point until = Clock::now() + kGoodbyeTime;
  for (const auto& guest : guests_) {
    if (guest->stage == Stage::joined) guest->link.send(Frame{FrameType::goodbye, 0, guest->rank, {}});
  }
  for (const auto& guest : guests_) {
    while (guest->link.flush() && guest->link.has_output() && Clock::now() < until) {
      pollfd writable{guest->link.fd(), POLLOUT, 0};
      ::poll(&writable, 1, static_cast<int>(kTick.count()));
    }
  }
  guests_.clear();
}

}  // namespace

std::unique_ptr<ControlChannel> make_control_hub(const ControlOptions& options) {
  return std::make_unique<ControlHub>(options);
}

}  // namespace tutti
