// A Work whose end another thread reports: its outcome and its callbacks, which come before the end or after.
// Knows no operation and no way of waiting.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <vector>

#include "runtime/base/work.hpp"

namespace tutti {

// Made with `new` and held by WorkRefs alone.
class CompletableWork : public WorkState {
 public:
  Status status() const override { return is_complete() ? status_ : Status(); }
  int source() const override { return is_complete() && status_.is_ok() ? source_ : -1; }
  void when_complete(CompletionCallback callback) override;
  // Completes it and calls back; later calls change nothing. `source`: the rank that WorkState::source() tells.
  void complete(const Status& status, int source = -1);

 protected:
  // With mutex_ held: a callback was added; it is about to complete, with so many `callbacks`.
  virtual void on_wanted() {}
  virtual void on_complete(std::size_t /*callbacks*/) {}

  std::mutex mutex_;
  std::condition_variable completed_;

 private:
  void recycle() override { delete this; }

  std::vector<CompletionCallback> callbacks_;  // guarded by mutex_, as the outcome is until complete
  bool is_calling_ = false;                    // later callbacks wait until these have returned
  Status status_;
  int source_ = -1;
};

}  // namespace tutti
