// GPU memory for `tutti bench --device cuda`. Knows backends/cuda by the header that tools may see.
#include <fmt/format.h>

#include <utility>

#include "backends/cuda/device_stream.hpp"
#include "tools/cli/bench/gpu_memory.hpp"

namespace tutti::tool {
namespace {

// A staged call has pinned memory from its start to its end: up to twice its buffers' bytes, of the 4 GiB
// that a process may pin. Waiting once per GiB costs little beside the GiB's own time.
constexpr std::size_t kMostUnderWay = std::size_t{1} << 30U;

[[noreturn]] void fail(const Status& status) { throw Error(status.code(), status.peer(), status.message()); }

void require(const Status& status) {
  if (!status) fail(status);
}

class CudaMemory final : public GpuMemory {
 public:
  CudaMemory(const CommGroup& group, cuda::DeviceStream stream, std::string description, std::size_t most)
      : group_(group),
        stream_(std::move(stream)),
        description_(std::move(description)),
        most_under_way_(most) {}

  std::shared_ptr<void> allocate(std::size_t bytes) override {
    auto memory = stream_.allocate(bytes);
    if (!memory) fail(memory.status());
    return *std::move(memory);
  }
  void* stream() const override { return stream_.handle(); }
  std::string description() const override { return description_; }

  void note_call(std::size_t buffer_bytes) override {
    under_way_bytes_ += buffer_bytes;
    if (under_way_bytes_ >= most_under_way_) wait();
  }

  void write(void* there, const void* here, std::size_t bytes) override { copy(there, here, bytes); }
  void read(void* here, const void* there, std::size_t bytes) override { copy(here, there, bytes); }
  void fill(void* there, unsigned char value, std::size_t bytes) override {
    require(stream_.fill(there, value, bytes));
    check_calls();
  }
  void wait() override {
    require(stream_.wait());
    check_calls();
  }

 private:
  void copy(void* to, const void* from, std::size_t bytes) {
    require(stream_.copy(to, from, bytes));
    check_calls();
  }
  // The stream is past them, but a group that has failed lets its streams go, too.
  void check_calls() {
    under_way_bytes_ = 0;
    if (const auto failure = group_.failure()) throw Error(*failure);
  }

  const CommGroup& group_;
  const cuda::DeviceStream stream_;
  const std::string description_;
  const std::size_t most_under_way_;
  std::size_t under_way_bytes_ = 0;
};

}  // namespace

Result<int> count_gpus() {
  auto count = cuda::count_devices();
  return count ? std::move(count) : count.status().with_context("--device cuda");
}

Result<std::unique_ptr<GpuMemory>> open_gpu(const CommGroup& group, int sharers) {
  const auto count = count_gpus();
  if (!count) return count.status();
  const int device = group.local_rank() % *count;
  auto stream = cuda::DeviceStream::open(device);
  if (!stream) return stream.status().with_context("--device cuda");
  std::string description = fmt::format("GPU {} of {}, {}", device, *count, stream->device_name());
  return std::unique_ptr<GpuMemory>(std::make_unique<CudaMemory>(
      group, *std::move(stream), std::move(description), kMostUnderWay / static_cast<std::size_t>(sharers)));
}

}  // namespace tutti::tool
