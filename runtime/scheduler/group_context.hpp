// The scheduler's view of one group: how its peers are reached, which operations it has under way, its
// failure state. Knows no bootstrap, no public API and no algorithm.
//
// Each stream of a group has one of these. The identity of an operation is (context, sequence number), taken at
// submission. Its resources (endpoints with their channels) are those of its slot. Operations take the slots in
// turn, so each waits for no other one than that of number - kSlots.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/base/call.hpp"
#include "runtime/base/trace.hpp"
#include "runtime/record/group_record.hpp"
#include "runtime/scheduler/control_block.hpp"
#include "runtime/scheduler/engine.hpp"
#include "runtime/scheduler/messenger.hpp"
#include "runtime/scheduler/operation.hpp"
#include "runtime/scheduler/peer_distance.hpp"
#include "runtime/scheduler/plan.hpp"
#include "runtime/scheduler/submitted_calls.hpp"

namespace tutti {

namespace record {
class RankFile;
}

// Copies share the address: every group has them of all its members.
struct PeerAddress {
  PeerAddress() = default;
  PeerAddress(Transport* by, std::vector<std::byte> address)
      : transport(by), bytes(std::make_shared<const std::vector<std::byte>>(std::move(address))) {}
  Transport* transport = nullptr;  // one of the engine's
  std::shared_ptr<const std::vector<std::byte>> bytes;
};

// By rank; the own entry is unused. Groups with the same members can share the list.
using PeerList = std::vector<PeerAddress>;

class GroupContext {
 public:
  static constexpr std::uint32_t kSlots = 4;

  struct Options {
    std::uint64_t context = 0;  // equal on all members, different for every group and stream of a job
    std::uint32_t rank = 0;
    int stream = 0;  // its number in the group; below 0: of the library's own
    std::shared_ptr<const PeerList> peers;
    std::uint32_t contract = 0;  // hash of what the group agreed on; part of every call's contract
    std::chrono::milliseconds timeout{300000};
    bool uses_control_blocks = true;  // equal on all members, as all that follows
    LoweredLimits lowered_limits;
    ByBlockKind<ControlBlockShape> control_blocks{
        {{kSlots, 16, 1024}, {kSlots, 128, std::size_t{16} << 10U}, {1, 128, std::size_t{512} << 10U, true}}};
    ControlBlockShape& shape(BlockKind kind) { return control_blocks[static_cast<std::size_t>(kind)]; }
    const ControlBlockShape& shape(BlockKind kind) const {
      return control_blocks[static_cast<std::size_t>(kind)];
    }
    StagingPolicy staging = StagingPolicy::measured;  // this rank's own
    record::RankFile* record = nullptr;  // outlives the group; null: it records for this process alone
  };
  GroupContext(Engine& engine, Options options);
  ~GroupContext();  // leaves, with StatusCode::aborted
  GroupContext(const GroupContext&) = delete;
  GroupContext& operator=(const GroupContext&) = delete;

  Engine& engine() { return engine_; }
  std::uint32_t rank() const { return options_.rank; }
  std::uint32_t size() const { return static_cast<std::uint32_t>(options_.peers->size()); }
  std::uint64_t context() const { return options_.context; }
  std::uint32_t contract() const { return options_.contract; }
  std::chrono::milliseconds timeout() const { return options_.timeout; }

  // Do all members share memory, so that lowered plans may be given? All members get the same answer. Should a
  // rank find no memory for its control block later, messages carry these calls.
  bool shares_memory() const { return heap_ != nullptr; }
  // How much of one operation control blocks of that kind hold at a time.
  const ControlBlockShape& control_block_shape(BlockKind kind) const { return options_.shape(kind); }
  const Messenger& messenger() const { return messenger_; }
  const LoweredLimits& lowered_limits() const { return options_.lowered_limits; }
  // For tests and tools; while nothing is under way, or with the progress lock held.
  const ControlBlocks& shown_control_blocks(BlockKind kind) const {
    return control_blocks_[static_cast<std::size_t>(kind)];
  }

