// Calls on tensors of a GPU: the streams of a group, the work of a call on them, and its order with the
// program's streams. Uses torch's interface for all devices, so nothing of CUDA is linked. Knows no
// collective.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <map>
#include <mutex>
#include <utility>
#include <vector>

namespace tutti::torch_binding {

// The streams of a group, of torch's pool, taken when they are first used. Any thread.
class DeviceStreams {
 public:
  // Collectives have one stream. Messages have one per peer and direction: on one stream, a receive would
  // block the send that its message answers.
  static constexpr int kCollectives = 0;
  static int sends_to(int peer) { return 2 * peer + 1; }
  static int receives_from(int peer) { return 2 * peer + 4; }  // also for kAnySource

  c10::Stream get(const at::Device& device, int lane);

 private:
  std::mutex mutex_;
  std::map<std::pair<c10::DeviceIndex, int>, c10::Stream> streams_;
};

// The work of one call on a stream. Filled by one thread; any thread once the call has returned.
class Launch {
 public:
  // Behind the work on the current stream of the device. Errors: c10::Error under a torch that does not
  // expose the handle of a stream.
  explicit Launch(const c10::Stream& stream);
  // Without a wait, the tensors' memory is given to no other stream until this one is past the call.
  ~Launch();
  Launch(const Launch&) = delete;
  Launch& operator=(const Launch&) = delete;

  const c10::Stream& stream() const { return stream_; }
  void* handle() const { return handle_; }  // the cudaStream_t
  // The call is on the stream, and uses `tensors`.
  void end(std::vector<at::Tensor> tensors);
  // Asks the device. Errors: c10::Error with the device's.
  bool is_over() const { return ended_.query(); }
  // `stream` goes on behind the call.
  void order(const c10::Stream& stream) const { ended_.block(stream); }
  // The current stream of the device goes on behind the call; it may then use the tensors.
  void order_current_stream();

 private:
  const c10::Stream stream_;
  void* const handle_;
  c10::Event ended_;
  std::mutex mutex_;
  std::vector<at::Tensor> tensors_;  // guarded by mutex_
};

}  // namespace tutti::torch_binding
