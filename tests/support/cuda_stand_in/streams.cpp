// The stand-in's streams and events, and what is put on streams: copies and functions of the host.
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <list>
#include <thread>

#include "tests/support/cuda_stand_in/state.hpp"

namespace cuda_stand_in {

void Mark::set() {
  const std::lock_guard lock(mutex_);
  is_set_ = true;
  changed_.notify_all();
}

void Mark::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return is_set_; });
}

bool Mark::is_set() {
  const std::lock_guard lock(mutex_);
  return is_set_;
}

namespace {

// The threads of all queues. At the end of a process LeakSanitizer stops its threads, and crashes on one
// that is just ending. So the threads of closed queues are waited for before.
class Threads {
 public:
  void add(const std::shared_ptr<Queue>& queue) {
    const std::lock_guard lock(mutex_);
    all_.remove_if([](Entry& entry) {
      if (!entry.ended->is_set()) return false;
      entry.thread.join();
      return true;
    });
    auto ended = std::make_shared<Mark>();
    std::thread thread([mine = std::shared_ptr<Queue>(queue), ended]() mutable {
      mine->run();
      mine.reset();
      ended->set();
    });
    all_.push_back({queue, std::move(ended), std::move(thread)});
  }

  // A stream that waits for what never comes is left as it is.
  void join_closed() {
    if (::getpid() != owner_) return;  // a child of fork() has none of them
    const std::lock_guard lock(mutex_);
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(1);
    for (Entry& entry : all_) {
      const auto is_open = [&] {
        const std::shared_ptr<Queue> queue = entry.queue.lock();
        return queue != nullptr && !queue->is_closed();
      };
      while (!entry.ended->is_set() && !is_open() && std::chrono::steady_clock::now() < deadline)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      if (entry.ended->is_set() && entry.thread.joinable()) entry.thread.join();
    }
  }

 private:
  struct Entry {
    std::weak_ptr<Queue> queue;
    std::shared_ptr<Mark> ended;
    std::thread thread;
  };
  std::mutex mutex_;
  std::list<Entry> all_;
  const pid_t owner_ = ::getpid();
};

// Never destroyed, as the state.
Threads& threads() {
  static Threads& the_threads = [&]() -> Threads& {
    std::atexit([] { threads().join_closed(); });
    return *new Threads;
  }();
  return the_threads;
}

}  // namespace

std::shared_ptr<Queue> Queue::start(int device) {
  auto queue = std::make_shared<Queue>(device);
  threads().add(queue);
  return queue;
}

void Queue::put(std::function<void()> task) {
  const std::lock_guard lock(mutex_);
  tasks_.push_back(std::move(task));
  changed_.notify_all();
}

std::shared_ptr<Mark> Queue::mark() {
  auto mark = std::make_shared<Mark>();
  put([mark] { mark->set(); });
  return mark;
}

bool Queue::is_closed() {
  const std::lock_guard lock(mutex_);
  return is_closed_;
}

void Queue::close() {
  const std::lock_guard lock(mutex_);
  is_closed_ = true;
  changed_.notify_all();
}

bool Queue::is_idle() {
  const std::lock_guard lock(mutex_);
  return tasks_.empty() && !is_running_;
}

