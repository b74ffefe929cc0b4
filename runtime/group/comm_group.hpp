// A group: its members, the operations submitted to it, its failure, its streams and the groups made from it.
// Knows no bootstrap and no transport by name. CommGroup of tutti.hpp is a handle of this.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

#include "backends/backend.hpp"
#include "runtime/base/fork_guard.hpp"
#include "runtime/group/world.hpp"
#include "tutti/tutti.hpp"

namespace tutti {

class CallFusion;
class DeviceCalls;

struct CommGroup::Impl final : public GroupMember, public std::enable_shared_from_this<CommGroup::Impl> {
  // A group of these world ranks (at least this one), in this order. `context` must be equal on all members
  // and new.
  // `rules` choose instead of the world's, equal on all members (null: the world's do).
  static std::shared_ptr<Impl> make(std::shared_ptr<WorldState> world, std::vector<int> world_ranks,
                                    std::uint64_t context, std::chrono::milliseconds timeout,
                                    std::shared_ptr<const Selector> rules = nullptr);
  // A new group of ranks that have this world in common. `name` is random and equal on all members. Waits
  // until all members have it. Calls `when_met` once all members have arrived and before any returns. Throws.
  static std::shared_ptr<Impl> make_within(std::shared_ptr<WorldState> world, std::vector<int> world_ranks,
                                           std::string_view name, std::chrono::milliseconds timeout,
                                           const std::function<void()>& when_met);
  // A new group of the same members with other rules, for a tuner: an algorithm argument would be parsed
  // again on each call. Collective; no communication.
  std::shared_ptr<Impl> with_rules(std::shared_ptr<const Selector> rules);
  // The stream of CommGroup::stream(). Made at the first call, and kept until it is closed. Any thread.
  std::shared_ptr<Impl> stream(int number);
  // See CommGroup::close_stream(). Throws.
  void close_stream(int number);
  // A stream for this group's own purposes, or this stream's, which no program can name.
  enum class Purpose : std::uint8_t { device_exchange, device_staging, fusion_lengths, fused_calls };
  static constexpr int kPurposes = 4;
  Impl& internal_stream(Purpose purpose);
  // A reference to this group, or to this stream, which keeps its whole group alive.
  std::shared_ptr<Impl> handle() { return owner_ == nullptr ? shared_from_this() : stream_handle(); }
  // The same for this group or this stream; null once that is closed.
  std::shared_ptr<Impl> find_handle(const Impl* meant);
  std::weak_ptr<Impl> weak_owner() { return owner().weak_from_this(); }
  // The object of a handle, for the function `name`. Throws if it is closed or this process may not use it.
  static Impl& of(const CommGroup& handle, const char* name) {
    if (handle.impl_ == nullptr) refuse_closed(name);
    handle.impl_->check_process();
    return *handle.impl_;
  }
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  std::uint64_t number() const { return number_; }  // from 1; of this group and no other of this process
  int rank() const { return rank_; }
  int size() const { return static_cast<int>(world_ranks_.size()); }
  WorldState& world() const { return *world_; }
  const std::shared_ptr<WorldState>& world_handle() const { return world_; }
  GroupContext& group() const { return *group_; }
  Backend& backend() const { return *backend_; }
  // Null before the first use.
  const DeviceCalls* device_calls() const { return device_calls_.get(); }
  const Selector& selector() const { return rules_ != nullptr ? *rules_ : *world_->settings().selector; }
  const std::vector<int>& world_ranks() const override { return world_ranks_; }

  // Throws in a completion callback, which must not wait.
  static void check_may_wait();
  // Throws unless this process may use the group: a child of fork() may not.
  void check_process() const {
    if (world_->fork_generation() != fork_generation()) refuse_child();
  }
  // Submits a checked call. Throws the error of the backend, or the group's failure.
  Work start(const Call& call, const CallOptions& options);
  // The same, to its end, for blocking calls: makes no Work.
  void run(const Call& call, std::string_view algorithm);
  // The same for a receive; returns the rank that sent the message.
  int receive(const Call& call, std::string_view algorithm);
  // As run() for a call that was worked out; false if it has to be run like any other.
  bool run(const Call& call, CachedCall& cached, const CallOptions& options);
  // Of the call that run() has just carried out; null where nothing is gained. Lives as long as the group.
  CachedCall* cached_call(const Call& call);
  // Waits until the operation is complete. Throws its error; at the group's deadline finds the missing ranks.
  void wait(WorkState& state, std::uint32_t sequence);
  // The same until `deadline`; the message of the failure then says that `limit` has passed.
  void wait(WorkState& state, std::uint32_t sequence, Clock::time_point deadline,
            std::chrono::milliseconds limit);
  // Why operation `sequence` (0: a message) is not complete: in words, and verdicts about the ranks that it waits
  // for, the cause first. Asks the other ranks.
  struct Awaited {
    std::string text;
    std::vector<RankVerdict> verdicts;
    int peer = Status::kNoPeer;  // without a verdict
  };
  Awaited find_awaited(std::uint32_t sequence);
  // Part of split(). Where NCCL carries this group's calls on GPUs, the part's communicator is split from
  // this group's (null: this rank is in no part). Collective. Throws the group's failure.
  void split_device_calls(Impl* part, int colour);
  // See CommGroup::register_buffer(). Throws.
  std::uint64_t register_buffer(const void* memory, std::size_t bytes);
  void deregister_buffer(std::uint64_t number);
  // The op in the form of the scheduler.
  static ReduceOp convert(const Reduction& reduction);

