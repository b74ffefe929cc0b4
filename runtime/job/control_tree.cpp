// The start, the loop and the end of the control thread. Knows no meaning of frames; see control_tree.hpp.
#include "runtime/job/control_tree.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "runtime/base/fork_guard.hpp"
#include "runtime/base/rank_lists.hpp"

namespace tutti {
namespace {

constexpr std::chrono::seconds kNameTakenTime{
    2};                                          // an earlier run of this job may still be closing its socket
constexpr std::chrono::seconds kGoodbyeTime{1};  // to write our last frames
constexpr std::chrono::seconds kAnswerTime{1};   // for query_missing after the deadline
constexpr std::chrono::seconds kLookUpPause{1};
constexpr std::chrono::milliseconds kTick{100};  // while something has a deadline
constexpr std::chrono::seconds kSecond{1};
// on_second() takes at most one 200th of the time, but is called at least once in 10 s.
constexpr int kMostSecondShare = 200;
constexpr std::chrono::seconds kLongestBetweenSeconds{10};

}  // namespace

ControlTree::ControlTree(const ControlOptions& options, Listeners listeners)
    : ControlChannel(options),
      claim_{options.rank, options.size, ::getpid(), options.host, options.build_id},
      children_(options_, claim_, *this),
      listeners_(std::move(listeners)),
      below_(static_cast<std::size_t>(options.size), nullptr),
      leaving_rank_(options.rank) {
  wake_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake_ >= 0) close_on_fork(wake_);
  if (options.rank == 0) {
    root_.emplace(options.size, static_cast<ControlRouter&>(*this));
    root_->admit(claim_);
  } else {
    parent_.emplace(options_, claim_);
  }
}

void ControlTree::run() {
  if (!begin()) return;
  while (!is_over_ && !is_stopping()) {
    for (Frame& frame : take_outbox()) on_frame_from_below(std::move(frame));
    pass_batches_up();
    poll_once();
    children_.drop_expired();
    if (root_ && !is_over_) root_->tell_departures();
    if ((may_lead_ || must_find_root_) && is_searching() && Clock::now() >= lead_at_) {
      may_lead_ ? try_to_lead() : find_root();
    }
    if (!is_over_) keep_limits();
    if (!is_ready_ && !is_over_) check_deadline();
  }
  say_goodbye();
}

// False when the start is over.
bool ControlTree::begin() {
  if (root_) {
    const Clock::time_point until = std::min(Clock::now() + kNameTakenTime, deadline_);
    for (;;) {
      const Status status = listen_as_root();
      if (status) break;
      if (status.code() != StatusCode::resource_exhausted || Clock::now() >= until || is_stopping()) {
        end_start(status);
        return false;
      }
      pollfd wake{wake_, POLLIN, 0};
      ::poll(&wake, 1, static_cast<int>(kTick.count()));
    }
    for (FrameSocket& socket : listeners_.sockets) {
      if (const Status status = children_.listen(std::move(socket), true); !status) {
        end_start(status);
        return false;
      }
    }
    return true;
  }
  search_leader(options_.lead_after);
  return true;
}

// Of this node, or rank 0; or this rank will lead, after that time.
void ControlTree::search_leader(std::chrono::milliseconds lead_after) {
  parent_->add_name(options_.root_name, 0);
  if (!options_.private_name.empty()) parent_->add_name(options_.private_name, 0);
  may_lead_ = options_.find_root != nullptr;
  if (may_lead_) {
    parent_->add_name(options_.node_name, ParentConnection::kAnyRank);
    lead_at_ = Clock::now() + lead_after;
  }
}

Status ControlTree::listen(const std::string& name) {
  const Result<int> fd = listen_at(name);
  if (!fd) return fd.status();
  return children_.listen(FrameSocket(*fd), false);
}

// Ranks meet at a name that nobody can guess, where the job has a secret. At the other one a process with another secret
// is refused, and nothing depends on it. Without a secret another user may have taken it, to keep the job from starting.
Status ControlTree::listen_as_root() {
  if (!options_.private_name.empty() && !is_path_name(options_.private_name)) {
    TUTTI_RETURN_IF_ERROR(listen(options_.private_name));
    static_cast<void>(listen(options_.root_name));
    return {};
  }
  Status status = listen(options_.root_name);
  if (status || status.code() != StatusCode::resource_exhausted || options_.private_name.empty())
    return status;
  const Result<int> other = try_connect(options_.root_name);
  if (other && *other >= 0) ::close(*other);
  if (other || other.status().code() != StatusCode::refused) return status;  // a process of ours
  TUTTI_RETURN_IF_ERROR(prepare_name(options_.private_name));
  TUTTI_RETURN_IF_ERROR(listen(options_.private_name));
  has_private_name_ = true;
  warn(fmt::format("{}; the ranks of this node meet at {}", other.status().message(), options_.private_name));
  return {};
}

