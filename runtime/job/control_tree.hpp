// The control thread of every rank. It forwards frames up to rank 0 and down from it, and leads its node if
// it was the first to try. Knows no meaning of the messages that it forwards.
//
// Ranks on the node of rank 0 (or in its network namespace) are children of rank 0. On every other node one
// rank, the leader, listens for the others and connects to rank 0. Once all ranks have joined, rank 0 makes a
// tree of the leaders if they are many (control_plan.hpp). Leaders that get children open listeners. Their
// children get the addresses, attach there and leave their first connection. Values of several ranks share
// one frame on the way up.
//
// Every rank knows its path: the ranks between it and rank 0, with their addresses. An orphaned rank attaches
// to the next one on the path that answers, and names its descendants. Until then rank 0 counts them all as
// orphaned. The new parent sends the frames to all that they have missed.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "runtime/job/child_connections.hpp"
#include "runtime/job/control_channel.hpp"
#include "runtime/job/control_plan.hpp"
#include "runtime/job/control_root.hpp"
#include "runtime/job/parent_connection.hpp"

namespace tutti {

class ControlTree final : public ControlChannel, private ChildConnections::Owner, private ControlRouter {
 public:
  ControlTree(const ControlOptions& options, Listeners listeners);
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

  // Parents lost since the last frame from a parent. A new parent may be lost before it sends one; so is rank
  // 0 if it leaves because of the first loss.
  struct Loss {
    FailurePayload first;  // to report if no new parent is found
    int last;              // rank of the last one
  };

  using Key = std::tuple<FrameType, std::uint64_t, std::int32_t>;

  void run() override;
  ProcessState inspect(int rank) override;
  bool begin();
  Status listen(const std::string& name);
  Status listen_as_root();
  void remove_private_name();
  MemberClaim without_double(MemberClaim claim) const;
  void search_leader(std::chrono::milliseconds lead_after);
  void try_to_lead();
  void find_root();
  void poll_once();
  void serve_parent(std::span<const pollfd> fds);
  void serve_next(std::span<const pollfd> fds);
  void serve_retired();
  Clock::time_point next_limit() const;
  void check_deadline();
  void end_start(const Status& status);
  void say_goodbye();
  bool is_cut_off() const { return !root_ && parent_->stage() == ParentConnection::Stage::over; }
  bool is_searching() const { return !root_ && parent_->stage() == ParentConnection::Stage::searching; }

  // Frames of a child, or of this rank.
  Status check(const MemberClaim& claim) override;
  void on_joined(ChildConnection& child) override;
  void on_frame(ChildConnection& child, Frame frame) override;
  void on_lost(ChildConnection& child, const Status& why) override;
  void on_exhausted(const Status& why) override;
  void on_frame_from_below(Frame frame);
  void on_arrived(ChildConnection& child, const ArrivedPayload& payload);
  void on_gone(const GonePayload& gone);
  void on_attached(ChildConnection& child, const Frame& frame);
  void on_moving(ChildConnection& child);
  void on_query_missing(const Frame& frame, std::uint64_t number);
  static GonePayload make_gone(int rank, const std::optional<RankVerdict>& death);
  GonePayload make_orphan(int rank, const std::optional<RankVerdict>& death);
  void lose_below(ChildConnection& child, const std::optional<RankVerdict>& death);
  void add_to_batch(EntriesPayload payload);
  void pass_batches_up();
  void pass_up(Frame frame);
  void route(const Frame& frame);  // towards its target
  void on_trace(const Frame& frame, bool is_from_above);
  void request_failure(Frame frame, std::uint64_t group);
  std::vector<std::int32_t> ranks_here() const;  // ours first
  void note_remote(std::string address) {
    const std::lock_guard lock(remote_mutex_);
    if (remote_.empty()) remote_ = std::move(address);
  }

  // Frames of the parent.
  void on_frame_from_above(const Frame& frame);
  void on_refused(const Frame& frame);
  void on_missing(const Frame& frame);
  void on_parent_left(int rank);
  void on_parent_lost(const Status& why);
  void replace_leader(GonePayload gone, Status lost);
  static std::optional<Key> key_of(const Frame& frame);
  bool is_news(const Frame& frame) const {
    const auto key = key_of(frame);
    return !key || told_keys_.count(*key) == 0;
  }
  void remember(const Frame& frame);
  void send_to(int rank, const Frame& frame) override;
  void send_to_all(const Frame& frame) override;

  // Rank 0: the tree of leaders. Other ranks: their parent and path (control_moves.cpp).
  void start_tree();
  void on_listening(const ChildConnection& child, const Frame& frame);
  void finish_tree();
  std::vector<int> late_ranks() const;
  void on_parent_found(bool is_move);
  void open_listeners();
  void move_to(const PathStep& step);
  void stay_here();
  void set_path(std::vector<PathStep> path);
  Frame make_path_frame() const;
  void welcome_mover(ChildConnection& child);
  void search_parent(Clock::time_point start, bool asks_parent);
  void try_next_step(Clock::time_point start);
  void become_cut_off();
  void keep_limits();
  bool has_remote_parent() const;
  bool has_neighbours_elsewhere() const;
  void keep_second(Clock::time_point now);

  const MemberClaim claim_;
  std::optional<ControlRoot> root_;         // rank 0
  std::optional<ParentConnection> parent_;  // all others
  ChildConnections children_;
  Listeners listeners_;                  // until they are in use
  std::vector<ChildConnection*> below_;  // by rank: the child on the route to it
  std::map<std::uint64_t, Batch> batches_;
  std::vector<MemberClaim> unannounced_;  // joined here before this rank had joined
  std::optional<ControlPlan> plan_;       // rank 0, once all have arrived

  std::vector<PathStep> path_;            // our parent, its parent, ... rank 0, with their addresses
  std::string root_address_;              // of rank 0, by our own connection
  std::string listen_addresses_;          // of our listeners
  std::optional<ParentConnection> next_;  // the parent that rank 0 has assigned
  FrameSocket retired_;                   // the connection to rank 0 that it replaces
  std::vector<PathStep> to_try_;          // after a parent was lost
  Clock::time_point move_until_{};        // for next_ and to_try_, and for another leader
  std::optional<Loss> lost_;  // none: the parent left in an orderly way, or its successor has answered
  std::vector<GonePayload> held_gone_;        // to report once a new parent is found
  std::map<std::uint64_t, Frame> requested_;  // by group: causes that await the decision of rank 0
  std::vector<Frame> told_;                   // frames to all, for ranks that attach later
  std::set<Key> told_keys_;

  bool has_private_name_ = false;  // to be removed
  Clock::time_point lead_at_{};
  bool may_lead_ = false;
  bool must_find_root_ = false;  // leads, and has no address of rank 0 yet
  std::string search_trouble_;
  Status lost_leader_;  // during the start
  bool is_ready_ = false;
  bool is_over_ = false;
  int leaving_rank_;                 // named in our goodbye: this rank, or rank 0 if it left first
  Clock::time_point next_second_{};  // of ranks with neighbours on other nodes
  std::optional<Clock::time_point>
      asked_until_;  // the deadline has passed, and query_missing was sent to rank 0
  std::string missing_;
  int first_missing_ = Status::kNoPeer;
  std::mutex remote_mutex_;
  std::string remote_;
};

}  // namespace tutti