  // Starts an operation and runs it inline until it would block. Lowered plans come with the message plan
  // that replaces them where control blocks are refused, unless has_control_blocks(): it is not needed any more. Messages
  // between two ranks (send_recv) come with their contract only. Errors,
  // nothing started: the group's failure; invalid_argument when two threads submit to one of these at once.
  // A submitter that blocks gets an empty reference, or the error, if a collective has ended by then.
  Result<WorkRef> submit(const Prepared& prepared, const Call& call,
                         Completion completion = Completion::asynchronous);
  // Fills in where the plans carry a call out: its slots, and its resolved form on control blocks (`plans`:
  // null where messages carry it). Memory of the form that it had before is used again.
  void place(std::shared_ptr<const LoweredPlans> plans, BlockKind kind, const Call& call, Prepared* prepared);
  bool has_control_blocks(BlockKind kind) const {
    return control_state_[static_cast<std::size_t>(kind)].load(std::memory_order_acquire) == kLinked;
  }

  // The number of the last collective that was submitted; 0 if none was. Any thread.
  std::uint32_t last_sequence() const { return next_sequence_.load(std::memory_order_relaxed) - 1; }
  // The last collectives that were submitted, at most so many. A rank that got through a mismatched call can
  // so be asked about it. Any thread.
  CallHistory recent_calls(std::size_t at_most = SubmittedCalls::kRemembered) const {
    return submitted_.recent(last_sequence(), at_most);
  }

  // Fails the group: every pending and later operation completes with `cause`. The first cause wins. Any
  // thread.
  void fail(const Status& cause);
  // The same with a cause that holds for all members. They are told over endpoints and the window before these close. It also
  // replaces the cause "connection lost", which is mostly a consequence. Any thread.
  void fail_for_all(const Status& cause);
  // Tells them now, whether or not an operation is under way. Any thread but the control thread.
  void tell_members();
  // This rank ends its part in order. Operations under way fail with `why`, completed sends are delivered, and the
  // endpoints are closed. Any thread. False, nothing delivered: other threads did not give way for a second.
  bool leave(const Status& why);
  Status failure() const;
  bool has_failed() const { return has_failed_.load(std::memory_order_acquire); }

  // -- for the scheduler's own classes, with the progress lock held unless it says otherwise

  // For operations.
  Endpoint* endpoint(std::uint32_t slot, std::uint32_t peer, Status* status);  // opened when first asked for
  // Why nothing comes from or goes to a peer: a limit that this process reached, or the peer is gone.
  Status cause_of_loss(std::uint32_t peer, const std::string& call) const;
  bool link(ControlBlocks& control_blocks);  // false while some rank's is not known or not mapped yet
  static std::uint32_t control_slot(std::uint32_t slot) { return slot < kSlots ? slot : 0; }
  // A call that ends now, for the trace.
  Trace::Span span_of(const Call& call, std::uint32_t sequence, std::uint32_t choice) const;

  // For the engine.
  void on_complete(Operation& operation);
  void close_endpoints();
  // The notice of a peer. False: it has come by no endpoint or window of this group.
  bool take_abort_notice(const Event& event);
  // Carries messages to this rank; null for ourselves.
  const Transport* transport_of(std::uint32_t peer) const { return this->peer(peer).transport; }

  // For the messenger. Binds a message and puts it behind those of its pair. `kind`: message_kind().
  void start_message(Operation& operation, const Call& call, std::uint32_t kind, bool is_referenced);
  static std::uint32_t message_slot(std::uint32_t peer, bool is_send, bool has_tag) {
    return kMessageSlots + kSlotsPerPeer * peer + (has_tag ? 2U : 0U) + (is_send ? 1U : 0U);
  }
  bool is_busy(std::uint32_t slot) const {
    return slot < kMessageSlots ? slots_[slot].head != nullptr : has_message_in(slot);
  }
  Endpoint& opened_endpoint(std::uint32_t slot, std::uint32_t peer) const {
    return *endpoints_[context_of(slot)][peer];
  }

