// One operation under way: a plan bound to a call's memory, and how far it has come. Its messages are steps
// of a plan that this class issues (operation_messages.cpp); where ranks share memory a LoweredRun does the
// work. Knows no algorithm and no waiting; the engine drives it while it holds the lane.
#pragma once

#include <memory>
#include <vector>

#include "runtime/base/call.hpp"
#include "runtime/base/work.hpp"
#include "runtime/kernels/kernels.hpp"
#include "runtime/schedule/chunk_map.hpp"
#include "runtime/scheduler/call_contract.hpp"
#include "runtime/scheduler/plan.hpp"
#include "runtime/scheduler/resolved_call.hpp"
#include "runtime/scheduler/slot_frame.hpp"
#include "transports/transport.hpp"

namespace tutti {

class Engine;
class GroupContext;
class Operation;
class Trace;

// The slots that operations take in turn: first + (sequence mod count), where count is a power of two.
struct SlotRule {
  std::uint32_t first = 0, mask = 0;
  std::uint32_t of(std::uint32_t sequence) const { return first + (sequence & mask); }
};

// Everything that calls of one signature share.
struct Prepared {
  std::shared_ptr<const Plan> messages;   // null where control blocks alone carry it
  std::shared_ptr<ResolvedCall> lowered;  // null where messages carry it
  // With `lowered`: an allgather of bytes in place, to exchange control blocks with.
  std::shared_ptr<const Plan> exchange;
  KernelFn kernel = nullptr;  // null unless it reduces
  CallContract contract;
  SlotRule slots;
  bool is_bulk = false;          // with `lowered`: on the control blocks with large staging buffers
  std::uint32_t choice = 0;      // the trace's number of why it is done so
  std::size_t vector_bytes = 0;  // of the full vector
};

// The number of an operation, and the word that its messages and flag lines are compared by: of a collective
// the digest of all calls up to it, of a message between two ranks what make_message_word() says.
struct OperationId {
  std::uint32_t sequence = 0;
  std::uint64_t word = 0;
};

class Operation final : public WorkState {
 public:
  bool test() override;
  Status wait(Clock::time_point deadline) override;
  Status status() const override;
  int source() const override;
  void when_complete(CompletionCallback callback) override;

 private:
  friend class Engine;
  friend class GroupContext;
  friend class CachedEpoch;
  friend class Messenger;

  enum class Issue : std::uint8_t { done, pending, again, user };

  // Tokens: use, number of the operation, step.
  static constexpr std::uint32_t kIdBits = 20;
  static std::uint32_t id_of(RequestId request_id) {
    return static_cast<std::uint32_t>(request_id >> 32U) & ((1U << kIdBits) - 1);
  }
  RequestId request_id(std::uint32_t step) const {
    return (std::uint64_t{(generation_ << kIdBits) | id_} << 32U) | step;
  }

  void recycle() override;

  // Binds plan and call; nothing is posted yet. What the caller's memory is needed for beside its buffers is
  // over afterwards. `needs`: of the frame it will run in.
  Status bind(GroupContext& group, const Prepared& prepared, const Call& call, const OperationId& id,
              std::uint32_t slot, SlotNeeds* needs);
  void record(Trace& trace) const;  // what it was and how long it took, now that it has ended
  Status bind_counts();
  void bind_whole(const Schedule& shape);  // the map of a whole lowered operation
  // Elements of the input that are scaled in front of a reduction, into scratch.
  std::uint64_t prescaled_count(const Schedule& shape) const;
  void prescale(std::byte* to, std::uint64_t count);  // the input from now on
  // It is the first of its slot now and may be advanced.
  void enter(SlotFrame& frame);
  void enter_messages();
  // Makes this operation swap control blocks for the call `shown`, whose word it has.
  void serve(ControlBlocks& control_blocks, const Call& shown);
  // Does what can be done; looks so often at a line that a peer has still to publish. True if anything was.
  bool advance(std::uint32_t polls);
  bool start_lowered();  // false while control blocks are being swapped
  bool advance_lowered(std::uint32_t polls);
  // The thread that drives it is about to sleep: as good as many polls in vain.
  void note_sleep() { blocked_polls_ += kPollsPerSleep; }
  bool advance_messages();
  // Might advance() get further, without an event having come?
  bool has_news() const;
  bool is_ready(const PlanStep& step) const;
  Issue issue(std::uint32_t index, const PlanStep& step);
  Issue issue_message(std::uint32_t index, const PlanStep& step);
  void finish_step(std::uint32_t index);
  void on_event(const Event& event);
  void fail(const Status& status);
  void fail_mismatch(std::uint32_t peer);
  void fail_mismatch(std::uint32_t peer, const Event& message);
  void fail_gone(std::uint32_t peer);
  // What it is, and if it is not matched yet, what it waits for. With the lane held.
  std::string describe() const;
  const Call& shown_call() const { return is_exchange_ ? shown_call_ : call_; }
  // Last local work (avg divides), then completion becomes visible.
  void complete();
  // Nothing more to do: all steps are done, or it failed and no user's function is running on its memory.
  bool is_finished() const { return remaining_ == 0 || (!status_.is_ok() && !has_user_step_); }

