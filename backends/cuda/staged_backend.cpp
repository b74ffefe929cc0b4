// The thread that moves staged calls on.
#include "backends/cuda/staged_backend.hpp"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "backends/cuda/staged_work.hpp"
#include "runtime/base/log.hpp"
#include "runtime/base/thread.hpp"

namespace tutti::cuda {
namespace {

constexpr std::size_t kMostPinnedBytes = std::size_t{4} << 30U;  // of the process
// The thread looks in vain so often before it naps between looks: a call on its way costs a system call of 50
// us granularity then, no core.
constexpr std::uint32_t kLooks = 200;
constexpr std::chrono::microseconds kNap{20};
constexpr std::chrono::milliseconds kUnwindTime{5000};  // of the streams of a group that has failed

// Outlives every group: what a device might still use is never freed.
PinnedPool& process_pool() {
  static auto* const kPool = new PinnedPool(kMostPinnedBytes);
  return *kPool;
}

class StagedBackend final : public Backend {
 public:
  explicit StagedBackend(GroupServices& services) : services_(services) {}

  ~StagedBackend() override {
    {
      const std::lock_guard lock(mutex_);
      is_ending_ = true;
    }
    has_news_.notify_one();
    if (mover_.joinable()) mover_.join();
  }

  const BackendCaps& caps() const override { return caps_; }

  Status supports(const Call& call) const override {
    return is_reducing(call.collective) ? check_op(call.op, call.dtype) : Status();
  }

  Result<WorkRef> start(const Call& call, const Choice& choice) override {
    auto* const work = new StagedWork(call, choice.algorithm, services_.rank(), services_.size());
    WorkRef reference(work);
    Status enqueued = work->enqueue(process_pool());
    if (!enqueued) return enqueued;
    {
      const std::lock_guard lock(mutex_);
      if (!mover_.joinable()) {
        Result<std::thread> thread = start_thread("tutti-staging", [this] { move_on(); });
        if (!thread) return thread.status();
        mover_ = *std::move(thread);
      }
      waiting_.emplace_back(Pending{work, reference});
    }
    has_news_.notify_one();
    return reference;
  }

  CachedCall* cached_call(const Call& /*call*/) override { return nullptr; }
  Result<std::string> explain(const Call& /*call*/) const override {
    return std::string("staged: through pinned memory of the host");
  }

 private:
  struct Pending {
    StagedWork* work;
    WorkRef reference;
  };

  void move_on() {
    std::deque<Pending> moving;  // in order of submission
    for (std::uint32_t vain_looks = 0;;) {
      {
        std::unique_lock lock(mutex_);
        if (moving.empty()) has_news_.wait(lock, [&] { return is_ending_ || !waiting_.empty(); });
        if (moving.empty() && waiting_.empty()) return;
        for (Pending& pending : waiting_) moving.push_back(std::move(pending));
        waiting_.clear();
      }
      vain_looks = look_at(moving) ? 0 : vain_looks + 1;
      if (vain_looks > kLooks) {
        std::this_thread::sleep_for(kNap);
      } else {
        std::this_thread::yield();
      }
    }
  }

  bool look_at(std::deque<Pending>& moving) {
    using Stage = StagedWork::Stage;
    bool has_moved = false, may_start = true;
    const Status failure = services_.failure();
    for (const Pending& pending : moving) {
      StagedWork& work = *pending.work;
      if (work.stage() == Stage::arriving) {
        // The order of calls is their match: nobody overtakes one whose input is still on its way.
        may_start = may_start && (work.has_arrived() || !failure);
        if (!failure) {
          work.fail(failure);
        } else if (may_start) {
          work.start(services_.host());
        }
        has_moved = has_moved || work.stage() != Stage::arriving;
      } else if (work.look()) {
        has_moved = true;
      } else if (work.stage() == Stage::leaving &&
                 Clock::now() - work.resumed_at() > (failure ? services_.timeout() : kUnwindTime)) {
        log_error("a GPU has not taken a result that was ready for it; its staging memory is given up");
        work.give_up();
        has_moved = true;
      }
    }
    std::erase_if(moving, [](const Pending& pending) { return pending.work->stage() == Stage::over; });
    return has_moved;
  }

  GroupServices& services_;
  BackendCaps caps_{"staged", "", ""};
  std::mutex mutex_;
  std::condition_variable has_news_;
  std::deque<Pending> waiting_;  // not seen by the thread yet
  bool is_ending_ = false;
  std::thread mover_;
};

}  // namespace

std::unique_ptr<Backend> make_staged_backend(GroupServices& services) {
  return std::make_unique<StagedBackend>(services);
}

}  // namespace tutti::cuda