  // For operations, and for whoever prepares them.
  record::GroupRecord& record() { return *record_; }
  // The statistics' row for such calls. `algorithm`: empty for messages between two ranks.
  std::uint16_t row_of(Collective collective, std::uint64_t bytes, std::string_view algorithm,
                       bool is_lowered);
  void count_traffic(std::uint32_t peer, bool is_send, std::size_t bytes) {
    record::Traffic& traffic = traffic_of(*transport_of(peer));
    record::add(is_send ? traffic.sent_bytes : traffic.received_bytes, bytes);
    record::add(traffic.messages, 1);
  }

  // For cached calls. Submissions hold the lock; another thread's is refused meanwhile.
  void set_submitting(bool is_submitting) { is_submitting_.store(is_submitting, std::memory_order_relaxed); }
  std::uint32_t next_sequence() const { return next_sequence_.load(std::memory_order_relaxed); }
  std::uint64_t digest_with(const CallContract& contract) const { return submitted_.digest_with(contract); }
  // A collective has taken its number.
  void remember(std::uint32_t sequence, std::uint64_t digest, const CallContract& contract,
                record::State state) {
    submitted_.add(sequence, digest, contract, state);
    next_sequence_.store(sequence + 1, std::memory_order_relaxed);
  }
  PeerDistances& distances() { return distances_; }
  // A call on control blocks that has its number, has begun its epoch and is blocked at a step.
  WorkRef resume(const Prepared& prepared, const Call& call, const OperationId& id, std::uint32_t slot,
                 const ResolvedStep* step, SteadyClock::time_point begun);
  // The caller goes on, and somebody has to carry on what it has submitted. Without the lock.
  void leave_to_others();

 private:
  // Slots: 0..kSlots-1 are for collectives, the next one for those on bulk control blocks. Behind it every pair
  // has four: recv and send without a tag, then with one.
  static constexpr std::uint32_t kBulkSlot = kSlots;
  // Operations on tiny and small control blocks take the slots in turn, so that several are under way. Longer ones
  // in which no rank gets ahead of the others anyway all use the two areas of one slot. These areas stay in the
  // first-level caches of all ranks, where the areas of all slots would not.
  static constexpr std::size_t kMostInTurnBytes = 512;  // of staging
  static constexpr std::uint32_t kMessageSlots = kSlots + 1;
  static constexpr std::uint32_t kSlotsPerPeer = 4;
  // Contexts of endpoints: one for each slot of collectives, and two for messages, without a tag and with
  // one.
  static constexpr std::uint32_t kContexts = kSlots + 3;
  static std::uint32_t context_of(std::uint32_t slot) {
    return slot < kMessageSlots ? slot : kMessageSlots + (slot - kMessageSlots) % kSlotsPerPeer / 2;
  }

  // Operations with these resources, one at a time in order of submission.
  struct Slot {
    Operation* head = nullptr;  // the one that runs; linked through Operation::next_in_slot
    Operation* tail = nullptr;
    std::unique_ptr<SlotFrame> frame;
    std::unique_ptr<SlotFrame> larger_frame;  // takes its place once the running operation has ended
    void reserve(const SlotNeeds& needs);     // gets a frame ready that covers them
  };

