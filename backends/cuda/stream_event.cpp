// Events, their pool, and streams of our own, by the driver API.
#include "backends/cuda/stream_event.hpp"

#include <algorithm>
#include <thread>

#include <fmt/format.h>

#include "backends/cuda/memory.hpp"

namespace tutti::cuda {
namespace {

// The driver of events that exist, and so was loaded.
const Driver& loaded_driver() {
  const Result<const Driver*> loaded = driver();
  TUTTI_ASSERT(loaded.is_ok(), "an event exists, so the driver was loaded");
  return **loaded;
}

}  // namespace

Event::~Event() {
  if (pool_ != nullptr) pool_->give_back(event_);
}

Status Event::record(CUstream stream) {
  const Driver& table = loaded_driver();
  return to_status(table, table.cuEventRecord(event_, stream), "cuEventRecord");
}

Result<bool> Event::query() const {
  const Driver& table = loaded_driver();
  const CUresult result = table.cuEventQuery(event_);
  if (result == CUDA_ERROR_NOT_READY) return false;
  if (result == CUDA_SUCCESS) return true;
  return to_status(table, result, "cuEventQuery");
}

Status Event::wait(Clock::time_point deadline) const {
  constexpr int kPollsBeforeSleep = 200;  // as long as a short kernel takes
  std::chrono::microseconds sleep(1);
  for (int polls = 0;; ++polls) {
    const Result<bool> is_past = query();
    if (!is_past) return is_past.status();
    if (*is_past) return {};
    if (Clock::now() >= deadline) {
      return Status(StatusCode::timeout, "the device did not finish the work of a stream in time");
    }
    if (polls < kPollsBeforeSleep) continue;
    std::this_thread::sleep_for(sleep);
    sleep = std::min(sleep * 2, kLongestSleep);
  }
}

Status Event::hold(CUstream stream) const {
  const Driver& table = loaded_driver();
  return to_status(table, table.cuStreamWaitEvent(stream, event_, CU_EVENT_WAIT_DEFAULT),
                   "cuStreamWaitEvent");
}

Status CallOrder::begin(CUstream stream) const {
  return last_ && stream != last_stream_ ? last_.hold(stream) : Status();
}

Status CallOrder::end(CUstream stream) {
  if (!last_) {
    Result<Event> event = events_.take();
    if (!event) return event.status();
    last_ = *std::move(event);
  }
  last_stream_ = stream;
  return last_.record(stream);
}

EventPool::~EventPool() {
  if (idle_.empty()) return;
  const Driver& table = loaded_driver();
  for (const CUevent event : idle_) table.cuEventDestroy(event);
}

Result<Event> EventPool::take() {
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      const CUevent event = idle_.back();
      idle_.pop_back();
      return Event(this, event);
    }
  }
  const Result<ContextScope> context = ContextScope::enter(device_);
  if (!context) return context.status();
  const Driver& table = loaded_driver();
  CUevent event = nullptr;
  TUTTI_RETURN_IF_CUDA_ERROR(table, table.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
  return Event(this, event);
}

void EventPool::give_back(CUevent event) {
  const std::lock_guard lock(mutex_);
  idle_.push_back(event);
}

Status refuse_capture(CUstream stream, std::string_view what, std::string_view why) {
  const Result<const Driver*> table = driver();
  if (!table) return table.status();
  CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
  TUTTI_RETURN_IF_CUDA_ERROR(**table, (*table)->cuStreamIsCapturing(stream, &capture), "cuStreamIsCapturing");
  if (capture == CU_STREAM_CAPTURE_STATUS_NONE) return {};
  return unsupported(fmt::format("{} cannot be captured into a CUDA graph: {}", what, why));
}

Result<Stream> Stream::create(int device) {
  const Result<ContextScope> context = ContextScope::enter(device);
  if (!context) return context.status();
  const Driver& table = loaded_driver();
  CUstream stream = nullptr;
  TUTTI_RETURN_IF_CUDA_ERROR(table, table.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  return Stream(device, stream);
}

Stream::~Stream() {
  if (stream_ == nullptr) return;
  const Result<ContextScope> context = ContextScope::enter(device_);
  if (context) loaded_driver().cuStreamDestroy(stream_);
}

}  // namespace tutti::cuda
