// Rounds of agreement and communication. See call_fusion.hpp.
#include "runtime/group/call_fusion.hpp"

#include <algorithm>
#include <utility>

#include "runtime/base/call_signature.hpp"
#include "runtime/kernels/kernels.hpp"

namespace tutti {
namespace {

// Complete once its batch is.
class FusedWork final : public CompletableWork {
 public:
  explicit FusedWork(std::shared_ptr<CallFusion> fusion) : fusion_(std::move(fusion)) {}

  bool test() override {
    if (!is_complete()) fusion_->drive(Clock::now());
    return is_complete();
  }
  Status wait(Clock::time_point deadline) override {
    constexpr std::chrono::microseconds kBetweenPolls{200};
    const WaitHook* const hook = current_wait_hook();
    while (!is_complete()) {
      const auto now = Clock::now();
      if (now >= deadline)
        return Status(
            StatusCode::timeout,
            "a fused allreduce is not complete: some rank has not submitted it, or does not answer");
      if (fusion_->drive(deadline)) continue;
      {
        std::unique_lock lock(mutex_);
        wait_until(completed_, lock, std::min(deadline, now + kBetweenPolls),
                   [this] { return is_complete(); });
      }
      if (hook != nullptr) call_wait_hook(*hook);
    }
    return status();
  }

 private:
  const std::shared_ptr<CallFusion> fusion_;
};

std::size_t bytes_of(const Call& call) { return call.count * size_of(call.dtype); }

bool are_of_one_kind(const Call& a, const Call& b) {
  return a.dtype == b.dtype && a.op.op == b.op.op && a.wire_dtype == b.wire_dtype;
}

}  // namespace

bool CallFusion::may_share(const Call& call, std::string_view algorithm) {
  return call.collective == Collective::allreduce && algorithm.empty() && CallSignature::is_simple(call) &&
         !is_prescaled(call) && !call.is_device && bytes_of(call) <= kMostCallBytes;
}

Result<WorkRef> CallFusion::submit(const Call& call) {
  WorkRef work(new FusedWork(shared_from_this()));
  {
    const Lock lock(mutex_);
    if (failure_) return *failure_;
    pending_.push_back({call, work});
  }
  advance();
  return work;
}

bool CallFusion::drive(Clock::time_point deadline) {
  constexpr std::chrono::milliseconds kLongest{10};
  const std::unique_lock driving(driving_mutex_, std::try_to_lock);
  if (!driving) return false;
  WorkRef current;
  {
    const Lock lock(mutex_);
    current = current_;
  }
  if (!current || current->is_complete()) return false;
  const auto now = Clock::now();
  if (now >= deadline) {
    current->test();
  } else {
    static_cast<void>(current->wait(std::min(deadline, now + kLongest)));  // its callback learns the outcome
  }
  return true;
}

void CallFusion::close() {
  Lock lock(mutex_);
  if (!failure_) failure_ = Status(StatusCode::aborted, "the group has ended");
  if (is_advancing_ && advancing_ != std::this_thread::get_id())
    rested_.wait(lock, [this] { return !is_advancing_; });
  fail_pending(lock);
}

// An operation may complete, and call back, while this thread starts it: so this is no recursion.
void CallFusion::advance() {
  Lock lock(mutex_);
  has_news_ = true;
  if (is_advancing_) return;
  is_advancing_ = true;
  advancing_ = std::this_thread::get_id();
  while (std::exchange(has_news_, false)) {
    while (step(lock)) {
    }
  }
  is_advancing_ = false;
  advancing_ = {};
  rested_.notify_all();
}

// False: there is nothing to do until an operation has ended, or a call comes.
bool CallFusion::step(Lock& lock) {
  if (outcome_) {
    const Status status = *std::exchange(outcome_, {});
    current_ = {};
    const Stage ended = std::exchange(stage_, Stage::idle);
    if (ended == Stage::moving) finish_batch(lock, status);
    if (!status && !failure_) {
      failure_ = status;
      fail_pending(lock);
    }
    if (failure_) return false;
    if (ended == Stage::moving) return true;
    take_batch();
    stage_ = Stage::moving;
    start(lock, data_, pack());
    return true;
  }
  if (failure_ || stage_ != Stage::idle || pending_.empty()) return false;
  stage_ = Stage::counting;
  length_ = common_length();
  Call call;
  call.dtype = Dtype::u32;
  call.op = Op::min;
  call.in_place = true;
  call.input = call.output = &length_;
  call.count = 1;
  start(lock, counts_, call);
  return true;
}

void CallFusion::start(Lock& lock, CommGroup::Impl& group, const Call& call) {
  lock.unlock();
  const Result<WorkRef> work = group.backend().start(call, {{}, Completion::asynchronous});
  lock.lock();
  if (!work) {
    outcome_ = work.status();
    return;
  }
  current_ = *work;
  lock.unlock();
  (*work)->when_complete([self = shared_from_this()](const Status& status) {
    {
      const Lock outcome_lock(self->mutex_);
      self->outcome_ = status;
    }
    self->advance();
  });
  lock.lock();
}

std::uint32_t CallFusion::common_length() const {
  std::uint64_t bytes = 0;
  std::uint32_t length = 0;
  for (const Pending& next : pending_) {
    bytes += bytes_of(next.call);
    const bool has_room = length == 0 || (length < limits_.most_calls && bytes <= limits_.most_bytes);
    if (!has_room || !are_of_one_kind(next.call, pending_.front().call)) break;
    ++length;
  }
  return length;
}

void CallFusion::take_batch() {
  const auto end = pending_.begin() + std::min<std::ptrdiff_t>(length_, std::ssize(pending_));
  batch_.assign(std::make_move_iterator(pending_.begin()), std::make_move_iterator(end));
  pending_.erase(pending_.begin(), end);
}

// The call that carries the batch.
Call CallFusion::pack() {
  Call call = batch_.front().call;
  if (batch_.size() == 1) return call;
  std::size_t bytes = 0;
  for (const Pending& member : batch_) bytes += bytes_of(member.call);
  if (buffer_.size() < bytes) buffer_.resize(bytes);
  std::byte* at = buffer_.data();
  for (const Pending& member : batch_) {
    copy_bytes(at, static_cast<const std::byte*>(member.call.input), bytes_of(member.call));
    at += bytes_of(member.call);
  }
  call.input = call.output = buffer_.data();
  call.in_place = true;
  call.count = bytes / size_of(call.dtype);
  return call;
}

void CallFusion::finish_batch(Lock& lock, const Status& status) {
  const std::vector<Pending> batch = std::exchange(batch_, {});
  if (status.is_ok() && batch.size() > 1) {
    const std::byte* at = buffer_.data();
    for (const Pending& member : batch) {
      copy_bytes(static_cast<std::byte*>(member.call.output), at, bytes_of(member.call));
      at += bytes_of(member.call);
    }
  }
  complete(lock, batch, status);
}

// With the failure set, after which no call comes. A batch under way uses memory of its callers until its outcome.
void CallFusion::fail_pending(Lock& lock) {
  const std::vector<Pending> ended(pending_.begin(), pending_.end());
  pending_.clear();
  complete(lock, ended, *failure_);
}

// Callbacks of the program run meanwhile, which may submit.
void CallFusion::complete(Lock& lock, const std::vector<Pending>& ended, const Status& status) {
  lock.unlock();
  for (const Pending& member : ended) static_cast<FusedWork&>(*member.work.operator->()).complete(status);
  lock.lock();
}

}  // namespace tutti
