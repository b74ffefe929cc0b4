// Messages within one rank. Knows no group.
#include "bindings/torch/own_messages.hpp"

#include <ATen/ATen.h>

#include <algorithm>

#include "tutti/clock.hpp"

namespace tutti::torch_binding {

bool PendingReceive::is_over() const {
  const std::lock_guard lock(mutex_);
  return is_over_;
}

bool PendingReceive::wait_for(std::chrono::milliseconds at_most) {
  std::unique_lock lock(mutex_);
  const RunningClock::time_point end = RunningClock::now() + at_most;
  for (auto now = RunningClock::now(); !is_over_ && now < end; now = RunningClock::now())
    has_ended_.wait_for(lock, std::min<RunningClock::duration>(end - now, RunningClock::kLongestSleep));
  return is_over_;
}

void PendingReceive::then(std::function<void()> then) {
  {
    const std::lock_guard lock(mutex_);
    if (!is_over_) {
      thens_.push_back(std::move(then));
      return;
    }
  }
  then();
}

void PendingReceive::end(at::Tensor message) {
  std::vector<std::function<void()>> thens;
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
    message_ = std::move(message);
    thens = std::exchange(thens_, {});
  }
  has_ended_.notify_all();
  for (const std::function<void()>& then : thens) then();
}

at::Tensor PendingReceive::message() const {
  const std::lock_guard lock(mutex_);
  return message_;
}

void OwnMessages::send(const at::Tensor& tensor, int tag) {
  at::Tensor copy = tensor.detach().clone();
  std::shared_ptr<PendingReceive> receive;
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(pending_.begin(), pending_.end(),
                                    [tag](const auto& waiting) { return waiting->tag() == tag; });
    if (found == pending_.end()) {
      messages_.emplace_back(tag, std::move(copy));
      return;
    }
    receive = *found;
    pending_.erase(found);
  }
  receive->end(std::move(copy));
}

std::shared_ptr<PendingReceive> OwnMessages::receive(int tag) {
  auto receive = std::make_shared<PendingReceive>(tag);
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(messages_.begin(), messages_.end(),
                                  [tag](const auto& message) { return message.first == tag; });
  if (found == messages_.end()) {
    pending_.push_back(receive);
  } else {
    receive->end(std::move(found->second));
    messages_.erase(found);
  }
  return receive;
}

void OwnMessages::cancel() {
  std::deque<std::shared_ptr<PendingReceive>> waiting;
  {
    const std::lock_guard lock(mutex_);
    waiting.swap(pending_);
    messages_.clear();
  }
  for (const std::shared_ptr<PendingReceive>& receive : waiting) receive->end({});
}

}  // namespace tutti::torch_binding
