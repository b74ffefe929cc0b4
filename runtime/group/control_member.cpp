// The control thread of ranks 1 and up: finds rank 0, proves itself, then listens. Knows no other member.
#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <charconv>

#include "runtime/group/control_channel.hpp"
#include "runtime/group/fork_guard.hpp"
#include "runtime/group/handshake.hpp"
#include "runtime/group/link.hpp"

namespace tutti {
namespace {

constexpr std::chrono::milliseconds kConnectPause{5};
constexpr std::chrono::milliseconds kLongestConnectPause{100};
constexpr std::chrono::seconds kAnswerTime{1};   // for "who is missing" after the deadline
constexpr std::chrono::seconds kGoodbyeTime{1};  // to get our last frames out

class ControlMember final : public ControlChannel {
 public:
  explicit ControlMember(const ControlOptions& options) : ControlChannel(options) {
    wake_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (wake_ >= 0) close_on_fork(wake_);
  }
  ~ControlMember() override { stop_thread(); }

 private:
  enum class Stage : std::uint8_t { connecting, challenged, joining, ready, over };

  void run() override;
  bool connect();
  void wait(Clock::time_point until);
  void on_frame(const Frame& frame);
  void on_challenge(const Frame& frame);
  void on_deadline();
  void on_lost(const Status& why);
  void give_up(Status status);
  void say_goodbye();

