// Search for the parent, and the connecting side of the handshake. See parent_connection.hpp.
#include "runtime/job/parent_connection.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "runtime/job/handshake.hpp"
#include "runtime/net/tcp_socket.hpp"

namespace tutti {
namespace {

constexpr std::chrono::milliseconds kFirstPause{5};
constexpr std::chrono::milliseconds kLongestPause{100};
constexpr std::chrono::seconds kRefusalTime{1};  // for another candidate to prove itself
constexpr std::chrono::seconds kAttemptTime{3};  // to connect and to answer; then the candidate is tried anew

}  // namespace

void ParentConnection::forget_name(const std::string& name) {
  for (std::size_t i = 0; i < candidates_.size(); ++i) {
    if (candidates_[i].is_remote || candidates_[i].name != name) continue;
    std::erase_if(attempts_, [&](const Attempt& attempt) { return attempt.candidate == i; });
    candidates_[i].name.clear();  // places keep their numbers
  }
}

void ParentConnection::begin(std::size_t candidate, int fd, bool is_connected) {
  Attempt& attempt = attempts_.emplace_back();
  attempt.candidate = candidate;
  attempt.socket = FrameSocket(fd);
  attempt.is_connected = is_connected;
  attempt.until = Clock::now() + kAttemptTime;
  const Result<Nonce> nonce = make_nonce();
  if (!nonce) return give_up(attempt, nonce.status().message());
  attempt.nonce = *nonce;
  HelloPayload hello;
  hello.nonce = *nonce;
  hello.job = options_.job;
  attempt.socket.send(Frame{FrameType::hello, options_.rank, 0, encode(hello)});
}

Status ParentConnection::try_candidates() {
  for (std::size_t i = 0; i < candidates_.size(); ++i) {
    Candidate& candidate = candidates_[i];
    const bool is_busy = std::any_of(attempts_.begin(), attempts_.end(),
                                     [&](const Attempt& attempt) { return attempt.candidate == i; });
    if (is_busy || candidate.has_refused || (!candidate.is_remote && candidate.name.empty())) continue;
    const Result<int> fd =
        candidate.is_remote ? start_connect(candidate.address) : try_connect(candidate.name);
    if (!fd) {
      // Waiting does not free a descriptor.
      if (fd.status().code() == StatusCode::resource_exhausted) return fd.status();
      candidate.outcome = fd.status().message();
    } else if (*fd < 0) {
      candidate.outcome = "nobody listens";
    } else {
      begin(i, *fd, !candidate.is_remote);
    }
  }
  pause_ = std::clamp(2 * pause_, kFirstPause, kLongestPause);
  next_try_ = Clock::now() + pause_;
  return {};
}

std::size_t ParentConnection::append_fds(std::vector<pollfd>& fds) {
  const std::size_t before = fds.size();
  if (stage_ == Stage::searching) {
    for (Attempt& attempt : attempts_) {
      if (attempt.is_connected) static_cast<void>(attempt.socket.flush());
      const bool wants_out = !attempt.is_connected || attempt.socket.has_output();
      fds.push_back({attempt.socket.fd(), static_cast<short>(wants_out ? POLLIN | POLLOUT : POLLIN), 0});
    }
  } else if (stage_ == Stage::joining) {
    static_cast<void>(socket_.flush());  // what was written before it went may still be readable
    fds.push_back({socket_.fd(), static_cast<short>(socket_.has_output() ? POLLIN | POLLOUT : POLLIN), 0});
  }
  return fds.size() - before;
}

Status ParentConnection::serve(std::span<const pollfd> fds, std::vector<Frame>& frames) {
  if (stage_ == Stage::over) return {};
  if (stage_ == Stage::joining) {
    if (fds.empty() || fds[0].revents == 0) return {};
    Status status = socket_.receive(frames);
    if (!status) stage_ = Stage::over;
    return status;
  }
  for (std::size_t i = 0; i < fds.size() && stage_ == Stage::searching; ++i) {
    TUTTI_RETURN_IF_ERROR(serve_attempt(attempts_[i], fds[i].revents, frames));
  }
  std::erase_if(attempts_, [](const Attempt& attempt) { return !attempt.socket.is_open(); });
  if (stage_ != Stage::searching) {
    attempts_.clear();
  } else if (refusal_ && Clock::now() >= refused_until_) {
    return *refusal_;
  } else if (Clock::now() >= next_try_) {
    return try_candidates();
  }
  return {};
}

Status ParentConnection::serve_attempt(Attempt& attempt, short revents, std::vector<Frame>& frames) {
  if (!attempt.socket.is_open()) return {};
  if (revents == 0) {
    if (Clock::now() >= attempt.until) give_up(attempt, "no answer");
    return {};
  }
  if (!attempt.is_connected) {
    if (const int error = connect_error(attempt.socket.fd()); error != 0) {
      give_up(attempt, std::strerror(error));
      return {};
    }
    if ((revents & (POLLOUT | POLLHUP | POLLERR)) == 0) return {};
    attempt.is_connected = true;
    return {};
  }
  std::vector<Frame> arrived;
  const Status status = attempt.socket.receive(arrived);
  for (const Frame& frame : arrived) {
    TUTTI_RETURN_IF_ERROR(on_answer(attempt, frame));
    if (stage_ == Stage::searching && !attempt.socket.is_open()) return {};
  }
  if (stage_ == Stage::joining) {  // behind the welcome, on the socket that was taken
    Status behind = socket_.parse(frames);
    if (!behind) stage_ = Stage::over;
    return behind;
  }
  // The process may be of an earlier run of the job that is ending: try again.
  if (!status) give_up(attempt, status.message());
  return {};
}

// A candidate of another job, or of another protocol, is dropped. A refusal by our own job ends the search.
Status ParentConnection::on_answer(Attempt& attempt, const Frame& frame) {
  ChallengePayload challenge;
  ClaimPayload welcome;
  StatusPayload refusal;
  if (frame.type == FrameType::refused && decode(frame.payload, refusal)) return on_refused(attempt, refusal);
  if (frame.type == FrameType::welcome && attempt.hub_nonce && decode(frame.payload, welcome)) {
    on_welcome(attempt, welcome);
    return {};
  }
  if (frame.type != FrameType::challenge || attempt.hub_nonce || !decode(frame.payload, challenge)) {
    give_up(attempt, "answers in another protocol");
    return {};
  }
  attempt.hub_nonce = challenge.nonce;
  MemberClaim claim;
  claim.offer = make_offer(options_.security);
  const ProofPayload proof{prove(options_.secret, ProofRole::member, attempt.nonce, challenge.nonce, claim),
                           claim.offer};
  attempt.socket.send(Frame{FrameType::proof, options_.rank, 0, encode(proof)});
  return {};
}

// On this machine it is a process of our user. On a network it may be any process; its refusal must not end
// the search while other candidates may prove to be right.
Status ParentConnection::on_refused(Attempt& attempt, const StatusPayload& refusal) {
  Candidate& candidate = candidates_[attempt.candidate];
  if (refusal.code == StatusCode::unsupported) {
    give_up(attempt, refusal.message);
    return {};
  }
  Status why(StatusCode::refused,
             fmt::format("{} (says the process at {})", refusal.message, candidate.to_text()));
  if (!candidate.is_remote) return why;
  if (!refusal_) {
    refusal_ = std::move(why);
    refused_until_ = Clock::now() + kRefusalTime;
  }
  candidate.has_refused = true;
  give_up(attempt, refusal.message);
  return {};
}

void ParentConnection::on_welcome(Attempt& attempt, const ClaimPayload& welcome) {
  const Candidate& candidate = candidates_[attempt.candidate];
  const MemberClaim& claim = welcome.claim;
  if (!is_equal(welcome.proof,
                prove(options_.secret, ProofRole::hub, attempt.nonce, *attempt.hub_nonce, claim)))
    return give_up(attempt, "does not prove that it has the job's secret (TUTTI_SECRET)");
  if (candidate.rank != kAnyRank && claim.rank != candidate.rank)
    return give_up(attempt, fmt::format("rank {} answers", claim.rank));
  parent_claim_ = claim;
  is_remote_ = candidate.is_remote;
  address_ = candidate.address;
  ClaimPayload mine;
  mine.claim = own_claim_;
  mine.proof = prove(options_.secret, ProofRole::claim, attempt.nonce, *attempt.hub_nonce, own_claim_);
  socket_ = std::move(attempt.socket);
  socket_.set_limit(kMaxPayloadBytes);
  // The pid as this namespace knows it.
  if (!is_remote_) static_cast<void>(is_same_user(socket_.fd(), &parent_claim_.pid));
  if (is_remote_) {
    limit_silence_strictly(socket_.fd(), options_.silence);
    const WireTerms terms = combine(make_offer(options_.security), claim.offer);
    socket_.protect(make_control_session(options_.secret, terms, attempt.nonce, *attempt.hub_nonce, true));
  }
  socket_.send(Frame{FrameType::claim, options_.rank, 0, encode(mine)});
  stage_ = Stage::joining;
}

void ParentConnection::give_up(Attempt& attempt, std::string outcome) {
  candidates_[attempt.candidate].outcome = std::move(outcome);
  attempt.socket.close();
}

bool ParentConnection::has_failed_everywhere() const {
  return attempts_.empty() &&
         std::none_of(candidates_.begin(), candidates_.end(),
                      [](const Candidate& candidate) { return candidate.outcome.empty(); });
}

void ParentConnection::abandon() {
  attempts_.clear();
  socket_.close();
  stage_ = Stage::over;
}

std::string ParentConnection::describe_search() const {
  std::string text;
  std::size_t left_out = 0;
  for (const Candidate& candidate : candidates_) {
    if (!candidate.is_remote && candidate.name.empty()) continue;
    if (text.size() > 300) {
      ++left_out;
      continue;
    }
    text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", candidate.to_text(),
                        candidate.outcome.empty() ? "no answer yet" : candidate.outcome);
  }
  if (left_out > 0) text += fmt::format("; and {} more", left_out);
  return text;
}

}  // namespace tutti
