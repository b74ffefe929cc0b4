// One operation under way: a plan bound to a call's memory, and how far it has come. Its messages are steps
// of a plan that this class issues (operation_messages.cpp); where ranks share memory a LoweredRun does the
// work. Knows no algorithm and no waiting; the engine drives it with the progress lock held.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "runtime/base/call.hpp"
#include "runtime/base/work.hpp"
#include "runtime/kernels/kernels.hpp"
#include "runtime/record/group_record.hpp"
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

// How the elements of a compressed plan look in messages.
struct WireFormat {
  Conversions convert;
  std::size_t element_bytes = 0;  // 0: as in memory
};

// Everything that calls of one signature share.
struct Prepared {
  std::shared_ptr<const Plan> messages;   // null where control blocks alone carry it
  std::shared_ptr<ResolvedCall> lowered;  // null where messages carry it
  KernelFn kernel = nullptr;              // null unless it reduces
  WireFormat wire;                        // of `messages`
  CallContract contract;
  SlotRule slots;
  BlockKind kind = BlockKind::tiny;  // with `lowered`: of the control blocks
  std::uint32_t choice = 0;          // the trace's number of why it is done so
  std::uint16_t row = 0;             // of the group's statistics
  std::size_t vector_bytes = 0;      // of the full vector
};

// The number of an operation, and the word by which its messages and flag lines are compared: the digest of all
// calls up to it, or make_message_word() for a message between two ranks.
struct OperationId {
  std::uint32_t sequence = 0;
  std::uint64_t word = 0;
};

// Threading: as a WorkState for any thread; the rest with the progress lock held.
class Operation final : public WorkState {
 public:
  // Its place in the pool. Request ids: use, number of the operation, step.
  struct Pooled {
    Operation* next_free = nullptr;
    std::uint32_t id = 0;
    std::uint32_t generation = 0;  // of uses: events of an earlier one must not be taken for this one's
  };
  // Its place among the operations of its group.
  struct Queued {
    Operation* next_in_slot = nullptr;
    std::uint32_t slot = 0;
    std::size_t waiting_index = 0;  // in the engine's list, while it is unmatched
    bool is_unmatched = false;      // a message that has no slot yet: the group's messenger has it
    bool is_referenced = false;     // the group holds a reference, which it drops on completion
  };
  // Reports that it makes no progress.
  struct StallRecord {
    Clock::time_point first{};
    std::chrono::milliseconds next_report{0};
    std::uint32_t reports = 0;
  };

  Operation(Engine& engine, std::uint32_t id) : engine_(engine) { pooled_.id = id; }

  bool test() override;
  Status wait(Clock::time_point deadline) override;
  Status status() const override;
  int source() const override;
  void when_complete(CompletionCallback callback) override;

  // -- for its owners: the pool, the group's queues, the engine

  Pooled& pooled() { return pooled_; }
  const Pooled& pooled() const { return pooled_; }
  Queued& queued() { return queued_; }
  const Queued& queued() const { return queued_; }
  StallRecord& stall_record() { return stalls_; }
  static std::uint32_t id_of(RequestId request_id) {
    return static_cast<std::uint32_t>(request_id >> 32U) & ((1U << kIdBits) - 1);
  }
  RequestId request_id(std::uint32_t step) const {
    return (std::uint64_t{(pooled_.generation << kIdBits) | pooled_.id} << 32U) | step;
  }
  void reserve_lists(std::uint32_t blocks) { map_.reserve(blocks); }

  GroupContext& group() const { return *group_; }
  const Call& call() const { return call_; }
  std::uint32_t sequence() const { return sequence_; }
  std::uint64_t word() const { return word_; }
  bool is_lowered() const { return blocks_.is_used; }
  // The control blocks on whose flags it waits; null: on none.
  ControlBlocks* awaited_flags() const {
    return blocks_.is_used && blocks_.is_run_started && !is_finished() ? blocks_.control_blocks : nullptr;
  }
  bool has_failed() const { return !status_; }