  Link link_;
  Stage stage_ = Stage::connecting;
  Nonce nonce_{};
  std::optional<Clock::time_point>
      asked_until_;  // the deadline has passed and rank 0 was asked who is missing
  std::string missing_;
  int hub_pid_ = 0;
  std::vector<Frame> frames_;
};

void ControlMember::run() {
  if (!connect()) return;
  while (stage_ != Stage::over && !is_stopping()) {
    for (Frame& frame : take_outbox()) link_.send(frame);
    static_cast<void>(
        link_.flush());  // what the hub wrote before it went may still be readable; receive() finds the end
    const bool is_starting = stage_ != Stage::ready;
    wait(is_starting ? asked_until_.value_or(deadline_) : Clock::time_point::max());
    drain_wake();
    frames_.clear();
    const Status status = link_.receive(frames_);
    for (const Frame& frame : frames_) {
      if (stage_ != Stage::over) on_frame(frame);
    }
    if (!status && stage_ != Stage::over) on_lost(status);
    if (is_starting && stage_ != Stage::ready && stage_ != Stage::over) on_deadline();
  }
  say_goodbye();
}

// Waits for the hub to listen; false when the start is over.
bool ControlMember::connect() {
  std::chrono::milliseconds pause = kConnectPause;
  while (!is_stopping()) {
    const Result<int> fd = try_connect(options_.meeting_point);
    if (!fd) {
      give_up(fd.status());
      return false;
    }
    if (*fd >= 0) {
      link_ = Link(*fd);
      is_same_user(*fd, &hub_pid_);
      const Result<Nonce> nonce = make_nonce();
      if (!nonce) {
        give_up(nonce.status());
        return false;
      }
      nonce_ = *nonce;
      link_.set_limit(kMaxPayloadBytes);
      HelloPayload hello;
      hello.nonce = nonce_;
      link_.send(Frame{FrameType::hello, options_.rank, 0, encode(hello)});
      stage_ = Stage::challenged;
      return true;
    }
    const Clock::time_point now = Clock::now();
    if (now >= deadline_) {
      give_up(
          Status(StatusCode::timeout,
                 fmt::format("rank 0 of {} did not arrive within {}: nobody listens at abstract socket @{}",
                             options_.size, format_seconds(options_.timeout), options_.meeting_point),
                 0));
      return false;
    }
    wait(std::min(now + pause, deadline_));
    drain_wake();
    pause = std::min(pause * 2, kLongestConnectPause);
  }
  return false;
}

void ControlMember::wait(Clock::time_point until) {
  std::array<pollfd, 2> fds{pollfd{wake_, POLLIN, 0}, pollfd{link_.fd(), POLLIN, 0}};
  if (link_.is_open() && link_.has_output()) fds[1].events |= POLLOUT;
  int timeout = -1;
  if (until != Clock::time_point::max()) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
    timeout = static_cast<int>(std::clamp<std::int64_t>(left, 0, 60000));
  }
  ::poll(fds.data(), fds.size(), timeout);
}

void ControlMember::on_frame(const Frame& frame) {
  StatusPayload status;
  GatherPayload gather;
  switch (frame.type) {
    case FrameType::challenge:
      on_challenge(frame);
      break;
    case FrameType::refused:
      if (!decode(frame.payload, status) || status.code == StatusCode::ok)
        status = {StatusCode::refused, "no reason given"};
      give_up(Status(status.code, status.message));
      break;
    case FrameType::ready:
      stage_ = Stage::ready;
      finish_start({});
      break;
    case FrameType::missing:
      if (stage_ != Stage::ready && decode(frame.payload, gather) && gather.values.size() == 1) {
        missing_ = gather.values[0];
        asked_until_ = Clock::now();
        break;
      }
      deliver(frame);
      break;
    case FrameType::goodbye:
      // Rank 0 has left in peace. The others go on without a control channel: what it would tell us now comes
      // from deadlines only.
      lose(Status(StatusCode::peer_failed, "rank 0 has left the world", 0));
      stage_ = Stage::over;
      break;
    default:
      deliver(frame);
  }
}

void ControlMember::on_challenge(const Frame& frame) {
  ChallengePayload challenge;
  if (stage_ != Stage::challenged || !decode(frame.payload, challenge)) {
    return give_up(Status(StatusCode::refused, "rank 0 answers in another protocol"));
  }
  if (!is_equal(challenge.proof, prove_hub(options_.secret, nonce_, challenge.nonce))) {
    return give_up(Status(
        StatusCode::refused,
        fmt::format("the job at abstract socket @{} has another secret than this process (TUTTI_SECRET)",
                    options_.meeting_point)));
  }
  ProofPayload proof;
  proof.claim = MemberClaim{options_.rank, options_.size, options_.build_id};
  proof.proof = prove_member(options_.secret, nonce_, challenge.nonce, proof.claim);
  link_.send(Frame{FrameType::proof, options_.rank, 0, encode(proof)});
  stage_ = Stage::joining;
}

void ControlMember::on_deadline() {
  const Clock::time_point now = Clock::now();
  if (now < asked_until_.value_or(deadline_)) return;
  if (!asked_until_ && stage_ == Stage::joining) {
    link_.send(Frame{FrameType::who, options_.rank, 0, encode(GatherPayload{})});
    asked_until_ = now + kAnswerTime;
    return;
  }
  give_up(Status(StatusCode::timeout,
                 fmt::format("{} did not arrive within {}", missing_.empty() ? "some rank" : missing_,
                             format_seconds(options_.timeout))));
}

void ControlMember::on_lost(const Status& why) {
  if (stage_ != Stage::ready) {
    const std::string text = why.code() == StatusCode::refused ? why.message() : describe_death(0, hub_pid_);
    return give_up(Status(why.code(), text, 0));
  }
  stage_ = Stage::over;
  record_failure(FailurePayload{0, 0, 0, StatusCode::peer_failed, describe_death(0, hub_pid_)});
}

void ControlMember::give_up(Status status) {
  stage_ = Stage::over;
  lose(status);
  finish_start(std::move(status));
}

void ControlMember::say_goodbye() {
  if (stage_ != Stage::ready) return link_.close();
  for (Frame& frame : take_outbox()) link_.send(frame);
  link_.send(Frame{FrameType::goodbye, options_.rank, 0, {}});
  const Clock::time_point until = Clock::now() + kGoodbyeTime;
  while (link_.flush() && link_.has_output() && Clock::now() < until) {
    pollfd writable{link_.fd(), POLLOUT, 0};
    ::poll(&writable, 1, 100);
  }
  link_.close();
}

}  // namespace

std::unique_ptr<ControlChannel> make_control_member(const ControlOptions& options) {
  return std::make_unique<ControlMember>(options);
}

}  // namespace tutti