void ControlTree::remove_private_name() {
  if (std::exchange(has_private_name_, false)) remove_name(options_.private_name);
}

// The process that binds the node's name leads the node. The kernel grants the name once.
void ControlTree::try_to_lead() {
  const Status status = listen(options_.node_name);
  if (!status) {
    lead_at_ = Clock::now() + kTick;  // another process leads, or has just left: the search finds out
    return;
  }
  may_lead_ = false;
  must_find_root_ = true;
  parent_->forget_name(options_.node_name);
  find_root();
}

// Host names may become resolvable while ranks start, so an error is not final.
void ControlTree::find_root() {
  const auto addresses = options_.find_root();
  if (addresses) {
    parent_->add_addresses(*addresses, 0);
    must_find_root_ = false;
  } else {
    search_trouble_ = addresses.status().message();
    lead_at_ = Clock::now() + kLookUpPause;
  }
}

// -- the loop -----------------------------------------------------------------------------------------------

Clock::time_point ControlTree::next_limit() const {
  Clock::time_point limit = Clock::time_point::max();
  if (!is_ready_) limit = asked_until_.value_or(deadline_);
  if (children_.has_limit() || (!is_ready_ && root_)) limit = std::min(limit, Clock::now() + kTick);
  if (parent_) limit = std::min(limit, parent_->next_try());
  if ((may_lead_ || must_find_root_) && !is_ready_) limit = std::min(limit, std::max(lead_at_, Clock::now()));
  if (next_) limit = std::min({limit, next_->next_try(), move_until_});
  if (is_ready_ && is_searching()) return std::min(limit, move_until_);  // values wait until we are attached
  if (is_ready_ && root_) limit = std::min(limit, root_->next_overdue());
  if (has_neighbours_elsewhere()) limit = std::min(limit, next_second_);
  for (const auto& [number, batch] : batches_) limit = std::min(limit, batch.until);
  return limit;
}

void ControlTree::poll_once() {
  std::vector<pollfd> fds{{wake_, POLLIN, 0}};
  const std::size_t child_count = children_.append_fds(fds);
  const std::size_t parent_count = parent_ ? parent_->append_fds(fds) : 0;
  const std::size_t next_count = next_ ? next_->append_fds(fds) : 0;
  const bool has_next = next_.has_value(), has_retired = retired_.is_open();
  if (has_retired) {
    static_cast<void>(retired_.flush());
    fds.push_back({retired_.fd(), static_cast<short>(retired_.has_output() ? POLLIN | POLLOUT : POLLIN), 0});
  }
  const Clock::time_point limit = next_limit();
  const int timeout = limit == Clock::time_point::max() ? -1 : poll_milliseconds(limit);
  if (::poll(fds.data(), fds.size(), timeout) < 0) return;
  drain_wake();
  const std::span<const pollfd> all(fds);
  children_.serve(all.subspan(1, child_count));
  if (parent_ && !is_over_) serve_parent(all.subspan(1 + child_count, parent_count));
  if (has_retired && all.back().revents != 0 && !is_over_) serve_retired();
  if (has_next && next_ && !is_over_) serve_next(all.subspan(1 + child_count + parent_count, next_count));
}

void ControlTree::serve_parent(std::span<const pollfd> fds) {
  if (is_cut_off()) return;
  const bool was_searching = is_searching();
  std::vector<Frame> frames;
  const Status status = parent_->serve(fds, frames);
  if (was_searching && !is_searching()) on_parent_found(is_ready_);
  for (const Frame& frame : frames) {
    if (!is_over_) on_frame_from_above(frame);
  }
  if (status || is_over_) return;
  if (was_searching) return is_ready_ ? try_next_step({}) : end_start(lost_leader_ ? status : lost_leader_);
  if (is_cut_off())
    on_parent_lost(status);  // otherwise its last frame has started the search for a new parent
}

// Serves the connection to the parent that rank 0 has assigned.
void ControlTree::serve_next(std::span<const pollfd> fds) {
  std::vector<Frame> frames;
  if (!next_->serve(fds, frames)) return stay_here();
  if (next_->stage() != ParentConnection::Stage::joining) return;
  parent_->socket().send(Frame{FrameType::moving, options_.rank, 0, {}});
  retired_ = std::move(parent_->socket());
  parent_.emplace(*std::move(next_));
  next_.reset();
  on_parent_found(true);
  for (const Frame& frame : frames) {
    if (!is_over_) on_frame_from_above(frame);
  }
}

