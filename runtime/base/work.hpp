// Work: a submitted operation as its submitter sees it. Knows no executor.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <utility>

#include "runtime/base/running_clock.hpp"
#include "runtime/base/status.hpp"

namespace tutti {

struct Call;

// How the caller of an operation awaits its end. asynchronous: it computes, so a progress thread drives the
// operation. awaited_soon: it will wait, so no progress thread is needed. blocking: it waits at once.
enum class Completion : std::uint8_t { asynchronous, awaited_soon, blocking };

// Gets the outcome of an operation. May submit operations; must not wait for one, nor throw.
using CompletionCallback = std::function<void(const Status&)>;

// Calls a callback. Until it returns, the thread must not wait for operations: it may be the only one that
// makes progress.
void call_back(const CompletionCallback& callback, const Status& status);
bool is_in_callback();

// A function that a waiting thread calls periodically; see CallOptions::while_waiting.
struct WaitHook {
  void (*function)(void* context) noexcept = nullptr;
  void* context = nullptr;
};
// While it lives, waits of this thread call the hook, if it has a function.
class WaitHookScope {
 public:
  explicit WaitHookScope(const WaitHook& hook);
  ~WaitHookScope();
  WaitHookScope(const WaitHookScope&) = delete;
  WaitHookScope& operator=(const WaitHookScope&) = delete;

 private:
  const WaitHook hook_;
  const WaitHook* const before_;
};
const WaitHook* current_wait_hook();        // of this thread; null: none
void call_wait_hook(const WaitHook& hook);  // the thread must not wait in it, as in call_back()

// Of this thread: may its waits poll before they sleep? Not where the program may need the CPU.
void set_may_spin(bool may);
bool may_spin();

// Implemented by backends; reached only through WorkRef. Objects are pooled: release() may hand one to the
// next operation.
class WorkState {
 public:
  virtual ~WorkState() = default;
  // Also by failure. A thread that reads true sees all writes of the operation.
  bool is_complete() const { return is_complete_.load(std::memory_order_acquire); }
  // Makes some progress; true when this operation is complete (also by failure). Any thread.
  virtual bool test() = 0;
  // Blocks until complete or `deadline`; the operation's status, or timeout (the operation then goes on). Any
  // one thread.
  virtual Status wait(Clock::time_point deadline) = 0;
  // The status once complete.
  virtual Status status() const = 0;
  // The rank that sent the message of a complete receive; -1 before, and for other operations.
  virtual int source() const = 0;
  // Calls `callback` once the operation is complete, on the thread that completes it. If it is complete and
  // earlier callbacks have returned, this thread calls it at once. Any thread, any number of times.
  virtual void when_complete(CompletionCallback callback) = 0;

 protected:
  friend class WorkRef;
  void retain() { references_.fetch_add(1, std::memory_order_relaxed); }
  void release() {
    if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) recycle();
  }
  virtual void recycle() = 0;  // the last reference is gone
  std::atomic<std::uint32_t> references_{0};
  std::atomic<bool> is_complete_{false};
};

// An operation that has ended well.
WorkState& completed_work();

// A counted reference. The operation itself holds one until it is complete, so dropping a WorkRef never
// cancels anything. An empty one stands for an operation that has ended well.
class WorkRef {
 public:
  WorkRef() = default;
  explicit WorkRef(WorkState* state) : state_(state) {
    if (state_ != nullptr) state_->retain();
  }
  // Takes over a reference that is counted already.
  static WorkRef adopt(WorkState* state) {
    WorkRef reference;
    reference.state_ = state;
    return reference;
  }
  WorkRef(const WorkRef& other) : WorkRef(other.state_) {}
  WorkRef(WorkRef&& other) noexcept : state_(std::exchange(other.state_, nullptr)) {}
  WorkRef& operator=(WorkRef other) noexcept {
    std::swap(state_, other.state_);
    return *this;
  }
  ~WorkRef() {
    if (state_ != nullptr) state_->release();
  }
  WorkState* operator->() const { return state_ != nullptr ? state_ : &completed_work(); }
  explicit operator bool() const { return state_ != nullptr; }

 private:
  WorkState* state_ = nullptr;
};

// Collective calls of one signature, resolved beforehand.
class CachedCall {
 public:
  virtual ~CachedCall() = default;
  // Makes a call of that signature, on any buffers. It runs to its end, or until it has polled a while for a
  // peer: `unfinished` is then its Work, else it stays empty. False: nothing was done, and it is to be started
  // like any other call.
  virtual bool run(const Call& call, Completion completion, WorkRef* unfinished) = 0;
};

}  // namespace tutti
