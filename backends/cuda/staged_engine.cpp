// The thread that advances staged calls.
#include "backends/cuda/staged_engine.hpp"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <thread>

#include <fmt/format.h>

#include "backends/cuda/staged_work.hpp"
#include "runtime/base/log.hpp"
#include "runtime/base/thread.hpp"

namespace tutti::cuda {
namespace {

constexpr std::size_t kMostPinnedBytes = std::size_t{4} << 30U;  // of the process
// Failed polls before the thread naps: a call under way then costs a system call every 50 us, and no core.
constexpr std::uint32_t kPollsBeforeNap = 200;
constexpr std::chrono::microseconds kNap{20};
constexpr std::chrono::milliseconds kUnwindTime{5000};  // of the streams of a group that has failed

// Outlives every group: memory that a device may still use is never freed.
PinnedPool& process_pool() {
  static auto* const kPool = new PinnedPool(kMostPinnedBytes);
  return *kPool;
}

class StagedEngine final : public DeviceEngine {
 public:
  explicit StagedEngine(GroupServices& services) : services_(services), host_(services.host()) {}

  ~StagedEngine() override {
    {
      const std::lock_guard lock(mutex_);
      is_ending_ = true;
    }
    has_news_.notify_one();
    if (thread_.joinable()) thread_.join();
  }

  Result<std::unique_ptr<PreparedCall>> prepare(const Call& call, std::string_view algorithm) override {
    if (is_reducing(call.collective)) TUTTI_RETURN_IF_ERROR(check_op(call.op, call.dtype));
    return std::unique_ptr<PreparedCall>(
        std::make_unique<PreparedFor<StagedEngine, std::string>>(*this, std::string(algorithm)));
  }

  // `algorithm`: of the host's backend.
  Result<WorkRef> start(const Call& call, const std::string& algorithm) {
    auto* const work = new StagedWork(call, algorithm, services_.rank(), services_.size());
    WorkRef reference(work);
    Status enqueued = work->enqueue(process_pool());
    if (!enqueued) return enqueued;
    {
      const std::lock_guard lock(mutex_);
      if (!thread_.joinable()) {
        Result<std::thread> thread = start_thread("tutti-staging", [this] { run(); });
        if (!thread) return thread.status();
        thread_ = *std::move(thread);
      }
      waiting_.emplace_back(Pending{work, reference});
    }
    has_news_.notify_one();
    return reference;
  }

 private:
  struct Pending {
    StagedWork* work;
    WorkRef reference;
  };

  void run() {
    std::deque<Pending> moving;  // in order of submission
    for (std::uint32_t failed_polls = 0;;) {
      {
        std::unique_lock lock(mutex_);
        if (moving.empty()) has_news_.wait(lock, [&] { return is_ending_ || !waiting_.empty(); });
        if (moving.empty() && waiting_.empty()) return;
        for (Pending& pending : waiting_) moving.push_back(std::move(pending));
        waiting_.clear();
      }
      failed_polls = advance(moving) ? 0 : failed_polls + 1;
      if (failed_polls > kPollsBeforeNap) {
        std::this_thread::sleep_for(kNap);
      } else {
        std::this_thread::yield();
      }
    }
  }

  bool advance(std::deque<Pending>& moving) {
    using Stage = StagedWork::Stage;
    bool has_moved = false, may_start = true;
    const Status failure = services_.failure();
    for (const Pending& pending : moving) {
      StagedWork& work = *pending.work;
      if (work.stage() == Stage::arriving) {
        // Calls match by their order, so none overtakes one whose input has not arrived.
        may_start = may_start && (work.has_arrived() || !failure);
        if (!failure) {
          work.fail(failure);
        } else if (may_start) {
          work.start(host_);
        }
        has_moved = has_moved || work.stage() != Stage::arriving;
      } else if (work.poll()) {
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
  Backend& host_;
  std::mutex mutex_;
  std::condition_variable has_news_;
  std::deque<Pending> waiting_;  // for the thread to take
  bool is_ending_ = false;
  std::thread thread_;
};

}  // namespace

Result<std::unique_ptr<DeviceEngine>> make_staged_engine(GroupServices& services, int device) {
  const auto table = driver();
  if (!table) return table.status();
  CUdevice handle = 0;
  TUTTI_RETURN_IF_CUDA_ERROR(**table, (*table)->cuDeviceGet(&handle, device), "cuDeviceGet");
  int can_wait = 0;
  TUTTI_RETURN_IF_CUDA_ERROR(
      **table,
      (*table)->cuDeviceGetAttribute(&can_wait, CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1, handle),
      "cuDeviceGetAttribute");
  // The attribute is of the first version. Drivers since CUDA 12 have a second one, for every device.
  if (can_wait == 0 && (*table)->version < 12000) {
    return unsupported(
        fmt::format("streams of GPU {} cannot wait for a word of memory (a driver before CUDA 12 with "
                    "NVreg_EnableStreamMemOPs=0)",
                    device));
  }
  return std::unique_ptr<DeviceEngine>(std::make_unique<StagedEngine>(services));
}

}  // namespace tutti::cuda
