// Messages within one rank. Knows no group.
#include "bindings/torch/own_messages.hpp"

#include <ATen/ATen.h>

#include <algorithm>

#include "tutti/clock.hpp"

namespace tutti::torch_binding {

bool Arrival::is_over() const {
  const std::lock_guard lock(mutex_);
  return is_over_;
}

bool Arrival::wait_for(std::chrono::milliseconds at_most) {
  std::unique_lock lock(mutex_);
  const RunningClock::time_point end = RunningClock::now() + at_most;
  for (auto now = RunningClock::now(); !is_over_ && now < end; now = RunningClock::now())
    has_ended_.wait_for(lock, std::min<RunningClock::duration>(end - now, RunningClock::kLongestSleep));
  return is_over_;
}

void Arrival::then(std::function<void()> then) {
  {
    const std::lock_guard lock(mutex_);
    if (!is_over_) {
      thens_.push_back(std::move(then));
      return;
    }
  }
  then();
}

void Arrival::end(at::Tensor message) {
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

at::Tensor Arrival::message() const {
  const std::lock_guard lock(mutex_);
  return message_;
}

void OwnMessages::send(const at::Tensor& tensor, int tag) {
  at::Tensor copy = tensor.detach().clone();
  std::shared_ptr<Arrival> arrival;
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(arrivals_.begin(), arrivals_.end(),
                                    [tag](const auto& waiting) { return waiting->tag() == tag; });
    if (found == arrivals_.end()) {
      messages_.emplace_back(tag, std::move(copy));
      return;
    }
    arrival = *found;
    arrivals_.erase(found);
  }
  arrival->end(std::move(copy));
}

std::shared_ptr<Arrival> OwnMessages::receive(int tag) {
  auto arrival = std::make_shared<Arrival>(tag);
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(messages_.begin(), messages_.end(),
                                  [tag](const auto& message) { return message.first == tag; });
  if (found == messages_.end()) {
    arrivals_.push_back(arrival);
  } else {
    arrival->end(std::move(found->second));
    messages_.erase(found);
  }
  return arrival;
}

void OwnMessages::cancel() {
  std::deque<std::shared_ptr<Arrival>> waiting;
  {
    const std::lock_guard lock(mutex_);
    waiting.swap(arrivals_);
    messages_.clear();
  }
  for (const std::shared_ptr<Arrival>& arrival : waiting) arrival->end({});
}

}  // namespace tutti::torch_binding