  std::byte* address(const Slice& slice, std::uint32_t k) const;
  std::size_t atom_bytes(const Slice& slice, std::uint32_t k) const;
  std::size_t gather_ranges(
      const PlanStep& step);  // of the frame; returns total bytes, their number is in range_total_
  // The local work of a step on bytes [offset, offset + length) of its slice; `arriving` replaces that source
  // where not null.
  void compute(const PlanStep& step, std::size_t offset, std::size_t length, const std::byte* arriving);
  // The step that runs a user-defined op: without the lane, then finished with it.
  void run_user_step();
  void finish_user_step();
  static void deliver(void* context, std::size_t offset, ConstByteRange data);
  std::uint32_t first_awaited_rank() const;
  std::uint32_t first_awaited_sender() const;

  GroupContext* group_ = nullptr;
  Engine* engine_ = nullptr;
  Operation* next_free_ = nullptr;    // in the engine's pool
  std::shared_ptr<const Plan> plan_;  // messages
  ResolvedCall* lowered_ = nullptr;
  std::shared_ptr<ResolvedCall> kept_lowered_;  // once it outlives the call that submitted it
  ControlBlocks* control_blocks_ = nullptr;     // where `lowered_` runs, or those that this operation swaps
  SlotFrame* frame_ = nullptr;                  // null but while it runs
  bool is_lowered_ = false, is_run_started_ = false, is_exchange_ = false;
  bool is_unmatched_ = false;      // a message that has no slot yet: the group's messenger has it
  std::size_t waiting_index_ = 0;  // while it is unmatched: its place in the engine's list
  bool is_referenced_ = false;     // the group holds a reference, which it drops on completion
  static constexpr std::uint32_t kPollsPerSleep = 256;
  const ResolvedStep* resumed_step_ = nullptr;  // of a cached call that has run up to there
  std::uint32_t blocked_polls_ = 0;
  Call call_;
  Call shown_call_;  // of an exchange: the call it is made for
  ChunkMap map_;
  std::uint32_t id_ = 0;          // in the engine's table
  std::uint32_t generation_ = 0;  // of uses: events of an earlier one must not be taken for this one's
  std::uint32_t sequence_ = 0;
  std::uint32_t slot_ = 0;
  std::uint64_t word_ = 0;
  KernelFn kernel_ = nullptr;
  std::size_t element_bytes_ = 0;
  std::size_t slot_bytes_ = 0;
  std::byte* input_ = nullptr;
  std::byte* output_ = nullptr;
  std::byte* scratch_ = nullptr;
  std::uint32_t remaining_ = 0;
  std::uint32_t range_total_ = 0;
  bool is_dirty_ = false;       // an event came, or a post said `again`
  bool has_user_step_ = false;  // a user-defined op is due or running
  bool is_user_step_taken_ = false;
  std::uint32_t user_step_ = 0;
  Operation* next_in_slot_ = nullptr;
  CompletionCallback callback_;
  bool is_callback_due_ = false;  // one is to be called, or has not returned; guarded by the lane

  std::uint32_t choice_ = 0;
  SteadyClock::time_point submitted_{}, entered_{};  // with a trace
  Clock::time_point first_stalled_{};
  std::chrono::milliseconds next_report_{0};
  std::uint32_t stall_reports_ = 0;
  Status status_;
};

}  // namespace tutti
