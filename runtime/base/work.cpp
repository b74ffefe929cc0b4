// Completion callbacks and hooks of waiting threads, and the state that forbids waiting in them.
#include "runtime/base/work.hpp"

namespace tutti {
namespace {

thread_local bool is_callback_running = false;
thread_local const WaitHook* wait_hook = nullptr;
thread_local bool may_wait_spin = true;

class CompletedWork final : public WorkState {
 public:
  CompletedWork() { is_complete_.store(true, std::memory_order_relaxed); }
  bool test() override { return true; }
  Status wait(Clock::time_point /*deadline*/) override { return {}; }
  Status status() const override { return {}; }
  int source() const override { return -1; }
  void when_complete(CompletionCallback callback) override { call_back(callback, {}); }

 private:
  void recycle() override {}
};

}  // namespace

WorkState& completed_work() {
  static CompletedWork completed;
  return completed;
}

void set_may_spin(bool may) { may_wait_spin = may; }

bool may_spin() { return may_wait_spin; }

bool is_in_callback() { return is_callback_running; }

void call_back(const CompletionCallback& callback, const Status& status) {
  const bool was_running = std::exchange(is_callback_running, true);
  callback(status);
  is_callback_running = was_running;
}

WaitHookScope::WaitHookScope(const WaitHook& hook) : hook_(hook), before_(wait_hook) {
  if (hook_.function != nullptr) wait_hook = &hook_;
}

WaitHookScope::~WaitHookScope() { wait_hook = before_; }

const WaitHook* current_wait_hook() { return wait_hook; }

void call_wait_hook(const WaitHook& hook) {
  const bool was_running = std::exchange(is_callback_running, true);
  hook.function(hook.context);
  is_callback_running = was_running;
}

}  // namespace tutti
