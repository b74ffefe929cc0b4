// Ceilings of a GPU, one JSON object per line: copies of its memory, launches, and our reduction kernels
// against them. Knows no group: `tutti bench --device cuda` measures calls.
#include <algorithm>
#include <chrono>
#include <iostream>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "backends/cuda/device_stream.hpp"
#include "backends/cuda/kernels.hpp"
#include "backends/cuda/memory.hpp"
#include "backends/registry.hpp"
#include "runtime/base/work.hpp"
#include "tutti/tutti.hpp"

using namespace tutti;

namespace {

constexpr int kRounds = 7;  // the median counts

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void require(const Status& status) {
  if (!status) throw Error(status.code(), -1, status.message());
}

template <class T>
T value_of(Result<T> result) {
  require(result.status());
  return *std::move(result);
}

// Microseconds of one `put`, of many that are put on the stream one behind the other.
template <class Put>
double time_of(const cuda::DeviceStream& stream, std::size_t bytes, const Put& put) {
  const int calls =
      std::clamp(static_cast<int>((std::size_t{1} << 30U) / std::max<std::size_t>(bytes, 1 << 20)), 4, 200);
  std::vector<double> rounds;
  for (int round = -1; round < kRounds; ++round) {
    require(stream.wait());
    const auto begin = Clock::now();
    for (int i = 0; i < calls; ++i) put();
    require(stream.wait());
    const std::chrono::duration<double, std::micro> lasted = Clock::now() - begin;
    if (round >= 0) rounds.push_back(lasted.count() / calls);
  }
  return median(rounds);
}

void print(const std::string& what, std::size_t bytes, double us, double moved_bytes) {
  std::cout << fmt::format(R"({{"what": "{}", "bytes": {}, "us": {:.2f}, "gbps": {:.1f}}})", what, bytes, us,
                           moved_bytes / us / 1e3)
            << std::endl;
}

void measure() {
  const auto device = value_of(cuda::DeviceStream::open(0));
  auto* const stream = static_cast<CUstream>(device.handle());
  const std::size_t most = std::size_t{256} << 20U;
  const auto a = value_of(device.allocate(most)), b = value_of(device.allocate(most)),
             c = value_of(device.allocate(most));
  const std::vector<const void*> sources = {a.get(), b.get()};
  for (const std::size_t bytes : {std::size_t{1} << 20U, std::size_t{64} << 20U, most}) {
    const auto moved = static_cast<double>(bytes);
    print("copy", bytes,
          time_of(device, bytes, [&] { require(cuda::copy_async(c.get(), a.get(), bytes, stream)); }),
          2 * moved);
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
      const double us = time_of(device, bytes, [&] {
        require(cuda::reduce(c.get(), sources, bytes / size_of(dtype), dtype, Op::sum, stream));
      });
      print(fmt::format("reduce 2 {}", to_string(dtype)), bytes, us, 3 * moved);
    }
  }
  print("launch", 4,
        time_of(device, 4, [&] { require(cuda::reduce(c.get(), sources, 1, Dtype::f32, Op::sum, stream)); }),
        4);
}

}  // namespace

int main() {
  try {
    const std::string device = value_of(probe_backend("cuda"));
    std::cout << fmt::format(R"({{"what": "device", "name": "{}"}})", device) << std::endl;
    measure();
  } catch (const Error& error) {
    std::cerr << "gpu_bench: " << error.what() << '\n';
    return 1;
  }
  return 0;
}