  // State of the messages between this rank and another one, by the slots of their pair.
  struct Pair {
    std::array<Slot, kSlotsPerPeer> slots;
    std::array<std::uint32_t, kSlotsPerPeer> next_number{1, 1, 1, 1};
    std::array<std::shared_ptr<const Plan>, kSlotsPerPeer> plans;  // made when first needed
  };
  Slot& slot(std::uint32_t number) {
    return number < kMessageSlots ? slots_[number] : pair(number).slots[number_in_pair(number)];
  }
  Pair& pair(std::uint32_t message_slot);  // made when first asked for
  bool has_message_in(std::uint32_t slot) const;
  static std::uint32_t number_in_pair(std::uint32_t message_slot) {
    return (message_slot - kMessageSlots) % kSlotsPerPeer;
  }
  static std::uint32_t peer_of(std::uint32_t message_slot) {
    return (message_slot - kMessageSlots) / kSlotsPerPeer;
  }

  const PeerAddress& peer(std::uint32_t rank) const { return (*options_.peers)[rank]; }
  Result<WorkRef> submit_exclusively(const Prepared& prepared, const Call& call, Completion completion);
  Result<WorkRef> submit_message(const Call& call, std::uint32_t kind);
  // In front of the first operation that needs them. Errors: of SharedWindow.
  Status make_control_blocks(BlockKind kind);
  WorkRef hand_out(Operation& operation, const Prepared& prepared);  // just enqueued
  void enqueue(Slot& slot, Operation& operation);
  // The slots in which operations like the one of `slot` run, from the first to behind the last. The next calls of
  // a signature use the other collective slots, and must find everything in place.
  static std::pair<std::uint32_t, std::uint32_t> slots_beside(std::uint32_t slot) {
    return slot < kSlots ? std::pair{0U, kSlots} : std::pair{slot, slot + 1};
  }
  // Gets the frames of these slots ready.
  void reserve_frames(std::uint32_t slot, const SlotNeeds& needs);
  bool start(Slot& slot, Operation& operation);  // at the head of its slot; false if it is finished
  void deliver_and_fail(const Status& why);      // with the progress lock held
  void set_failure(const Status& cause, bool is_recorded);  // an orderly end is not
  std::unique_ptr<record::GroupRecord> make_record();
  void find_counters();
  record::Traffic& traffic_of(const Transport& transport);
  bool has_operations() const;  // under way, or waiting for a match
  void revoke_control_blocks();
  void close_connections(bool fence);
  void send_abort_notice();  // once, with the progress lock held, before the endpoints close
  const std::shared_ptr<const Plan>& message_plan(std::uint32_t slot, std::uint32_t peer, bool is_send);

  static constexpr std::uint8_t kLinked = 1;

  Engine& engine_;
  Options options_;
  std::unique_ptr<record::GroupRecord> record_;
  std::vector<std::pair<const Transport*, record::Traffic*>> traffic_;  // of the transports to members
  record::Traffic uncounted_{};
  std::string transports_;    // their names, for the statistics
  SubmittedCalls submitted_;  // with the progress lock held
  std::atomic<bool> is_submitting_{false};
  std::atomic<std::uint32_t> next_sequence_{1};  // changed with the progress lock held
  std::array<Slot, kMessageSlots> slots_;
  std::vector<std::unique_ptr<Pair>> pairs_;  // by peer; empty before the first message
  Messenger messenger_;
  SlotNeeds collective_needs_;  // the frames of slots 0..kSlots-1 cover them, once there are frames
  // By context, peer; those of a context are empty before its first.
  std::array<std::vector<std::unique_ptr<Endpoint>>, kContexts> endpoints_;
  PeerDistances distances_;                    // with the progress lock held
  SharedHeap* heap_ = nullptr;                 // the own one, where all members share memory
  std::unique_ptr<SharedWindow> window_;       // of the control blocks; opened with the first of them
  ByBlockKind<ControlBlocks> control_blocks_;  // made when first needed
  ByBlockKind<std::atomic<std::uint8_t>> control_state_{};
  std::atomic<bool> has_failed_{false};
  mutable std::mutex failure_mutex_;
  Status failure_;
  Status unsent_notice_;         // what members are to be told; guarded by failure_mutex_
  bool may_send_notice_ = true;  // endpoints are open, and no notice was sent; with the progress lock held
};

}  // namespace tutti
