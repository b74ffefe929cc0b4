// Calls that are on streams, and the thread that watches how they end: by an event of the device, by an error
// that the stream owner or the group reports, or by the timeout.
// Knows no collective and no engine.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "backends/backend.hpp"
#include "backends/cuda/stream_event.hpp"
#include "runtime/base/completable_work.hpp"

namespace tutti::cuda {

class StreamWatch;

// A call that is on its stream. A complete one may outlive its watch.
class StreamWork final : public CompletableWork {
 public:
  bool test() override {
    poll();
    return is_complete();
  }
  Status wait(Clock::time_point deadline) override;

 private:
  friend class StreamWatch;
  StreamWork(StreamWatch& watch, std::string what, int source, Event begun, Event ended);
  // Completes it if the device is past it, or cannot get there.
  void poll();
  // Has the device run it for longer than `timeout`? Earlier work on the stream does not count.
  bool is_late(std::chrono::milliseconds timeout);
  // Only complete() ends it from now on: events also fire behind an abort, with wrong results.
  void ignore_events();
  void on_wanted() override;
  void on_complete(std::size_t callbacks) override;

  StreamWatch& watch_;      // until complete
  const std::string what_;  // "allreduce of 1024 f32 by NCCL on GPU 0"
  const int source_;
  bool ignores_events_ = false;  // this and what follows: guarded by the mutex
  Event begun_, ended_;          // around the call on its stream
  Clock::time_point seen_to_begin_{};
};

// Threading: one thread submits; works are tested, and waited for, by any.
class StreamWatch {
 public:
  // The engine that put the calls on their streams. Used by the watch's thread too, until close().
  class Owner {
   public:
    // An error on the device or elsewhere that no call has reported; ok while there is none.
    virtual Status diagnose() = 0;
    // Ends all work on the device. Results are worthless from now on.
    virtual void abort(const Status& cause) = 0;

   protected:
    ~Owner() = default;
  };

  // `name`: of the thread, which starts with the first work.
  StreamWatch(GroupServices& services, Owner& owner, int device, const char* name)
      : services_(services), owner_(owner), name_(name), events_(device) {}
  ~StreamWatch();  // closed by then
  StreamWatch(const StreamWatch&) = delete;
  StreamWatch& operator=(const StreamWatch&) = delete;

  EventPool& events() { return events_; }

  // Makes a work and marks its beginning on `stream`. `what` names it in messages; `source` is the rank that
  // a receive is from, else -1. In the device's context, as for add().
  Result<WorkRef> begin(std::string what, int source, CUstream stream);
  // Marks the end of the work on the stream. The watch completes it from now on.
  Status add(const WorkRef& work, CUstream stream);

  // Why calls fail from now on; ok while they do not.
  Status failure();
  // Ends everything: the stream owner aborts, works complete with `cause`, the group fails. The first cause
  // counts.
  void fail(const Status& cause);
  // Waits for all works, without a limit. Errors: the failure that ends them. For the thread that submits.
  Status drain();
  // Waits for all works, `patience` at most, then ends them and the thread. For the owner, once.
  void close(std::chrono::milliseconds patience);

 private:
  friend class StreamWork;
  std::vector<WorkRef> pending();
  // Are there any, and may they still end well?
  bool is_busy();
  // Also forgets complete works.
  void poll_all();
  // An error of the group, of the stream owner, or of a work past its timeout.
  Status diagnose();
  void poll_sooner();
  void run();

  GroupServices& services_;
  Owner& owner_;
  const char* const name_;
  EventPool events_;
  std::atomic<std::size_t> wanted_{0};  // callbacks of pending works
  std::mutex mutex_;                    // taken after a work's
  std::condition_variable changed_;
  std::deque<WorkRef> pending_;  // in order of submission
  bool is_closed_ = false;
  Status failure_;
  std::thread thread_;
};

}  // namespace tutti::cuda