// Rank 0 closes it after our last frame there. Until then it may report that the start has failed.
void ControlTree::serve_retired() {
  std::vector<Frame> frames;
  const Status status = retired_.receive(frames);
  for (const Frame& frame : frames) {
    if (!is_over_) on_frame_from_above(frame);
  }
  if (!status) retired_.close();
}

bool ControlTree::has_neighbours_elsewhere() const {
  return is_ready_ && (has_remote_parent() || children_.has_remote_members());
}

bool ControlTree::has_remote_parent() const {
  return !root_ && !is_cut_off() && !is_searching() && parent_->is_remote();
}

void ControlTree::keep_second(Clock::time_point now) {
  if (now < next_second_ || !has_neighbours_elsewhere()) return;
  std::vector<int> neighbours;
  for (const ChildConnection* child : children_.remote_members()) {
    const bool is_routed = below_[static_cast<std::size_t>(child->claim.rank)] == child;
    if (is_routed && !child->socket.has_output()) neighbours.push_back(child->claim.rank);
  }
  if (has_remote_parent() && !parent_->socket().has_output()) neighbours.push_back(parent_->claim().rank);
  tell_second(neighbours);
  const Clock::time_point end = Clock::now();
  next_second_ =
      end + std::clamp<Clock::duration>(kMostSecondShare * (end - now), kSecond, kLongestBetweenSeconds);
}

// -- start and end ------------------------------------------------------------------------------------------

void ControlTree::check_deadline() {
  const Clock::time_point now = Clock::now();
  if (options_.watch_start) {
    if (const Status lost = options_.watch_start(); !lost) return end_start(lost);
  }
  // Another process may replace a dead one; but that is not awaited until the deadline.
  if (root_) {
    if (const Status lost = root_->find_loss(now - options_.rejoin_time); !lost) return end_start(lost);
  }
  if (!lost_leader_ && is_searching() && now >= move_until_) return end_start(lost_leader_);
  if (now < asked_until_.value_or(deadline_)) return;
  const auto absent = [&](const std::string& who, int first) {
    return Status(StatusCode::timeout,
                  fmt::format("{} did not arrive within {}", who, format_seconds(options_.timeout)), first);
  };
  if (root_) {
    if (const Status lost = root_->find_loss(now); !lost) return end_start(lost);  // nobody took its place
    const std::vector<int> late = late_ranks();
    return end_start(absent(name_ranks(late, options_.size), late.front()));
  }
  if (is_searching()) {
    if (!lost_leader_) return end_start(lost_leader_);  // rank 0 may have ended because of it
    return end_start(Status(StatusCode::timeout,
                            fmt::format("rank 0 of {} did not arrive within {}: {}", options_.size,
                                        format_seconds(options_.timeout), parent_->describe_search()) +
                                (search_trouble_.empty() ? "" : "; " + search_trouble_),
                            0));
  }
  if (!asked_until_) {
    pass_up(Frame{FrameType::query_missing, options_.rank, 0, encode(GatherPayload{})});
    asked_until_ = now + kAnswerTime;
    return;
  }
  end_start(absent(missing_.empty() ? "some rank" : missing_, first_missing_));
}

// The start has failed, for this rank and its descendants.
void ControlTree::end_start(const Status& status) {
  children_.send_to_all_known(
      Frame{FrameType::refused, 0, 0, encode(StatusPayload{status.code(), status.message(), status.peer()})});
  is_over_ = true;
  lose(status);
  finish_start(status);
}

// During the start an awaited rank cannot join, so the start ends at once.
void ControlTree::on_exhausted(const Status& why) { is_ready_ ? warn(why.message()) : end_start(why); }

void ControlTree::say_goodbye() {
  remove_private_name();
  const Clock::time_point until = Clock::now() + kGoodbyeTime;
  if (is_ready_) {
    for (Frame& frame : take_outbox()) on_frame_from_below(std::move(frame));
    if (root_) root_->tell_departures();
    for (auto& [number, batch] : batches_) batch.until = {};
    pass_batches_up();
    children_.say_goodbye(leaving_rank_);
  }
  if (!root_ && !is_cut_off()) parent_->socket().send(Frame{FrameType::goodbye, options_.rank, 0, {}});
  children_.finish(until);
  if (root_) return;
  FrameSocket& socket = parent_->socket();
  while (socket.is_open() && socket.flush() && socket.has_output() && Clock::now() < until) {
    pollfd writable{socket.fd(), POLLOUT, 0};
    ::poll(&writable, 1, 100);
  }
  socket.close();
}

std::unique_ptr<ControlChannel> make_control_tree(const ControlOptions& options, Listeners listeners) {
  return std::make_unique<ControlTree>(options, std::move(listeners));
}

}  // namespace tutti