  // Binds plan and call; nothing is posted yet. On return the count arrays are no longer referenced. `needs`:
  // of the frame that it will run in.
  Status bind(GroupContext& group, const Prepared& prepared, const Call& call, const OperationId& id,
              std::uint32_t slot, SlotNeeds* needs);
  // Before it is enqueued: a cached call that has run up to that step, since `begun`.
  void continue_from(const ResolvedStep* step, SteadyClock::time_point begun) {
    blocks_.resumed_step = step;
    if (begun != SteadyClock::time_point{}) trace_.submitted = begun;
  }
  // It outlives its submission: keeps what the signature's callers share.
  void keep(std::shared_ptr<ResolvedCall> resolved) { blocks_.kept = std::move(resolved); }
  // So many references; `is_referenced`: one of them is the group's.
  void set_references(std::uint32_t count, bool is_referenced) {
    references_.store(count, std::memory_order_relaxed);
    queued_.is_referenced = is_referenced;
  }
  void drop_reference() { release(); }
  Status take_status() { return std::move(status_); }

  // It is the first of its slot now and may be advanced.
  void enter(SlotFrame& frame);
  bool may_advance() const { return (messages_.is_dirty || blocks_.is_used) && status_; }
  // Does what can be done; polls so often for a flag. True if anything was.
  bool advance(std::uint32_t polls);
  // Might advance() get further, without an event having come?
  bool has_news() const;
  // The thread that drives it is about to sleep: as good as many failed polls.
  void note_sleep() { blocks_.failed_polls += kPollsPerSleep; }
  void on_event(const Event& event);
  void fail(const Status& status);
  // It has made no progress for long: the record names the rank that it waits for now.
  void note_stalled();
  // Nothing more to do: all steps are done, or it failed and no user's function is running on its memory.
  bool is_finished() const {
    return messages_.remaining == 0 || (!status_.is_ok() && messages_.user == UserStep::none);
  }
  // Last local work (avg divides), then completion becomes visible.
  void complete();

  // The step that runs a user-defined op. True: it is due, and the caller runs it without the lock, then
  // finishes it.
  bool take_user_step();
  void run_user_step();
  void finish_user_step();

  // Completed: its callback, which is to be called now. has_callback_after(): another was given meanwhile.
  CompletionCallback take_callback();
  bool has_callback_after() {
    callback_.is_due = false;
    return static_cast<bool>(callback_.function);
  }

  // Its call, and if it is not matched yet, the message that it waits for.
  std::string describe() const;
  std::uint32_t first_awaited_rank() const;

 private:
  enum class Issue : std::uint8_t { done, pending, again, user };
  enum class UserStep : std::uint8_t { none, due, running };
  static constexpr std::uint32_t kIdBits = 20;
  static constexpr std::uint32_t kPollsPerSleep = 256;

  void recycle() override;
  void record(Trace& trace) const;  // what it was and how long it took, now that it has ended
  void begin_record();
  void fail_mismatch(std::uint32_t peer);
  void fail_mismatch(std::uint32_t peer, const Event& message);
  void fail_gone(std::uint32_t peer);
  void scale_result();
  // Elements of the input that are scaled in front of a reduction, into scratch.
  std::uint64_t prescaled_count(const Schedule& shape) const;
  void prescale(std::byte* to, std::uint64_t count);  // the input from now on
  void scale_elements(std::byte* to, const std::byte* from, std::uint64_t count);

  // On control blocks.
  void bind_whole(const Schedule& shape);  // the map of a whole lowered operation
  bool start_lowered();                    // false while control blocks are being exchanged
  bool should_check_peer();                // after many polls that have failed
  bool advance_lowered(std::uint32_t polls);

