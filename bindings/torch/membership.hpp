// The tutti group of a process group of torch. It ends before the interpreter, because a rank that ends
// without a goodbye is taken for dead. Knows no tensor and no operation.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "tutti/detail/process.hpp"
#include "tutti/tutti.hpp"

namespace tutti::torch_binding {

// Shared by a backend and its operations. Any thread.
class Membership {
 public:
  static std::shared_ptr<Membership> make(CommGroup group);
  ~Membership();
  Membership(const Membership&) = delete;
  Membership& operator=(const Membership&) = delete;

  // Calls function(group) while no other thread uses the group, which takes one caller at a time. Throws
  // invalid_argument once the group was closed.
  template <class Function>
  auto use(const Function& function) {
    const std::lock_guard lock(mutex_);
    if (!group_.is_open())
      throw Error(StatusCode::invalid_argument, -1, "the process group has been shut down");
    return function(static_cast<const CommGroup&>(group_));
  }
  // Without the lock, so that it can end a call that is stuck. Nothing where the group was closed.
  void abort(const std::string& why);
  // The failure of the group; nothing while it works, or where it was closed.
  std::optional<Error> failure();
  // Leaves the group. A second call does nothing, nor does one in a child of fork().
  void close();
  // True once all ranks have called this; false after `at_most`, and where the group cannot tell.
  bool meet(std::chrono::milliseconds at_most);
  // As close(), on a completion thread: for a group that is no longer in use.
  void close_later();
  // Whether this process is a child of fork() of the one that joined the group.
  bool is_inherited() const { return generation_ != tutti::detail::fork_generation(); }
  // At the end of the interpreter.
  static void close_all();

 private:
  explicit Membership(CommGroup group) : group_(std::move(group)) {}

  const unsigned generation_ = tutti::detail::fork_generation();
  std::mutex mutex_;
  CommGroup group_;
};

}  // namespace tutti::torch_binding
