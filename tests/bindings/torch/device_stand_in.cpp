// CUDA for a torch that was built without it, over the stand-in for its driver: streams, events and the few
// kernels that the backend and the tests use. Freed memory is overwritten. A library of operators for
// torch.ops.load_library. Knows nothing of tutti.
#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <cuda.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "tests/support/cuda_stand_in/control.hpp"

namespace {

constexpr std::size_t kPoolSize = 32;
const c10::Device kDevice(c10::kCUDA, 0);

void check(CUresult result) { TORCH_CHECK(result == CUDA_SUCCESS, "the stand-in says ", result); }

// The stand-in's memory and streams need a context in each thread that uses them.
void enter() {
  static const CUcontext context = [] {
    CUcontext made = nullptr;
    check(cuInit(0));
    check(cuDevicePrimaryCtxRetain(&made, 0));
    return made;
  }();
  thread_local const bool has_entered = cuCtxPushCurrent(context) == CUDA_SUCCESS;
  TORCH_CHECK(has_entered, "no context");
}

// -- streams and events -------------------------------------------------------------------------------------

thread_local c10::StreamId current_stream = 0;  // 0: the default stream

// Number `id` of the pool.
CUstream stream_of(c10::StreamId id) {
  static std::mutex mutex;
  static std::array<CUstream, kPoolSize + 1> streams{};
  enter();
  const std::lock_guard lock(mutex);
  CUstream& stream = streams.at(static_cast<std::size_t>(id));
  if (stream == nullptr && id != 0) check(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  return stream;
}

struct Block {
  CUdeviceptr address;
  std::size_t size_bytes;
  c10::StreamId stream;
  std::mutex mutex;
  std::set<c10::StreamId> users;  // others than that stream
};

void free_block(void* memory) {
  const std::unique_ptr<Block> block(static_cast<Block*>(memory));
  const CUstream stream = stream_of(block->stream);
  for (const c10::StreamId user : block->users) {
    CUevent event = nullptr;
    check(cuEventCreate(&event, 0));
    check(cuEventRecord(event, stream_of(user)));
    check(cuStreamWaitEvent(stream, event, 0));
    check(cuEventDestroy(event));
  }
  // As the next owner would, on the stream that the memory goes back to.
  check(cuMemsetD8Async(block->address, 0xEE, block->size_bytes, stream));
}

class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return c10::kCUDA; }
  c10::Device exchangeDevice(c10::Device) const override { return getDevice(); }
  c10::Device getDevice() const override {
    enter();
    return kDevice;
  }
  void setDevice(c10::Device) const override { enter(); }
  void uncheckedSetDevice(c10::Device) const noexcept override { enter(); }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }

  c10::Stream getStream(c10::Device) const override { return stream(current_stream); }
  c10::Stream getDefaultStream(c10::Device) const override { return stream(0); }
  c10::Stream getStreamFromGlobalPool(c10::Device, bool) const override {
    static std::atomic<std::size_t> next{0};
    return stream(static_cast<c10::StreamId>(1 + next++ % kPoolSize));
  }
  c10::Stream exchangeStream(c10::Stream other) const override {
    return stream(std::exchange(current_stream, other.id()));
  }
  void* getStreamNativeHandle(c10::Stream asked) const override { return stream_of(asked.id()); }
  bool queryStream(const c10::Stream& asked) const override {
    return cuStreamQuery(stream_of(asked.id())) == CUDA_SUCCESS;
  }
  void synchronizeStream(const c10::Stream& asked) const override {
    check(cuStreamSynchronize(stream_of(asked.id())));
  }

  void record(void** event, const c10::Stream& on, c10::DeviceIndex, c10::EventFlag) const override {
    const CUstream stream = stream_of(on.id());
    if (*event == nullptr) check(cuEventCreate(reinterpret_cast<CUevent*>(event), CU_EVENT_DISABLE_TIMING));
    check(cuEventRecord(static_cast<CUevent>(*event), stream));
  }
  void block(void* event, const c10::Stream& waiting) const override {
    if (event != nullptr) check(cuStreamWaitEvent(stream_of(waiting.id()), static_cast<CUevent>(event), 0));
  }
  bool queryEvent(void* event) const override {
    return event == nullptr || cuEventQuery(static_cast<CUevent>(event)) == CUDA_SUCCESS;
  }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override {
    if (event != nullptr) cuEventDestroy(static_cast<CUevent>(event));
  }
  void recordDataPtrOnStream(const c10::DataPtr& memory, const c10::Stream& user) const override {
    auto* const block = memory.cast_context<Block>(&free_block);
    if (block == nullptr || user.id() == block->stream) return;
    const std::lock_guard lock(block->mutex);
    block->users.insert(user.id());
  }

 private:
  static c10::Stream stream(c10::StreamId id) { return c10::Stream(c10::Stream::UNSAFE, kDevice, id); }
};
C10_REGISTER_GUARD_IMPL(CUDA, Guard);