void Queue::run() {
  for (;;) {
    std::function<void()> task;
    {
      std::unique_lock lock(mutex_);
      is_running_ = false;
      changed_.wait(lock, [this] { return is_closed_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
      is_running_ = true;
    }
    {
      State& all = state();
      std::unique_lock lock(all.mutex);
      all.changed.wait(lock, [&] { return !all.devices[static_cast<std::size_t>(device_)]->hangs; });
    }
    task();
  }
}

std::shared_ptr<Queue> queue_of(CUstream stream) {
  if (stream != nullptr && stream != CU_STREAM_LEGACY && stream != CU_STREAM_PER_THREAD) return stream->queue;
  Device* device = current_device();
  if (device == nullptr) return nullptr;
  const std::lock_guard lock(state().mutex);
  if (device->default_queue == nullptr) {
    device->default_queue = Queue::start(device->context.device);
    device->queues.push_back(device->default_queue);
  }
  return device->default_queue;
}

}  // namespace cuda_stand_in

using namespace cuda_stand_in;

namespace {

// Opens what needs a stream: its queue, or why there is none.
#define STAND_IN_QUEUE(stream)                             \
  const std::shared_ptr<Queue> queue = queue_of(stream);   \
  if (queue == nullptr) return CUDA_ERROR_INVALID_CONTEXT; \
  if (const CUresult broken = error_of(queue->device()); broken != CUDA_SUCCESS) return broken;

bool is_pageable(CUdeviceptr address) { return range_of(pointer_of(address)).type == 0; }

}  // namespace

STAND_IN_API CUresult cuStreamCreate(CUstream* stream, unsigned) {
  STAND_IN_ENTER(cuStreamCreate)
  Device* device = current_device();
  if (device == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *stream = new CUstream_st{Queue::start(device->context.device)};
  const std::lock_guard lock(state().mutex);
  device->queues.push_back((*stream)->queue);
  return CUDA_SUCCESS;
}

STAND_IN_API CUresult cuStreamDestroy(CUstream stream) {
  STAND_IN_ENTER(cuStreamDestroy)
  stream->queue->close();
  delete stream;
  return CUDA_SUCCESS;
}

STAND_IN_API CUresult cuStreamQuery(CUstream stream) {
  STAND_IN_ENTER(cuStreamQuery)
  STAND_IN_QUEUE(stream)
  return queue->mark()->is_set() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

STAND_IN_API CUresult cuStreamSynchronize(CUstream stream) {
  STAND_IN_ENTER(cuStreamSynchronize)
  STAND_IN_QUEUE(stream)
  queue->mark()->wait();
  return error_of(queue->device());
}

STAND_IN_API CUresult cuStreamIsCapturing(CUstream, CUstreamCaptureStatus* status) {
  STAND_IN_ENTER(cuStreamIsCapturing)
  *status = CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}

STAND_IN_API CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned) {
  STAND_IN_ENTER(cuStreamWaitEvent)
  STAND_IN_QUEUE(stream)
  std::shared_ptr<Mark> mark;
  {
    const std::lock_guard lock(event->mutex);
    mark = event->mark;
  }
  if (mark != nullptr) queue->put([mark] { mark->wait(); });
  return CUDA_SUCCESS;
}

STAND_IN_API CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void* context) {
  STAND_IN_ENTER(cuLaunchHostFunc)
  STAND_IN_QUEUE(stream)
  queue->put([function, context] { function(context); });
  return CUDA_SUCCESS;
}

STAND_IN_API CUresult cuStreamWriteValue32(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned) {
  STAND_IN_ENTER(cuStreamWriteValue32)
  STAND_IN_QUEUE(stream)
  queue->put([=] {
    static_cast<std::atomic<cuuint32_t>*>(pointer_of(address))->store(value, std::memory_order_release);
  });
  return CUDA_SUCCESS;
}

STAND_IN_API CUresult cuStreamWaitValue32(CUstream stream, CUdeviceptr address, cuuint32_t value,
                                          unsigned flags) {
  STAND_IN_ENTER(cuStreamWaitValue32)
  STAND_IN_QUEUE(stream)
  if (flags != CU_STREAM_WAIT_VALUE_GEQ) return CUDA_ERROR_NOT_SUPPORTED;
  queue->put([=] {
    const auto* word = static_cast<std::atomic<cuuint32_t>*>(pointer_of(address));
    // As the driver compares: the sign of the difference.
    while (static_cast<std::int32_t>(word->load(std::memory_order_acquire) - value) < 0)
      std::this_thread::sleep_for(std::chrono::microseconds(20));
  });
  return CUDA_SUCCESS;
}

STAND_IN_API CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, std::size_t size_bytes,
                                    CUstream stream) {
  STAND_IN_ENTER(cuMemcpyAsync)
  STAND_IN_QUEUE(stream)
  queue->put([=] { std::memcpy(pointer_of(dst), pointer_of(src), size_bytes); });
  // Pageable memory is copied before the call returns.
  if (is_pageable(dst) || is_pageable(src)) queue->mark()->wait();
  return CUDA_SUCCESS;
}

STAND_IN_API CUresult cuMemcpy(CUdeviceptr dst, CUdeviceptr src, std::size_t size_bytes) {
  STAND_IN_ENTER(cuMemcpy)
  STAND_IN_QUEUE(nullptr)
  queue->put([=] { std::memcpy(pointer_of(dst), pointer_of(src), size_bytes); });
  queue->mark()->wait();
  return CUDA_SUCCESS;
}

STAND_IN_API CUresult cuMemsetD8Async(CUdeviceptr dst, unsigned char value, std::size_t count,
                                      CUstream stream) {
  STAND_IN_ENTER(cuMemsetD8Async)
  STAND_IN_QUEUE(stream)
  queue->put([=] { std::memset(pointer_of(dst), value, count); });
  return CUDA_SUCCESS;
}

STAND_IN_API CUresult cuEventCreate(CUevent* event, unsigned) {
  STAND_IN_ENTER(cuEventCreate)
  if (current_device() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *event = new CUevent_st{current_context()->device, {}, nullptr};
  return CUDA_SUCCESS;
}

STAND_IN_API CUresult cuEventDestroy(CUevent event) {
  STAND_IN_ENTER(cuEventDestroy)
  delete event;
  return CUDA_SUCCESS;
}

STAND_IN_API CUresult cuEventRecord(CUevent event, CUstream stream) {
  STAND_IN_ENTER(cuEventRecord)
  STAND_IN_QUEUE(stream)
  if (queue->device() != event->device) return CUDA_ERROR_INVALID_HANDLE;
  const std::lock_guard lock(event->mutex);
  event->mark = queue->mark();
  return CUDA_SUCCESS;
}

STAND_IN_API CUresult cuEventQuery(CUevent event) {
  STAND_IN_ENTER(cuEventQuery)
  if (const CUresult broken = error_of(event->device); broken != CUDA_SUCCESS) return broken;
  const std::lock_guard lock(event->mutex);
  return event->mark == nullptr || event->mark->is_set() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

// Tests' own; tutti never calls it, because what hangs would hang it.
STAND_IN_API CUresult cuEventSynchronize(CUevent event) {
  STAND_IN_ENTER(cuEventSynchronize)
  std::shared_ptr<Mark> mark;
  {
    const std::lock_guard lock(event->mutex);
    mark = event->mark;
  }
  if (mark != nullptr) mark->wait();
  return error_of(event->device);
}
