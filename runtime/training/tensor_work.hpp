// A tensor's operation as its submitter sees it: complete when the queue says so. Knows no buffer.
#pragma once

#include <memory>
#include <shared_mutex>
#include <utility>

#include "runtime/base/completable_work.hpp"

namespace tutti {

class TensorScheduler;
class TensorWork;

// The way from a tensor that is waited for to its scheduler, while that lives.
class TensorHelp {
 public:
  explicit TensorHelp(TensorScheduler& scheduler) : scheduler_(&scheduler) {}
  // See TensorScheduler::help().
  void give(TensorWork& work, Clock::time_point until);
  // See TensorScheduler::advance().
  void advance();
  // Returns when nobody helps any more.
  void end();

 private:
  std::shared_mutex mutex_;
  TensorScheduler* scheduler_;
};

// Its source() is, of a join, the last rank.
class TensorWork final : public CompletableWork {
 public:
  explicit TensorWork(std::shared_ptr<TensorHelp> help) : help_(std::move(help)) {}
  // The work that a reference made for a tensor holds.
  static TensorWork& of(const WorkRef& work) { return static_cast<TensorWork&>(*work.operator->()); }

  // The operation that communicates the tensor, whose callback completes it: waits drive it from now on.
  void run_by(WorkState* operation);
  // Until it is complete, an operation communicates it, or `until`.
  void sleep(Clock::time_point until);

  bool test() override;
  Status wait(Clock::time_point deadline) override;

 private:
  void on_complete(std::size_t callbacks) override;

  const std::shared_ptr<TensorHelp> help_;
  WorkRef operation_;  // guarded by mutex_
};

}  // namespace tutti
