// The base of engines that put calls on streams and leave them there: kernels, schedules and NCCL.
// Works end with the device, and one failure ends all of them. Knows no collective.
#pragma once

#include <functional>
#include <string>

#include "backends/cuda/device_engine.hpp"
#include "backends/cuda/stream_watch.hpp"

namespace tutti::cuda {

class StreamEngine : public DeviceEngine, protected StreamWatch::Owner {
 protected:
  // Parts of messages, and the name of the thread that watches streams.
  struct Names {
    const char* engine;            // "kernels": "allreduce of 4 f32 by kernels on GPU 0"
    const char* call;              // "a call among peers", which
    const char* why_no_capturing;  // cannot be captured, for this reason
    const char* thread;
  };
  StreamEngine(GroupServices& services, int device, const Names& names)
      : services_(services), device_(device), names_(names), watch_(services, *this, device, names.thread) {}
  // Derived classes call it first in their destructors, because abort() is theirs. Waits for calls under way,
  // `patience` at most.
  void close(std::chrono::milliseconds patience) { watch_.close(patience); }

  // `put` enqueues the call on its stream, in the context of the device. Its error fails the group: the other
  // ranks have made the call, or will, and must not wait for this one. `source`: the rank that a receive is
  // from, else -1.
  Result<WorkRef> submit(const Call& call, int source, const std::function<Status(CUstream)>& put);
  // Fails the group for `status`, unless it has failed already.
  void fail_for_all(const Status& status, std::string_view call);

  // StreamWatch::Owner
  Status diagnose() override { return {}; }

  GroupServices& services_;
  const int device_;
  const Names names_;
  StreamWatch watch_;
};

}  // namespace tutti::cuda