  // Turns the failure of an operation into the error to throw. Once the group has failed that is the cause
  // that rank 0 decided, so all ranks throw the same.
  Status settle(const Status& status);
  // The failure of the group: as rank 0 decided it or, before that is known, as found here.
  std::optional<Status> failure();
  // An operation has reached its deadline: finds the missing ranks and fails the group.
  Status time_out(std::uint32_t sequence, const Status& status, std::chrono::milliseconds limit);
  // The same mismatch with the calls of the ranks, as far as they answer.
  Status explain_mismatch(const Status& found);
  // Reports `cause` as the failure on all ranks, and waits until it is decided.
  Status fail_everywhere(const Status& cause);
  // See CommGroup::abort().
  void abort(const Status& cause);

  // A group of these ranks of this group. Members that make groups by equal lists, ways and tags must do so
  // in one order. No communication. Throws.
  enum class MadeBy : std::uint8_t { create, split, rules };
  std::shared_ptr<Impl> make_part(std::span<const int> ranks, MadeBy made_by, std::string_view tag = {});

  // See CommGroup::shrink(), grow() and reconfigure().
  struct Change {
    const char* call;
    std::span<const int> left_out;
    std::optional<std::size_t> new_size;  // AgreementOptions::new_size
  };
  std::shared_ptr<Impl> change(const Change& change);  // throws
  // See tutti::join(). Throws.
  static std::shared_ptr<Impl> join(std::string_view invitation, std::chrono::milliseconds timeout);
  // See CommGroup::invitation() and member_ids().
  std::string invitation() const;
  std::vector<int> member_ids() const;

  // GroupMember
  std::uint64_t context() const override { return group_->context(); }
  std::uint64_t failure_context() const override { return owner().group_->context(); }
  std::string name_operation(std::uint32_t sequence) const override;
  int group_rank_of(int world_rank) const override;
  void on_failure(const Status& cause) override;
  Status count_death(int world_rank, const Status& cause) const override;
  void on_departure(int world_rank) override;
  Status local_failure() const override;
  void on_deadline(std::uint32_t sequence, const std::string& call) override;
  void leave() override;
  CallHistory submitted_calls(std::size_t at_most) const override { return group_->recent_calls(at_most); }
  std::chrono::milliseconds timeout() const override { return group_->timeout(); }

