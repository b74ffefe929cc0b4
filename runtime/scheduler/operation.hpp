// One operation under way: a plan bound to a call's memory, and how far it has come.
// Knows no algorithm and no waiting; the engine drives it while it holds the lane.
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/base/call.hpp"
#include "runtime/base/kernels.hpp"
#include "runtime/base/work.hpp"
#include "runtime/schedule/chunk_map.hpp"
#include "runtime/scheduler/plan.hpp"
#include "transports/transport.hpp"

namespace tutti {

class Engine;
class GroupContext;
class Operation;

// Operations of one group for reuse. Outlives the group while somebody still holds a WorkRef.
struct OperationPool {
  std::mutex mutex;
  std::vector<std::unique_ptr<Operation>> all;
  std::vector<Operation*> free;
};

// Memory that grows and is kept, 64-byte aligned.
class ScratchMemory {
 public:
  std::byte* reserve(std::size_t bytes);
  ~ScratchMemory() { release(); }
  ScratchMemory() = default;
  ScratchMemory(const ScratchMemory&) = delete;
  ScratchMemory& operator=(const ScratchMemory&) = delete;

 private:
  void release();
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

class Operation final : public WorkState {
 public:
  bool test() override;
  Status wait(Clock::time_point deadline) override;
  Status status() const override;

  bool is_complete() const { return is_complete_.load(std::memory_order_acquire); }

 private:
  friend class Engine;
  friend class GroupContext;

  enum class Issue : std::uint8_t { done, pending, again, user };

  void recycle() override;

  // Binds plan and call; nothing is posted yet. No allocation once the vectors have grown to this plan.
  Status bind(GroupContext& group, std::shared_ptr<const Plan> plan, const Call& call, std::uint32_t sequence,
              std::uint32_t slot);
  Status bind_counts();
  // Issues what can be issued. True if anything was.
  bool advance();
  bool is_ready(const PlanStep& step) const;
  Issue issue(std::uint32_t index, const PlanStep& step);
  Issue issue_message(std::uint32_t index, const PlanStep& step);
  void finish_step(std::uint32_t index);
  void on_event(const Event& event);
  void fail(const Status& status);
  // Last local work (avg divides), then completion becomes visible.
  void complete();
  // Nothing more to do: all steps are done, or it failed and no user's function is running on its memory.
  bool is_finished() const { return remaining_ == 0 || (!status_.is_ok() && !has_user_step_); }

  std::byte* address(const Slice& slice, std::uint32_t k) const;
  std::size_t atom_bytes(const Slice& slice, std::uint32_t k) const;
  std::size_t gather_ranges(
      const PlanStep& step);  // fills ranges_, returns total bytes; count in step_ranges_
  // The local work of a step on bytes [offset, offset + length) of its slice; `arriving` replaces that source
  // where not null.
  void compute(const PlanStep& step, std::size_t offset, std::size_t length, const std::byte* arriving);
  // The step that runs a user-defined op: without the lane, then finished with it.
  void run_user_step();
  void finish_user_step();
  static void deliver(void* context, std::size_t offset, ConstByteRange data);
  std::uint32_t first_awaited_rank() const;

  struct Delivery {
    Operation* operation = nullptr;
    std::uint32_t step = 0;
  };

  std::shared_ptr<OperationPool> pool_;  // set while in use
  GroupContext* group_ = nullptr;
  Engine* engine_ = nullptr;
  std::shared_ptr<const Plan> plan_;
  Call call_;
  ChunkMap map_;
  std::uint32_t id_ = 0;  // in the engine's table, high half of tokens
  std::uint32_t sequence_ = 0;
  std::uint32_t slot_ = 0;
  std::uint64_t word_ = 0;
  KernelFn kernel_ = nullptr;
  std::size_t element_bytes_ = 0;
  std::size_t slot_bytes_ = 0;
  std::byte* input_ = nullptr;
  std::byte* output_ = nullptr;
  std::byte* scratch_ = nullptr;

  std::vector<std::uint32_t> cursor_;       // next step, by channel
  std::vector<std::uint8_t> is_step_done_;  // by step
  std::vector<ConstByteRange> ranges_;      // by PlanStep::first_range
  std::vector<Delivery> deliveries_;        // by step
  std::uint32_t remaining_ = 0;
  std::uint32_t range_total_ = 0;
  bool is_dirty_ = false;       // an event came, or a post said `again`
  bool has_user_step_ = false;  // a user-defined op is due or running
  bool is_user_step_taken_ = false;
  std::uint32_t user_step_ = 0;
  Operation* next_in_slot_ = nullptr;
  ScratchMemory scratch_memory_;

  Clock::time_point first_stalled_{};
  std::chrono::milliseconds next_report_{0};
  std::uint32_t stall_reports_ = 0;
  std::atomic<bool> is_complete_{false};
  Status status_;
};

}  // namespace tutti
