// The control thread of every rank: passes frames up to rank 0 and down from it, and leads its node where it was
// the first to try. Knows no meaning of the messages it passes on.
//
// Ranks on the node of rank 0 (or in its network namespace) are connected to rank 0; on every other node one rank listens
// for the others and alone is connected to rank 0. What it passes up for them travels together.
#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>

#include "runtime/group/control_channel.hpp"
#include "runtime/group/control_guests.hpp"
#include "runtime/group/control_root.hpp"
#include "runtime/group/control_uplink.hpp"
#include "runtime/group/fork_guard.hpp"

namespace tutti {
namespace {

constexpr std::chrono::seconds kNameTakenTime{2};  // an earlier life of this job may still be closing its socket
constexpr std::chrono::seconds kGoodbyeTime{1};    // to get our last frames out
constexpr std::chrono::seconds kAnswerTime{1};     // for "who is missing" after the deadline
constexpr std::chrono::seconds kLookUpPause{1};
constexpr std::chrono::milliseconds kTick{100};    // while something has a time limit
constexpr std::chrono::milliseconds kHoldTime{5};  // values wait this long for others of the node to travel with

class ControlTree final : public ControlChannel, private ControlGuests::Owner, private ControlRouter {
 public:
  explicit ControlTree(const ControlOptions& options)
      : ControlChannel(options),
        claim_{options.rank, options.size, ::getpid(), options.host, options.build_id},
        guests_(options_, claim_, *this),
        below_(static_cast<std::size_t>(options.size), nullptr) {
    wake_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (wake_ >= 0) close_on_fork(wake_);
    if (options.rank == 0) {
      root_.emplace(options.size, static_cast<ControlRouter&>(*this));
      root_->admit(claim_);
    } else {
      uplink_.emplace(options_, claim_);
    }
  }
  ~ControlTree() override { stop_thread(); }
  std::string remote_address() override {
    const std::lock_guard lock(remote_mutex_);
    return remote_;
  }

 private:
  struct Batch {
    EntriesPayload payload;
    Clock::time_point until;
  };

  void run() override;
  bool begin();
  Status listen(const std::string& name);
  void try_to_lead();
  void find_root();
  void poll_once();
  Clock::time_point next_limit() const;
  void check_deadline();
  void end_start(const Status& status);
  void say_goodbye();
  bool is_orphan() const { return !root_ && uplink_->stage() == ControlUplink::Stage::over; }

  // From below: of a guest, or our own.
  Status check(const MemberClaim& claim) override;
  void on_joined(Guest& guest) override;
  void on_frame(Guest& guest, Frame frame) override;
  void on_lost(Guest& guest, const Status& why) override;
  void on_frame_from_below(Frame frame);
  void on_arrived(Guest& guest, const ArrivedPayload& payload);
  void on_gone(int rank, bool is_dead, const std::string& text);
  void lose_below(Guest& guest, bool is_dead, const std::string& text);
  void add_to_batch(EntriesPayload payload);
  void pass_batches_up();
  void pass_up(Frame frame);
  std::size_t ranks_here() const;
  void note_remote(std::string address) {
    const std::lock_guard lock(remote_mutex_);
    if (remote_.empty()) remote_ = std::move(address);
  }

  // From above.
  void on_frame_from_above(const Frame& frame);
  void on_parent_lost(const Status& why);
  void send_to(int rank, const Frame& frame) override;
  void send_to_all(const Frame& frame) override;

