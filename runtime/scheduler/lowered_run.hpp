// One operation on the control blocks of its group: epoch after epoch of its slot. Knows no endpoint protocol,
// no selection and no way of waiting.
//
// The ranks find out themselves which form runs. Where the direct form is possible, every rank announces in
// flag line 0 of the first epoch where its buffers lie. If all buffers lie in shared memory that epoch runs the
// direct form, else the staged form. All ranks read the same announcements, so all decide alike. A rank whose own
// buffers are not shared knows the answer and does not wait for the others.
//
// An area is written again two epochs later, in epoch e if it was written in e - 2. A peer that was heard from in
// epoch e - 1 has ended e - 2 (Schedule::hears_from_all). Otherwise the rank reads how far the peers are.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "runtime/base/call.hpp"
#include "runtime/record/group_record.hpp"
#include "runtime/scheduler/control_block.hpp"
#include "runtime/scheduler/epoch_steps.hpp"
#include "runtime/scheduler/resolved_call.hpp"

namespace tutti {

class LoweredRun {
 public:
  // An operation as far as a run needs it. Pointers stay valid until the run has ended.
  struct Work {
    const Call* call = nullptr;
    KernelFn kernel = nullptr;
    LoweredBuffers buffers;
    std::uint64_t digest = 0;  // of this rank's calls up to this one
    std::uint32_t slot = 0;
    // While it is not zero, advance() ends as soon as something has been done.
    const std::atomic<std::uint32_t>* wanting = nullptr;
    record::OperationRecord* recorded = nullptr;  // null: nobody wants to know
    HelperThreads* helpers = nullptr;             // null: there are none
  };
  enum class Progress : std::uint8_t {
    complete,
    blocked,   // waits for a peer, or makes way for others
    mismatch,  // `peer` has made another call, or other calls before
    revoked,   // `peer` has failed and no longer lets its buffers be touched
  };

  // For the buffers of so many peers, which the direct form finds. While nothing runs.
  void reserve(std::size_t peers) { origins_.resize(ResolvedPlace::peer_buffers + 2 * peers); }
  // To be filled in before start() or resume().
  Work& work() { return work_; }
  // Nothing is done yet. The control blocks are linked and the slot is free. `resolved` outlives the run.
  void start(ResolvedCall& resolved);
  // The current epoch of the slot has been begun, and its staged form been run up to that step.
  void resume(ResolvedCall& resolved, const ResolvedStep* step);
  // Runs until the end, or until a peer's flag has not come after so many polls.
  Progress advance(std::uint32_t polls);
  // Would advance() get any further? Touches nothing.
  bool has_news() const;
  // The rank that it waits for.
  std::uint32_t peer() const { return peer_; }
  // Has it not arrived at this operation, as far as is known? Later it is only behind.
  bool is_peer_late() const { return done_count_ == 0 && !is_direct_; }
  bool has_moved() const { return has_moved_; }  // in the last advance()

 private:
  enum class Phase : std::uint8_t { enter, announce, collect, run };
  struct Driver;

  void begin_epoch();
  void bind(const ResolvedEpoch& epoch);
  // False also when the owner makes another call: stopped_ says so.
  bool has_come(const FlagLine& line);
  bool may_poll_again();
  void signal(FlagLine& line);
  void announce();
  bool collect();
  bool find_buffers(std::uint32_t peer, const Announcement& said);
  bool may_touch();
  PassSettings pass_settings() const;
  // One phase each; false: stopped_ says why it is not done.
  bool enter_epoch();
  bool collect_announcements();
  bool run_epoch();
  bool leave_epoch();  // false: that was the last one

  bool is_wanted() const { return work_.wanting->load(std::memory_order_relaxed) != 0; }
  void note_moved() {
    has_moved_ = true;
    polls_left_ = polls_;
  }
  FlagLine& line_at(const ResolvedStep& step) const {
    return *reinterpret_cast<FlagLine*>(step.at.in(origins_.data()));
  }

  ResolvedCall* resolved_ = nullptr;  // null: has ended
  ControlBlocks* control_blocks_ = nullptr;
  Work work_;
  Phase phase_ = Phase::enter;
  Progress stopped_ = Progress::blocked;  // why advance() goes no further
  bool is_direct_ = false, has_moved_ = false, has_announced_ = false, all_shared_ = false;
  std::uint32_t polls_ = 0, polls_left_ = 0;  // of advance()
  std::uint32_t peer_ = 0;
  // Of the current epoch.
  ControlBlocks::Area area_;
  std::uint64_t number_ = 0;
  const ResolvedEpoch* epoch_ = nullptr;
  const ResolvedStep* step_ = nullptr;
  std::size_t offset_ = 0;               // where in step_ an interrupted pass goes on
  std::uint64_t done_count_ = 0;         // elements (of a block) in earlier epochs
  std::vector<std::uintptr_t> origins_;  // by ResolvedPlace::Origin
};

}  // namespace tutti
