// How ranks change their parent: leaders of many nodes at the start, orphaned ranks later. Knows no meaning
// of the messages it passes on; see control_tree.hpp.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runtime/job/control_tree.hpp"

namespace tutti {
namespace {

constexpr std::size_t kMaxTold = 16384;

std::string with_first(const std::string& address, const std::string& addresses) {
  return address.empty() || addresses.empty() ? address + addresses : address + " " + addresses;
}

}  // namespace

// -- rank 0, at the start -----------------------------------------------------------------------------------

// All ranks have joined, and their leaders are connected to us.
void ControlTree::start_tree() {
  std::vector<int> leaders;
  for (std::size_t rank = 0; rank < below_.size(); ++rank) {
    const ChildConnection* child = below_[rank];
    if (child != nullptr && child->is_remote && child->claim.rank == static_cast<int>(rank))
      leaders.push_back(static_cast<int>(rank));
  }
  plan_.emplace(leaders, options_.degree);
  for (const int host : plan_->hosts()) send_to(host, Frame{FrameType::open_listener, 0, host, {}});
  finish_tree();
}

void ControlTree::on_listening(const ChildConnection& child, const Frame& frame) {
  PathPayload payload;
  if (!plan_ || is_ready_ || !decode(frame.payload, payload) || payload.steps.size() != 1) return;
  PathStep step = std::move(payload.steps[0]);
  step.rank = child.claim.rank;
  const bool can_host = !step.addresses.empty();
  if (can_host) {
    // First the address at which we see it: that route is known to work.
    const auto addresses = split_addresses(step.addresses);
    if (addresses && !addresses->empty()) {
      step.addresses =
          with_first(child.address.with_port(addresses->front().port()).to_text(), step.addresses);
    }
    for (const int leader : plan_->below(step.rank))
      send_to(leader, Frame{FrameType::attach, 0, leader, encode(PathPayload{{step}})});
  }
  plan_->on_listening(step.rank, can_host);
  finish_tree();
}

void ControlTree::finish_tree() {
  if (is_ready_ || !plan_ || !plan_->is_complete()) return;
  is_ready_ = true;
  remove_private_name();  // all have come
  children_.close_unused_listeners();
  children_.send_to_all(Frame{FrameType::ready, 0, 0, {}});
  finish_start({});
}

std::vector<int> ControlTree::late_ranks() const { return plan_ ? plan_->awaited() : root_->absent_ranks(); }

// -- leader of a node, at the start -------------------------------------------------------------------------

void ControlTree::open_listeners() {
  Result<Listeners> listeners = options_.open_listeners
                                    ? options_.open_listeners()
                                    : Result<Listeners>(Status(StatusCode::unsupported, "no network"));
  Status status = listeners.status();
  if (listeners) {
    for (FrameSocket& socket : listeners->sockets) {
      if (status) status = children_.listen(std::move(socket), true);
    }
  }
  if (status) {
    listen_addresses_ = join_addresses(listeners->addresses);
  } else {
    warn(fmt::format("other nodes stay connected to rank 0: {}", status.message()));
  }
  pass_up(Frame{FrameType::listening, options_.rank, 0,
                encode(PathPayload{{{options_.rank, listen_addresses_}}})});
  set_path(path_);
}

void ControlTree::move_to(const PathStep& step) {
  const auto addresses = split_addresses(step.addresses);
  if (is_ready_ || next_ || !addresses) return stay_here();
  to_try_ = {{0, root_address_}};  // follows the new parent on our path, until it sends its own
  next_.emplace(options_, claim_.as_moving());
  next_->add_addresses(*addresses, step.rank);
  move_until_ = Clock::now() + options_.rejoin_time;
}

// The new parent cannot be reached: stay a child of rank 0.
void ControlTree::stay_here() {
  warn(fmt::format("this node stays connected to rank 0: {}",
                   next_ ? next_->describe_search() : "no address"));
  next_.reset();
  pass_up(Frame{FrameType::attached, options_.rank, 0, encode(RanksPayload{ranks_here()})});
}

// -- path of any rank ---------------------------------------------------------------------------------------

// The first parent, or a later one.
void ControlTree::on_parent_found(bool is_move) {
  may_lead_ = must_find_root_ = false;
  const std::string address = parent_->is_remote() ? parent_->address().to_text() : "";
  note_remote(address);
  if (parent_->claim().rank == 0) root_address_ = address;
  std::vector<PathStep> path = {{parent_->claim().rank, {}}};
  if (is_move) path.insert(path.end(), to_try_.begin(), to_try_.end());
  set_path(std::move(path));
  if (!is_move) {
    if (!unannounced_.empty())
      pass_up(Frame{FrameType::arrived, options_.rank, 0, encode(ArrivedPayload{std::move(unannounced_)})});
    unannounced_.clear();
    for (const GonePayload& gone : std::exchange(held_gone_, {})) on_gone(gone);
    return;
  }
  // A parent whose connection was reset, and that answers again, is alive.
  std::erase_if(held_gone_, [&](const GonePayload& gone) { return gone.rank == parent_->claim().rank; });
  RanksPayload ranks{ranks_here()};
  for (const GonePayload& gone : held_gone_) {  // whose end we report ourselves
    if (!lost_ || gone.rank != lost_->last) ranks.ranks.push_back(gone.rank);
  }
  pass_up(Frame{FrameType::attached, options_.rank, 0, encode(ranks)});
  for (const GonePayload& gone : std::exchange(held_gone_, {})) on_gone(gone);
  for (const auto& [group, frame] : requested_) pass_up(frame);
}

// From our parent to rank 0, as our parent sends it. Our children derive theirs from it.
void ControlTree::set_path(std::vector<PathStep> path) {
  path_ = std::move(path);
  if (path_.empty()) return;
  if (parent_->is_remote() && path_.front().rank != 0)
    path_.front().addresses = with_first(parent_->address().to_text(), path_.front().addresses);
  // A connection of our own to rank 0 gives the best address.
  if (path_.back().rank == 0 && !root_address_.empty()) path_.back().addresses = root_address_;
  children_.send_to_all(make_path_frame());
}

Frame ControlTree::make_path_frame() const {
  PathPayload payload{{{options_.rank, listen_addresses_}}};
  payload.steps.insert(payload.steps.end(), path_.begin(), path_.end());
  return Frame{FrameType::path, options_.rank, 0, encode(payload)};
}

// It had another parent, and may have missed frames to all.
void ControlTree::welcome_mover(ChildConnection& child) {
  for (const Frame& frame : told_) child.socket.send(frame);
}

void ControlTree::remember(const Frame& frame) {
  if (told_.size() >= kMaxTold) return;
  if (const auto key = key_of(frame); key && told_keys_.insert(*key).second) told_.push_back(frame);
}

// -- a new parent -----------------------------------------------------------------------------------------

void ControlTree::search_parent(Clock::time_point start, bool asks_parent) {
  to_try_.clear();
  if (!path_.empty()) to_try_.assign(path_.begin() + (asks_parent ? 0 : 1), path_.end());
  move_until_ = std::max(start, Clock::now()) + options_.rejoin_time;
  try_next_step(start);
}

void ControlTree::try_next_step(Clock::time_point start) {
  while (!to_try_.empty()) {
    const PathStep step = std::move(to_try_.front());
    to_try_.erase(to_try_.begin());
    const auto addresses = split_addresses(step.addresses);
    if (!addresses || addresses->empty()) continue;
    parent_.emplace(options_, claim_.as_moving(), start);
    parent_->add_addresses(*addresses, step.rank);
    return;
  }
  become_cut_off();
}

// Gives up: from now on this rank and its descendants have no connection to rank 0.
void ControlTree::become_cut_off() {
  parent_->abandon();
  to_try_.clear();
  if (!lost_) {  // our parent left in an orderly way
    is_over_ = true;
    return;
  }
  send_to_all(Frame{FrameType::failure, 0, 0, encode(lost_->first)});
  for (const GonePayload& gone : std::exchange(held_gone_, {})) on_gone(gone);
  for (const auto& [group, frame] : std::exchange(requested_, {})) request_failure(frame, group);
  // With descendants the thread goes on for them.
  is_over_ = ranks_here().size() == 1;
}

// Handles everything that has a deadline.
void ControlTree::keep_limits() {
  const Clock::time_point now = Clock::now();
  keep_second(now);
  if (root_) {
    if (is_ready_) root_->drop_overdue(now);
  } else if (next_) {
    if (next_->has_failed_everywhere() || now >= move_until_) stay_here();
  } else if (is_ready_ && is_searching()) {
    if (now >= move_until_) return become_cut_off();
    if (parent_->has_failed_everywhere()) try_next_step({});
  }
}

}  // namespace tutti