  const MemberClaim claim_;
  std::optional<ControlRoot> root_;       // rank 0
  std::optional<ControlUplink> uplink_;   // all others
  ControlGuests guests_;
  std::vector<Guest*> below_;             // by rank: the guest that leads there
  std::map<std::uint64_t, Batch> batches_;
  std::vector<MemberClaim> unannounced_;  // joined here before we had joined ourselves
  Clock::time_point lead_at_{};
  bool may_lead_ = false;
  bool must_find_root_ = false;  // leads, and does not know yet where rank 0 may be
  std::string search_trouble_;
  bool is_ready_ = false;
  bool is_over_ = false;
  std::optional<Clock::time_point> asked_until_;  // the deadline has passed and rank 0 was asked who is missing
  std::string missing_;
  std::mutex remote_mutex_;
  std::string remote_;
};

void ControlTree::run() {
  if (!begin()) return;
  while (!is_over_ && !is_stopping()) {
    for (Frame& frame : take_outbox()) on_frame_from_below(std::move(frame));
    pass_batches_up();
    poll_once();
    guests_.drop_expired();
    if ((may_lead_ || must_find_root_) && uplink_->stage() == ControlUplink::Stage::searching &&
        Clock::now() >= lead_at_) {
      may_lead_ ? try_to_lead() : find_root();
    }
    if (!is_ready_ && !is_over_) check_deadline();
  }
  say_goodbye();
}

// False when the start is over.
bool ControlTree::begin() {
  if (root_) {
    const Clock::time_point until = std::min(Clock::now() + kNameTakenTime, deadline_);
    for (;;) {
      const Status status = listen(options_.root_name);
      if (status) break;
      if (status.code() != StatusCode::resource_exhausted || Clock::now() >= until || is_stopping()) {
        end_start(status);
        return false;
      }
      pollfd wake{wake_, POLLIN, 0};
      ::poll(&wake, 1, static_cast<int>(kTick.count()));
    }
    for (const int fd : options_.root_listeners) guests_.listen(fd, true);
    return true;
  }
  uplink_->add_name(options_.root_name);
  may_lead_ = options_.find_root != nullptr;
  if (may_lead_) {
    uplink_->add_name(options_.node_name);
    lead_at_ = Clock::now() + options_.lead_after;
  }
  return true;
}

Status ControlTree::listen(const std::string& name) {
  const Result<int> fd = listen_at(name);
  if (!fd) return fd.status();
  guests_.listen(*fd, false);
  return {};
}

// Whoever gets the node's name leads it; the kernel sees to it that it is one.
void ControlTree::try_to_lead() {
  const Status status = listen(options_.node_name);
  if (!status) {
    lead_at_ = Clock::now() + kTick;  // somebody else does, or has just left: both turn out by looking on
    return;
  }
  may_lead_ = false;
  must_find_root_ = true;
  uplink_->require_root();
  uplink_->forget_name(options_.node_name);
  find_root();
}

// Names may come to be known while ranks start, so an error is not the end.
void ControlTree::find_root() {
  const auto addresses = options_.find_root();
  if (addresses) {
    uplink_->add_addresses(*addresses);
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
  if (guests_.has_limit() || (!is_ready_ && root_)) limit = std::min(limit, Clock::now() + kTick);
  if (uplink_) limit = std::min(limit, uplink_->next_try());
  if ((may_lead_ || must_find_root_) && !is_ready_) limit = std::min(limit, std::max(lead_at_, Clock::now()));
  for (const auto& [number, batch] : batches_) limit = std::min(limit, batch.until);
  return limit;
}

void ControlTree::poll_once() {
  std::vector<pollfd> fds{{wake_, POLLIN, 0}};
  const std::size_t guest_count = guests_.append_fds(fds);
  const std::size_t uplink_count = uplink_ ? uplink_->append_fds(fds) : 0;
  const Clock::time_point limit = next_limit();
  int timeout = -1;
  if (limit != Clock::time_point::max()) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(limit - Clock::now()).count();
    timeout = static_cast<int>(std::clamp<std::int64_t>(left, 0, 60000));
  }
  if (::poll(fds.data(), fds.size(), timeout) < 0) return;
  drain_wake();
  const std::span<const pollfd> all(fds);
  guests_.serve(all.subspan(1, guest_count));
  if (!uplink_ || uplink_->stage() == ControlUplink::Stage::over) return;
  const bool was_searching = uplink_->stage() == ControlUplink::Stage::searching;
  std::vector<Frame> frames;
  const Status status = uplink_->serve(all.subspan(1 + guest_count, uplink_count), frames);
  if (was_searching && uplink_->stage() == ControlUplink::Stage::joining) {
    may_lead_ = must_find_root_ = false;
    note_remote(uplink_->is_remote() ? uplink_->address().to_text() : "");
    if (!unannounced_.empty()) {
      pass_up(Frame{FrameType::arrived, options_.rank, 0, encode(ArrivedPayload{std::move(unannounced_)})});
      unannounced_.clear();
    }
  }
  for (const Frame& frame : frames) {
    if (!is_over_) on_frame_from_above(frame);
  }
  if (status || is_over_) return;
  if (was_searching) return end_start(status);
  on_parent_lost(status);
}

// -- from below ---------------------------------------------------------------------------------------------

Status ControlTree::check(const MemberClaim& claim) {
  if (root_) return root_->check(claim);
  const bool is_rank = claim.rank >= 0 && claim.rank < options_.size && claim.size == options_.size;
  if (is_rank && claim.rank != options_.rank && below_[static_cast<std::size_t>(claim.rank)] == nullptr) return {};
  // The words are those of rank 0, which sees the same contradiction.
  ControlRoot root(options_.size, *this);
  root.admit(claim_);
  for (const Guest* guest : below_) {
    if (guest != nullptr && root.check(guest->claim)) root.admit(guest->claim);
  }
  return root.check(claim);
}

void ControlTree::on_joined(Guest& guest) {
  if (guest.is_remote) note_remote(guest.address.to_text());
  on_arrived(guest, ArrivedPayload{{guest.claim}});
}

void ControlTree::on_arrived(Guest& guest, const ArrivedPayload& payload) {
  ArrivedPayload further;
  for (const MemberClaim& claim : payload.claims) {
    if (const Status status = check(claim); !status) {
      const Frame refusal{FrameType::refused, 0, claim.rank, encode(StatusPayload{status.code(), status.message()})};
      guest.link.send(refusal);
      continue;
    }
    below_[static_cast<std::size_t>(claim.rank)] = &guest;
    if (root_) {
      root_->admit(claim);
    } else {
      further.claims.push_back(claim);
    }
  }
  if (!root_ && !further.claims.empty()) {
    if (uplink_->stage() == ControlUplink::Stage::searching) {
      unannounced_.insert(unannounced_.end(), further.claims.begin(), further.claims.end());
    } else {
      pass_up(Frame{FrameType::arrived, options_.rank, 0, encode(further)});
    }
  }
  if (root_ && !is_ready_ && root_->is_complete()) {
    is_ready_ = true;
    guests_.send_to_all(Frame{FrameType::ready, 0, 0, {}});
    finish_start({});
  }
}

void ControlTree::on_frame(Guest& guest, Frame frame) {
  ArrivedPayload arrived;
  GonePayload gone;
  EntriesPayload entries;
  const auto leads_to = [&](int rank) {
    return rank >= 0 && rank < options_.size && below_[static_cast<std::size_t>(rank)] == &guest;
  };
  switch (frame.type) {
    case FrameType::goodbye:
      lose_below(guest, false, {});
      guest.stage = Guest::Stage::leaving;
      guest.until = Clock::now() + kGoodbyeTime;
      return;
    case FrameType::arrived:
      if (decode(frame.payload, arrived)) on_arrived(guest, arrived);
      return;
    case FrameType::gone:
      if (!decode(frame.payload, gone) || !leads_to(gone.rank)) return;
      below_[static_cast<std::size_t>(gone.rank)] = nullptr;
      return on_gone(gone.rank, gone.is_dead, gone.text);
    case FrameType::gather:
      if (!decode(frame.payload, entries)) return;
      std::erase_if(entries.entries, [&](const auto& entry) { return !leads_to(entry.first); });
      if (root_) return root_->on_gather(entries);
      return add_to_batch(std::move(entries));
    default:
      if (leads_to(frame.source)) on_frame_from_below(std::move(frame));
  }
}

// What goes up from here: to rank 0's books if that is us.
void ControlTree::on_frame_from_below(Frame frame) {
  GatherPayload gather;
  EntriesPayload entries;
  FailurePayload failure;
  switch (frame.type) {
    case FrameType::gather:
      if (!decode(frame.payload, entries)) return;
      if (root_) return root_->on_gather(entries);
      return add_to_batch(std::move(entries));
    case FrameType::who:
      if (!root_) return pass_up(std::move(frame));
      if (decode(frame.payload, gather)) root_->on_who(frame.source, gather.number);
      return;
    case FrameType::failure:
      if (!decode(frame.payload, failure)) return;
      if (root_) return root_->on_failure_request(std::move(failure));
      // Without rank 0 nobody can stamp: the cause holds on this node, and the others find out by their deadlines.
      if (is_orphan()) return send_to_all(frame);
      return pass_up(std::move(frame));
    case FrameType::message:
      if (frame.target < 0 || frame.target >= options_.size) return;
      if (root_ || frame.target == options_.rank || below_[static_cast<std::size_t>(frame.target)] != nullptr)
        return send_to(frame.target, frame);
      return pass_up(std::move(frame));
    default:
      return;  // a process of our own build sends nothing else
  }
}

void ControlTree::on_lost(Guest& guest, const Status& why) {
  lose_below(guest, true, describe_loss(guest.claim, why, guest.is_remote));
}

// The rank at the other end first: it is the cause, and the ranks behind it are what follows from it.
void ControlTree::lose_below(Guest& guest, bool is_dead, const std::string& text) {
  std::vector<int> ranks;
  for (std::size_t rank = 0; rank < below_.size(); ++rank) {
    if (below_[rank] != &guest) continue;
    below_[rank] = nullptr;
    if (static_cast<int>(rank) != guest.claim.rank) ranks.push_back(static_cast<int>(rank));
  }
  std::erase_if(unannounced_, [&](const MemberClaim& claim) { return claim.rank == guest.claim.rank; });
  on_gone(guest.claim.rank, is_dead, text);
  for (const int rank : ranks) {
    on_gone(rank, is_dead, fmt::format("rank {} cannot be reached: it is on the node of {}", rank, text));
  }
}

void ControlTree::on_gone(int rank, bool is_dead, const std::string& text) {
  if (root_) return root_->on_gone(rank, is_dead, text);
  if (!is_orphan()) {
    if (uplink_->stage() == ControlUplink::Stage::searching) return;
    return pass_up(Frame{FrameType::gone, options_.rank, 0, encode(GonePayload{rank, is_dead, text})});
  }
  if (is_dead) {
    send_to_all(Frame{FrameType::failure, 0, 0,
                      encode(FailurePayload{0, rank, rank, StatusCode::peer_failed, text})});
  }
}

std::size_t ControlTree::ranks_here() const {
  return 1 + static_cast<std::size_t>(std::count_if(below_.begin(), below_.end(),
                                                    [](const Guest* guest) { return guest != nullptr; }));
}

void ControlTree::add_to_batch(EntriesPayload payload) {
  const auto [at, is_new] = batches_.try_emplace(payload.number);
  Batch& batch = at->second;
  if (is_new) {
    batch.payload.number = payload.number;
    batch.until = Clock::now() + kHoldTime;
  }
  for (auto& entry : payload.entries) batch.payload.entries.push_back(std::move(entry));
}

void ControlTree::pass_batches_up() {
  if (batches_.empty()) return;
  const Clock::time_point now = Clock::now();
  const std::size_t here = ranks_here();
  std::erase_if(batches_, [&](const auto& item) {
    const Batch& batch = item.second;
    if (batch.payload.entries.size() < here && now < batch.until) return false;
    pass_up(Frame{FrameType::gather, options_.rank, 0, encode(batch.payload)});
    return true;
  });
}

void ControlTree::pass_up(Frame frame) {
  if (!is_orphan()) uplink_->link().send(frame);
}

// -- from above ---------------------------------------------------------------------------------------------

void ControlTree::on_frame_from_above(const Frame& frame) {
  StatusPayload status;
  GatherPayload gather;
  switch (frame.type) {
    case FrameType::ready:
      is_ready_ = true;
      guests_.send_to_all(frame);
      return finish_start({});
    case FrameType::refused:
      if (!decode(frame.payload, status) || status.code == StatusCode::ok)
        status = {StatusCode::refused, "no reason given"};
      // Before rank 0 knows us, a refusal has no target.
      if (frame.target == options_.rank || frame.target == 0) return end_start(Status(status.code, status.message));
      if (frame.target > 0 && frame.target < options_.size) {
        if (Guest* guest = below_[static_cast<std::size_t>(frame.target)]; guest != nullptr) {
          below_[static_cast<std::size_t>(frame.target)] = nullptr;
          if (guest->claim.rank == frame.target) return guests_.refuse(*guest, Status(status.code, status.message));
          guest->link.send(frame);
        }
      }
      return;
    case FrameType::missing:
      if (!is_ready_ && frame.target == options_.rank && decode(frame.payload, gather) && gather.values.size() == 1) {
        missing_ = gather.values[0];
        asked_until_ = Clock::now();
        return;
      }
      return send_to(frame.target, frame);
    case FrameType::message:
      return send_to(frame.target, frame);
    case FrameType::goodbye:
      // It has left in peace. The others go on without a control channel: what it would tell us now comes
      // from deadlines only.
      lose(Status(StatusCode::peer_failed, fmt::format("rank {} has left the world", uplink_->parent().rank),
                  uplink_->parent().rank));
      is_over_ = true;
      return;
    default:
      return send_to_all(frame);
  }
}

void ControlTree::on_parent_lost(const Status& why) {
  const MemberClaim& parent = uplink_->parent();
  const std::string text =
      why.code() == StatusCode::refused ? why.message() : describe_loss(parent, why, uplink_->is_remote());
  if (!is_ready_) return end_start(Status(why.code(), text, parent.rank));
  send_to_all(Frame{FrameType::failure, 0, 0,
                    encode(FailurePayload{0, parent.rank, parent.rank, StatusCode::peer_failed, text})});
  // Who leads a node goes on for its members.
  is_over_ = ranks_here() == 1;
}

void ControlTree::send_to(int rank, const Frame& frame) {
  if (rank == options_.rank) return deliver(frame);
  if (rank < 0 || rank >= options_.size) return;
  if (Guest* guest = below_[static_cast<std::size_t>(rank)]; guest != nullptr) guest->link.send(frame);
}

void ControlTree::send_to_all(const Frame& frame) {
  guests_.send_to_all(frame);  // the others first: our own listener may take its time
  deliver(frame);
}

// -- start and end ------------------------------------------------------------------------------------------

void ControlTree::check_deadline() {
  const Clock::time_point now = Clock::now();
  if (now < asked_until_.value_or(deadline_)) return;
  const auto absent = [&](const std::string& who) {
    return Status(StatusCode::timeout,
                  fmt::format("{} did not arrive within {}", who, format_seconds(options_.timeout)));
  };
  if (root_) return end_start(absent(name_ranks(root_->absent_ranks(), options_.size)));
  if (uplink_->stage() == ControlUplink::Stage::searching) {
    return end_start(Status(StatusCode::timeout,
                            fmt::format("rank 0 of {} did not arrive within {}: {}", options_.size,
                                        format_seconds(options_.timeout), uplink_->describe_search()) +
                                (search_trouble_.empty() ? "" : "; " + search_trouble_),
                            0));
  }
  if (!asked_until_) {
    pass_up(Frame{FrameType::who, options_.rank, 0, encode(GatherPayload{})});
    asked_until_ = now + kAnswerTime;
    return;
  }
  end_start(absent(missing_.empty() ? "some rank" : missing_));
}

// The world does not come to be, for us and whoever is below us.
void ControlTree::end_start(const Status& status) {
  guests_.send_to_all(Frame{FrameType::refused, 0, 0, encode(StatusPayload{status.code(), status.message()})});
  is_over_ = true;
  lose(status);
  finish_start(status);
}

void ControlTree::say_goodbye() {
  const Clock::time_point until = Clock::now() + kGoodbyeTime;
  if (is_ready_) {
    for (Frame& frame : take_outbox()) on_frame_from_below(std::move(frame));
    for (auto& [number, batch] : batches_) batch.until = {};
    pass_batches_up();
    guests_.send_to_all(Frame{FrameType::goodbye, options_.rank, 0, {}});
    if (!root_ && !is_orphan()) uplink_->link().send(Frame{FrameType::goodbye, options_.rank, 0, {}});
  }
  guests_.finish(until);
  if (root_) return;
  Link& link = uplink_->link();
  while (is_ready_ && link.is_open() && link.flush() && link.has_output() && Clock::now() < until) {
    pollfd writable{link.fd(), POLLOUT, 0};
    ::poll(&writable, 1, 100);
  }
  link.close();
}

}  // namespace

std::unique_ptr<ControlChannel> make_control_tree(const ControlOptions& options) {
  return std::make_unique<ControlTree>(options);
}

}  // namespace tutti
