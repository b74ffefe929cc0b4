// Operations of a queue that wait for their turn under a priority, and pieces of them under way.
// Decides no order; that is GrantWindow. Knows no negotiation and no group.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "runtime/training/grant_window.hpp"
#include "runtime/training/tensor_scheduler.hpp"

namespace tutti {

// Ends a tensor once all of its pieces have ended, with the first failure.
class TensorScheduler::PieceCount {
 public:
  PieceCount(std::uint32_t count, CompletionCallback end) : end_(std::move(end)), left_(count) {}
  // So many pieces have ended. Any thread.
  void complete(const Status& status, std::uint32_t count = 1);

 private:
  const CompletionCallback end_;
  std::mutex mutex_;
  std::uint32_t left_;
  Status failure_;
};

// Pieces that this rank has completed, by slot. Shared with callbacks of operations, which may end later than
// the queue.
class TensorScheduler::Completions {
 public:
  explicit Completions(std::function<void()> wake) : wake_(std::move(wake)) {}

  void begin(std::uint32_t slot, std::uint64_t bytes);
  void complete(std::uint32_t slot);
  // Pieces are granted again once no more than so many bytes are under way here: wake() is called then, or now.
  void wake_at(std::uint64_t bytes);
  bool is_complete(std::uint32_t slot) const;
  // Has this rank had nothing under way for a while, measured by the time since pieces began last?
  bool is_idle() const;
  // The queue ends.
  void end();

 private:
  void wake_if_due();  // with mutex_ held

  mutable std::mutex mutex_;
  std::function<void()> wake_;
  std::vector<std::uint64_t> bytes_;  // by slot; 0: complete
  std::uint64_t under_way_ = 0, wake_at_ = 0;
  bool is_to_wake_ = false;
  SteadyClock::time_point begun_, ended_;
};

// For the thread that negotiates.
class TensorScheduler::Backlog {
 public:
  // Of a piece, and of an operation that carries several tensors: several epochs on control blocks, and several
  // segments of a message.
  static constexpr std::uint64_t kPieceBytes = std::uint64_t{2} << 20U;

  // `wake`: called by any thread when more pieces may begin; until end().
  Backlog(TensorPriority priority, std::shared_ptr<TensorTiming> timing, std::function<void()> wake)
      : priority_(priority),
        timing_(std::move(timing)),
        completions_(std::make_shared<Completions>(std::move(wake))) {}
  ~Backlog() { completions_->end(); }
  Backlog(const Backlog&) = delete;
  Backlog& operator=(const Backlog&) = delete;

  // Tensors that share an operation, or one, in the order of plan_fusion(). A cycle adds its operations between
  // two grants.
  void add(std::vector<Ready> tensors);
  bool is_empty() const { return window_.is_empty(); }
  bool has_any(bool (*holds)(const Entry& entry)) const;

  // This rank's words of the cycle.
  std::size_t word_count() const { return window_.word_count(); }
  void mark_unfinished(std::span<std::uint64_t> words) const;
  bool was_idle() const { return window_.has_waiting() && completions_->is_idle(); }

  // Tensors to communicate now, as one operation; release() is to be called once it is complete.
  struct Granted {
    std::vector<Ready> tensors;
    std::function<void()> release;
  };
  std::vector<Granted> grant(std::span<const std::uint64_t> unfinished, bool was_idle);
  // All that grant() gave has been begun.
  void wait_for_room();
  // Fails the tensors that wait.
  void fail(const Status& cause);

 private:
  struct Waiting {
    std::vector<Ready> tensors;
    std::uint32_t piece_count = 1, pieces_left = 1;
    std::uint64_t piece_elements = 0;   // 0: it is communicated as a whole
    std::shared_ptr<PieceCount> count;  // of a tensor that is communicated in pieces
  };
  std::shared_ptr<PieceCount> count_pieces(const Ready& tensor, std::uint32_t count) const;
  static Ready piece_of(const Waiting& waiting, std::uint32_t piece);

  const TensorPriority priority_;
  const std::shared_ptr<TensorTiming> timing_;
  std::shared_ptr<Completions> completions_;
  GrantWindow window_;
  std::map<std::uint64_t, Waiting> waiting_;
  std::uint64_t next_operation_ = 0;
  std::int64_t cycle_ = 0;
};

}  // namespace tutti
