// Streams, and the order among them. Knows no collective.
#include "bindings/torch/device_launch.hpp"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include "bindings/torch/work.hpp"

namespace tutti::torch_binding {
namespace {

void* handle_of(const c10::Stream& stream) {
#if TUTTI_HAS_TORCH_2_13
  return stream.native_handle();
#else
  TORCH_CHECK(false, "tutti: unsupported device type: with torch ", TORCH_VERSION,
              " it takes tensors of the CPU, got one of ", stream.device(),
              "; with torch 2.13 those of GPUs too, or give these another backend: "
              "init_process_group(\"cpu:tutti,cuda:nccl\")");
#endif
}

}  // namespace

c10::Stream DeviceStreams::get(const at::Device& device, int queue) {
  const std::lock_guard lock(mutex_);
  const std::pair<c10::DeviceIndex, int> key(device.index(), queue);
  auto found = streams_.find(key);
  if (found == streams_.end()) {
    const c10::impl::VirtualGuardImpl guard(device.type());
    found = streams_.emplace(key, guard.getStreamFromGlobalPool(device)).first;
  }
  return found->second;
}

Launch::Launch(const c10::Stream& stream)
    : stream_(stream), handle_(handle_of(stream)), ended_(stream.device_type()) {
  c10::Event ready(stream.device_type());
  ready.record(c10::impl::VirtualGuardImpl(stream.device_type()).getStream(stream.device()));
  ready.block(stream);
}

Launch::~Launch() {
  try {
    const c10::impl::VirtualGuardImpl guard(stream_.device_type());
    for (const at::Tensor& tensor : tensors_)
      guard.recordDataPtrOnStream(tensor.storage().data_ptr(), stream_);
  } catch (const std::exception& error) {
    TORCH_WARN("tutti: a dropped operation on ", stream_.device(), ": ", error.what());
  }
}

void Launch::end(std::vector<at::Tensor> tensors) {
  ended_.record(stream_);
  const std::lock_guard lock(mutex_);
  tensors_ = std::move(tensors);
}

void Launch::order_current_stream() {
  order(c10::impl::VirtualGuardImpl(stream_.device_type()).getStream(stream_.device()));
  std::vector<at::Tensor> free_to_go;  // outside of the lock
  const std::lock_guard lock(mutex_);
  std::swap(free_to_go, tensors_);
}

}  // namespace tutti::torch_binding
