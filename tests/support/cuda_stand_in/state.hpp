// The state behind the stand-in: devices whose memory is the host's, streams that threads carry out, events.
// Knows nothing of tutti. For tests only.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tests/support/cuda_stand_in/control.hpp"

namespace cuda_stand_in {

// Set once; waited for by streams and by the host.
class Mark {
 public:
  void set();
  void wait();
  bool is_set();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_set_ = false;
};

// An in-order queue with a thread of its own, which ends when the queue is closed and empty.
class Queue {
 public:
  explicit Queue(int device) : device_(device) {}
  static std::shared_ptr<Queue> start(int device);
  void put(std::function<void()> task);
  // Set behind everything that was put so far.
  std::shared_ptr<Mark> mark();
  void close();
  bool is_closed();
  bool is_idle();
  int device() const { return device_; }
  void run();  // the thread's

 private:
  const int device_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  bool is_closed_ = false;
  bool is_running_ = false;
};

}  // namespace cuda_stand_in

// Targets of the handles of cuda.h.
struct CUctx_st {
  int device;
};
struct CUstream_st {
  std::shared_ptr<cuda_stand_in::Queue> queue;
};
struct CUevent_st {
  int device;
  std::mutex mutex;
  std::shared_ptr<cuda_stand_in::Mark> mark;  // null until recorded
};

namespace cuda_stand_in {

struct Range {
  std::size_t size_bytes;
  unsigned type;  // CU_MEMORYTYPE_*
  bool is_managed;
  int device;
};

// Memory of one device: a file in memory, so that other processes can map it.
struct Device {
  CUctx_st context{0};
  int file = -1;
  std::byte* base = nullptr;
  std::size_t size_bytes = 0;
  std::map<std::size_t, std::size_t> used;  // offset -> bytes
  std::shared_ptr<Queue> default_queue;
  std::vector<std::weak_ptr<Queue>> queues;
  bool hangs = false;
  CUresult error = CUDA_SUCCESS;
};

struct State {
  std::mutex mutex;
  std::condition_variable changed;  // hangs
  bool is_initialised = false;
  std::vector<std::unique_ptr<Device>> devices;
  std::map<std::uintptr_t, Range> ranges;  // by first address; all that cuPointerGetAttributes knows
  std::map<std::string, std::pair<CUresult, int>, std::less<>> failures;
  std::map<std::string, unsigned long, std::less<>> calls;
};

// Never destroyed: threads of streams outlive main().
State& state();
// Counts a call; the result that it has to fail with, if any (also: cuInit has not been called).
CUresult enter(const char* function);
// The device of the thread's current context; null without one.
Device* current_device();
CUcontext current_context();
// The queue of a stream handle, null for a stream that needs a context when there is none.
std::shared_ptr<Queue> queue_of(CUstream stream);
CUresult error_of(int device);
// Bytes of the range around an address, of any device or of pinned memory; null type 0 for none.
Range range_of(const void* pointer, std::uintptr_t* base = nullptr);

inline void* pointer_of(CUdeviceptr address) {
  return reinterpret_cast<void*>(static_cast<std::uintptr_t>(address));
}

}  // namespace cuda_stand_in

// Opens every entry point.
#define STAND_IN_ENTER(function)                                                           \
  if (const CUresult entered = cuda_stand_in::enter(#function); entered != CUDA_SUCCESS) { \
    return entered;                                                                        \
  }