  // By messages (operation_messages.cpp).
  Status bind_counts();
  void enter_messages();
  bool advance_messages();
  bool is_ready(const PlanStep& step) const;
  Issue issue(std::uint32_t index, const PlanStep& step);
  Issue issue_message(std::uint32_t index, const PlanStep& step);
  void finish_step(std::uint32_t index);
  std::byte* address(const Slice& slice, std::uint32_t k) const;
  std::size_t atom_bytes(const Slice& slice, std::uint32_t k) const;
  std::size_t gather_ranges(const PlanStep& step, std::uint32_t* range_count);  // of the frame; bytes
  // The local work of a step on bytes [offset, offset + length) of its slice; `arriving` replaces that source
  void compute(const PlanStep& step, std::size_t offset, std::size_t length, const std::byte* arriving);
  void compute_run(std::byte* dst, std::span<const void* const> sources, std::size_t bytes);
  // The same with the progress lock held: the record shows that it reduces.
  void compute_shown(const PlanStep& step, std::size_t offset, std::size_t length, const std::byte* arriving);
  // Plans with wire copies (operation_wire.cpp).
  std::size_t place_wire_copies(std::size_t offset);  // in the scratch, from there on; the bytes of all
  std::byte* wire_address(const Slice& slice, std::uint32_t k) const;
  void compute_converting(const PlanStep& step, std::size_t offset, std::size_t length,
                          const std::byte* arriving);
  void convert_run(const Slice& dst, std::byte* to, std::span<const Slice> sources, const void** at,
                   std::uint64_t count) const;
  void keep_loss(const PlanStep& step, std::uint64_t first, std::uint64_t count, const void* exact,
                 const void* rounded) const;
  static void deliver(void* context, std::size_t offset, ConstByteRange data);
  std::uint32_t first_awaited_sender() const;

  // Of the call.
  Engine& engine_;
  GroupContext* group_ = nullptr;
  Call call_;
  std::uint32_t sequence_ = 0;
  std::uint64_t word_ = 0;
  KernelFn kernel_ = nullptr;
  std::size_t element_bytes_ = 0;
  std::byte* input_ = nullptr;
  std::byte* output_ = nullptr;
  ChunkMap map_;
  SlotFrame* frame_ = nullptr;  // null but while it runs
  Status status_;

  struct OnControlBlocks {
    bool is_used = false;              // else messages carry it
    ResolvedCall* resolved = nullptr;  // of its signature
    std::shared_ptr<ResolvedCall> kept;
    ControlBlocks* control_blocks = nullptr;
    bool is_run_started = false;
    const ResolvedStep* resumed_step = nullptr;  // of a cached call that has run up to there
    std::uint32_t failed_polls = 0;
  };
  OnControlBlocks blocks_;

  struct ByMessages {
    std::shared_ptr<const Plan> plan;
    std::byte* scratch = nullptr;
    std::size_t slot_bytes = 0;
    WireFormat wire;
    // Of the wire copies, from the start of the scratch: input, output and slots, and the bytes of a slot.
    std::size_t wire_input = 0, wire_output = 0, wire_slots = 0, wire_slot_bytes = 0;
    std::uint32_t remaining = 0;  // steps; on control blocks 1 until the end
    bool is_dirty = false;        // an event came, or a post said `again`
    UserStep user = UserStep::none;
    std::uint32_t user_step = 0;
  };
  ByMessages messages_;

  struct Callback {
    CompletionCallback function;
    bool is_due = false;  // one is to be called, or has not returned
  };
  Callback callback_;

  struct TraceTimes {
    std::uint32_t choice = 0;
    SteadyClock::time_point submitted{}, entered{};
  };
  TraceTimes trace_;

  struct Recorded {
    record::OperationRecord times;
    std::uint16_t row = 0;
    std::uint64_t bytes = 0;  // of the full vector
    bool has_heard = false;   // something has arrived
  };
  Recorded recorded_;

  Pooled pooled_;
  Queued queued_;
  StallRecord stalls_;
};

}  // namespace tutti
