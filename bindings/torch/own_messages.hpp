// Messages of a rank to itself, which no transport carries. Knows no group.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace tutti::torch_binding {

// The event that a receive from oneself waits for. Any thread.
class PendingReceive {
 public:
  explicit PendingReceive(int tag) : tag_(tag) {}
  int tag() const { return tag_; }
  bool is_over() const;
  // False after `at_most`.
  bool wait_for(std::chrono::milliseconds at_most);
  // Calls `then` once it is over: here if it is already, else on the thread that ends it.
  void then(std::function<void()> then);
  // An undefined tensor says that none will come.
  void end(at::Tensor message);
  at::Tensor message() const;

 private:
  const int tag_;
  mutable std::mutex mutex_;
  std::condition_variable has_ended_;
  bool is_over_ = false;
  at::Tensor message_;
  std::vector<std::function<void()>> thens_;
};

// Matched by tag, in the order of the calls. Any thread.
class OwnMessages {
 public:
  ~OwnMessages() { cancel(); }
  // Keeps a copy, so that the send is complete.
  void send(const at::Tensor& tensor, int tag);
  std::shared_ptr<PendingReceive> receive(int tag);
  // No message will come any more.
  void cancel();

 private:
  std::mutex mutex_;
  std::deque<std::pair<int, at::Tensor>> messages_;      // that nobody has received yet
  std::deque<std::shared_ptr<PendingReceive>> pending_;  // that still wait
};

}  // namespace tutti::torch_binding