 private:
  std::uint32_t submitted_sequence() const { return group_->last_sequence(); }
  std::vector<int> list_awaited_peers() const;
  Awaited find_awaited_peers();
  std::map<int, RankState> ask_all() const;
  int name_waits(const std::map<int, RankState>& states, std::uint32_t sequence, std::string& text) const;
  int find_blocker(std::vector<int> peers, const std::map<int, RankState>& states) const;
  // `owner`: of a stream, the group that it belongs to.
  Impl(std::shared_ptr<WorldState> world, std::vector<int> world_ranks, std::uint64_t context,
       std::chrono::milliseconds timeout, std::shared_ptr<const Selector> rules, Impl* owner = nullptr,
       int stream = 0);
  // A group and its successors: their common name, and the members as this rank knows them.
  struct Lineage {
    std::string name;
    std::int32_t id = 0;             // of this rank in the membership
    std::uint64_t engine_epoch = 0;  // MembershipPayload::engine_epoch
    Membership membership;
  };
  Lineage lineage() const;
  // Of the members of a successor, in its order: their ranks in this group's world.
  std::vector<int> world_ranks_of(const Successor& successor) const;
  // With those of other machines that are dead; throws for a list that is not one of other members.
  std::set<std::int32_t> ids_left_out(const Change& change) const;
  ControlOptions control_options(const Lineage& of) const;
  // Ends this rank's part in a group that has a successor.
  void retire();
  // Kept by the handles of a stream. The stream is destroyed before its group.
  struct StreamHold {
    std::shared_ptr<Impl> group, stream;
  };
  std::shared_ptr<Impl> stream_handle();
  std::shared_ptr<CallFusion> call_fusion();  // made at the first use
  void close_call_fusion();
  static std::shared_ptr<Impl> own(Impl* made);
  Impl& owner() { return owner_ == nullptr ? *this : *owner_; }
  const Impl& owner() const { return owner_ == nullptr ? *this : *owner_; }
  [[noreturn]] static void refuse_closed(const char* name);
  [[noreturn]] static void refuse_child();
  // With TUTTI_CHECK=group, exchanges a summary of the call before it runs. Throws mismatch, on all ranks
  // alike.
  void compare_if_asked(const Call& call);
  WorkRef submit_checked(const Call& call, const Choice& choice);          // throws; empty as Choice says
  WorkRef submit_on_device(const Call& call, std::string_view algorithm);  // throws
  // False: submit it like any other call.
  bool run_alone(const Call& call) const;
  bool run_alone(const Call& call, std::string_view algorithm) const {
    return is_alone_ && algorithm.empty() && call.collective != Collective::send_recv && !call.is_device &&
           run_alone(call);
  }
  DeviceBackend& device_backend();  // throws
  static std::uint64_t context_of(std::string_view way, std::string_view name);
  // The context of a subgroup: equal on every member, without communication.
  std::uint64_t derive_context(const std::vector<int>& world_ranks, MadeBy made_by, std::string_view tag);
  std::shared_ptr<Impl> find_stream(int number);  // throws
  std::optional<Status> wait_for_decision(std::chrono::milliseconds at_most);
  // A lost connection shows a failure, but not always its origin: follows it there.
  bool has_departed(int rank) const;  // with the owner's failure_mutex_ held
  Status find_origin(const Status& found);
  void fail_streams(const Status& cause);  // the group's own, too
  void announce(const Status& cause);      // to rank 0, once

  std::shared_ptr<WorldState> world_;
  std::shared_ptr<const Selector> rules_;  // null: the world's
  std::vector<int> world_ranks_;
  std::optional<Lineage> lineage_;  // of a successor
  std::uint64_t number_ = 0;
  int rank_ = -1;
  std::unique_ptr<GroupContext> group_;
  std::unique_ptr<Backend> backend_;
  bool fuses_calls_ = false;  // with TUTTI_FUSION_COUNT; not the library's own groups and streams
  std::mutex fusion_mutex_;
  std::shared_ptr<CallFusion> fusion_;
  std::unique_ptr<DeviceCalls> device_calls_;  // made before the first call on GPU memory
  // Collectives of a group of one rank, without communication.
  struct Alone final : CachedCall {
    explicit Alone(const Impl& of) : group(of) {}
    bool run(const Call& call, Completion completion, WorkRef* unfinished) override;
    const Impl& group;
  };
  Alone alone_{*this};
  const bool is_alone_;  // one rank, and no trace that would want to see its calls
  std::mutex children_mutex_;
  std::map<std::string, std::uint32_t> children_;  // number of groups made by equal lists, ways and tags

  // A stream is a group of the same members that shares its owner's life and failure, and nothing else.
  Impl* const owner_;  // null: it is one itself
  const int stream_;
  std::mutex making_mutex_;  // one thread makes streams at a time; never held while failures are reported
  mutable std::mutex streams_mutex_;
  std::map<int, std::shared_ptr<Impl>> streams_;
  std::map<int, std::uint32_t> closings_;  // of streams, by number; guarded by making_mutex_
  std::atomic<bool> is_closed_{false};     // of a stream: its end is no failure
  std::mutex hold_mutex_;
  std::weak_ptr<StreamHold> hold_;  // of a stream; kept by its handles

  mutable std::mutex failure_mutex_;  // this and what follows: of owners
  std::condition_variable failed_;
  std::optional<Status> decided_;
  std::vector<int> departed_;  // members that have left the world, by rank of the group, the first one first
  std::atomic<bool> is_announced_{false};
};

// Throws the status as tutti::Error.
[[noreturn]] void throw_error(const Status& status);
inline void throw_if_error(const Status& status) {
  if (!status) throw_error(status);
}

}  // namespace tutti
