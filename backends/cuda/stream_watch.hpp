// Calls that are on streams, and the thread that sees how they end: by an event of the device, by what their
// stream owner or the group finds wrong while nobody calls, or by the time they take.
// Knows no collective, and not who carries the calls out.
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
#include "backends/cuda/device_work.hpp"
#include "backends/cuda/stream_event.hpp"

namespace tutti::cuda {

class StreamWatch;

// A call that is on its stream. May outlive its watch, complete.
class StreamWork final : public DeviceWork {
 public:
  bool test() override {
    look();
    return is_complete();
  }
  Status wait(Clock::time_point deadline) override;

 private:
  friend class StreamWatch;
  StreamWork(StreamWatch& watch, std::string what, int source, Event begun, Event ended);
  // Completes it if the device is past it, or cannot get there.
  void look();
  // Has the device been at it for longer than `timeout`? What is before it on the stream takes the time it
  // takes.
  bool is_late(std::chrono::milliseconds timeout);
  // Only complete() ends it from now on: events of what was aborted come, too, but nothing right is behind
  // them.
  void disbelieve_events();
  void on_wanted() override;
  void on_complete(std::size_t callbacks) override;

  StreamWatch& watch_;      // until complete
  const std::string what_;  // "allreduce of 1024 f32 by NCCL on GPU 0"
  const int source_;
  bool is_past_belief_ = false;  // this and what follows: guarded by the mutex
  Event begun_, ended_;          // around what was put on the stream
  Clock::time_point seen_to_begin_{};
};

// Threading: one thread submits; works are tested, and waited for, by any.
class StreamWatch {
 public:
  // Who carries the calls out. Used by the watch's thread too, until close().
  class Owner {
   public:
    // What has gone wrong on the device or elsewhere while nobody called; ok while nothing has.
    virtual Status diagnose() = 0;
    // Ends what is on the device. Results are worthless from now on.
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

  // A work to be, behind what `stream` holds: marks the beginning. `what` names it in messages; `source` is
  // the rank that a receive is from, else -1. In the device's context, as for add().
  Result<WorkRef> begin(std::string what, int source, CUstream stream);
  // The work is on the stream: marks the end. It completes without anybody's help from now on.
  Status add(const WorkRef& work, CUstream stream);

  // Why calls fail from now on; ok while they do not.
  Status failure();
  // Ends everything: the stream owner aborts, works complete with `cause`, the group fails. The first cause
  // counts.
  void fail(const Status& cause);
  // Waits for what is under way, however long its streams take; the failure, if that ends it. For the thread
  // that submits.
  Status drain();
  // Waits for what is under way, `patience` at most, then ends it, and the thread. For the owner, once.
  void close(std::chrono::milliseconds patience);

 private:
  friend class StreamWork;
  std::vector<WorkRef> pending();
  // Are there any, and may they still end well?
  bool is_busy();
  // Also lets go of those that are complete.
  void look_at_all();
  // What is wrong with the group, the stream owner, or a work that takes too long.
  Status diagnose();
  void look_sooner();
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