// -- memory -------------------------------------------------------------------------------------------------

class Allocator final : public c10::Allocator {
 public:
  // Never given back: that would wait for all streams.
  c10::DataPtr allocate(std::size_t size_bytes) override {
    enter();
    auto block = std::make_unique<Block>();
    block->size_bytes = std::max<std::size_t>(1, size_bytes);
    block->stream = current_stream;
    check(cuMemAlloc(&block->address, block->size_bytes));
    void* const data = reinterpret_cast<void*>(static_cast<std::uintptr_t>(block->address));
    return {data, block.release(), &free_block, kDevice};
  }
  void copy_data(void*, const void*, std::size_t) const override {
    TORCH_CHECK(false, "the stand-in copies on streams only");
  }
};

at::Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                 std::optional<at::Device>, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  static Allocator allocator;
  return at::detail::empty_generic(size, &allocator, c10::DispatchKeySet(c10::DispatchKey::CUDA),
                                   dtype.value_or(at::kFloat), format);
}

at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride, std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>) {
  static Allocator allocator;
  return at::detail::empty_strided_generic(
      size, stride, &allocator, c10::DispatchKeySet(c10::DispatchKey::CUDA), dtype.value_or(at::kFloat));
}

// -- kernels ------------------------------------------------------------------------------------------------

void put_on_stream(std::function<void()> kernel) {
  auto* const task = new std::function<void()>(std::move(kernel));
  check(cuLaunchHostFunc(
      stream_of(current_stream),
      [](void* given) {
        const std::unique_ptr<std::function<void()>> mine(static_cast<std::function<void()>*>(given));
        const c10::impl::ExcludeDispatchKeyGuard no_autograd(c10::autograd_dispatch_keyset);
        (*mine)();
      },
      task));
}

// The same memory as the host sees it; nothing is kept.
at::Tensor host_view(const at::Tensor& tensor) {
  return at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.strides(),
                       tensor.options().device(at::kCPU));
}

at::Tensor& copy(at::Tensor& self, const at::Tensor& source, bool) {
  const at::Tensor from = source.is_cuda() ? host_view(source) : source.clone();
  const at::Tensor to = self.is_cuda() ? host_view(self) : self;
  put_on_stream([from, to] { to.copy_(from); });
  if (!self.is_cuda()) check(cuStreamSynchronize(stream_of(current_stream)));
  return self;
}

TORCH_LIBRARY_IMPL(aten, CUDA, kernels) {
  kernels.impl("empty.memory_format", &empty);
  kernels.impl("empty_strided", &empty_strided);
  kernels.impl("as_strided", &at::native::as_strided_tensorimpl);
  kernels.impl("view", static_cast<at::Tensor (*)(const at::Tensor&, at::IntArrayRef)>(&at::native::view));
  kernels.impl("copy_", &copy);
}

// -- what tests ask for -------------------------------------------------------------------------------------

at::Tensor to_device(const at::Tensor& tensor) {
  at::Tensor made = at::empty(tensor.sizes(), tensor.options().device(kDevice));
  made.copy_(tensor);
  return made;
}

void fail(const std::string& function, std::int64_t result) {
  cuda_stand_in_fail(function.c_str(), static_cast<CUresult>(result), 1);
}

void hold(bool holds) { cuda_stand_in_hang(0, holds); }

TORCH_LIBRARY(device_stand_in, library) {
  library.def("to_device", &to_device);
  library.def("fail", &fail);  // the next call of a function of the driver
  library.def("hold", &hold);  // everything on the device
}

}  // namespace
