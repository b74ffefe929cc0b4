// The completion of a call on a GPU's buffers, and its callbacks. Knows neither device nor engine.
#pragma once

#include <condition_variable>
#include <mutex>
#include <vector>

#include "runtime/base/work.hpp"

namespace tutti::cuda {

class DeviceWork : public WorkState {
 public:
  Status status() const override { return is_complete() ? status_ : Status(); }
  int source() const override { return is_complete() && status_.is_ok() ? source_ : -1; }
  void when_complete(CompletionCallback callback) override;

 protected:
  // Completes it and calls back; true for the first outcome, later ones change nothing. `source`: of a
  // receive.
  bool complete(const Status& status, int source = -1);
  // With mutex_ held: a callback was added; it is about to complete, with so many `callbacks`.
  virtual void on_wanted() {}
  virtual void on_complete(std::size_t /*callbacks*/) {}

  std::mutex mutex_;
  std::condition_variable completed_;

 private:
  void recycle() override { delete this; }
  std::vector<CompletionCallback> callbacks_;  // guarded by mutex_, as the outcome is until complete
  bool is_calling_ = false;                    // later ones wait until these have returned
  Status status_;
  int source_ = -1;
};

}  // namespace tutti::cuda
