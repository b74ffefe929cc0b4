// A tensor's operation as its submitter sees it: complete when the queue says so. Knows no buffer.
#pragma once

#include <condition_variable>
#include <mutex>
#include <vector>

#include "runtime/base/work.hpp"

namespace tutti {

class TensorWork final : public WorkState {
 public:
  // The first outcome counts. `source`: of a join, the last rank.
  void complete(const Status& status, int source = -1);

  bool test() override { return is_complete(); }
  Status wait(Clock::time_point deadline) override;
  Status status() const override { return is_complete() ? status_ : Status(); }
  int source() const override { return is_complete() && status_.is_ok() ? source_ : -1; }
  void when_complete(CompletionCallback callback) override;

 private:
  void recycle() override { delete this; }

  std::mutex mutex_;
  std::condition_variable completed_;
  std::vector<CompletionCallback> callbacks_;
  bool is_calling_ = false;  // later callbacks wait until these have returned
  Status status_;
  int source_ = -1;
};

}  // namespace tutti
