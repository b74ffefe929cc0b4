// Fusion of plain submitted calls (TUTTI_FUSION_COUNT): consecutive small allreduces of one kind share an operation.
// Knows no name and no negotiation of tensors.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>
#include <vector>

#include "runtime/base/call.hpp"
#include "runtime/base/completable_work.hpp"
#include "runtime/group/comm_group.hpp"

namespace tutti {

// A round: the ranks agree on the length of the next batch, which is the least number of calls that a rank has
// submitted; then the batch is one operation. Calls that come meanwhile share the next round. So all ranks cut alike,
// whenever and in whatever order they wait, and no call waits for a later one. Callbacks start the operations, on
// streams that nobody else uses. Any thread.
class CallFusion : public std::enable_shared_from_this<CallFusion> {
 public:
  struct Limits {
    std::uint32_t most_calls = 0;  // below 2: nothing is fused
    std::uint64_t most_bytes = 0;  // of a batch
  };
  // Longer calls are operations of their own: packing would cost more than the call that it saves.
  static constexpr std::uint64_t kMostCallBytes = std::uint64_t{256} << 10U;

  CallFusion(CommGroup::Impl& counts, CommGroup::Impl& data, const Limits& limits)
      : counts_(counts), data_(data), limits_(limits) {}

  // A pure function of what is equal on all ranks.
  static bool may_share(const Call& call, std::string_view algorithm);
  // A call that may share. Errors: the failure of an earlier one.
  Result<WorkRef> submit(const Call& call);
  // A waiting thread moves the operation under way on, for a short time. False: there is none, or another thread does.
  bool drive(Clock::time_point deadline);
  // The group ends: nothing is started any more, and calls that were not started fail. The operation under way ends
  // its own calls. Waits for a thread that is in a callback of the program, so the caller holds no lock.
  void close();

 private:
  struct Pending {
    Call call;
    WorkRef work;
  };
  enum class Stage : std::uint8_t { idle, counting, moving };
  using Lock = std::unique_lock<std::mutex>;

  void advance();
  bool step(Lock& lock);
  void start(Lock& lock, CommGroup::Impl& group, const Call& call);
  std::uint32_t common_length() const;
  void take_batch();
  Call pack();
  void finish_batch(Lock& lock, const Status& status);
  void fail_pending(Lock& lock);
  static void complete(Lock& lock, const std::vector<Pending>& ended, const Status& status);

  CommGroup::Impl& counts_;
  CommGroup::Impl& data_;
  const Limits limits_;

  std::mutex driving_mutex_;  // held by the thread that waits for `current_`
  std::mutex mutex_;          // guards what follows
  std::condition_variable rested_;
  std::deque<Pending> pending_;
  std::vector<Pending> batch_;
  std::vector<std::byte> buffer_;
  std::uint32_t length_ = 0;  // of the next batch: offered, then agreed
  Stage stage_ = Stage::idle;
  WorkRef current_;                // the operation under way
  std::optional<Status> outcome_;  // of it
  std::optional<Status> failure_;
  // One thread at a time advances; others tell it that there is more to do.
  bool is_advancing_ = false, has_news_ = false;
  std::thread::id advancing_;
};

}  // namespace tutti
