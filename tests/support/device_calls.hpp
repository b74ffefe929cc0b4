// Calls on the memory of a device against the same calls on host memory, each ordered on a stream of its
// rank's. Knows no driver but the one that the library has loaded: a GPU's or the stand-in's. Ranks are
// threads, which share device 0 unless they are told otherwise.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "backends/cuda/memory.hpp"
#include "backends/cuda/stream_event.hpp"
#include "tests/support/device_memory.hpp"
#include "tests/support/thread_ranks.hpp"

namespace tutti {

using Bytes = std::vector<std::byte>;

inline const cuda::Driver& table() { return **cuda::driver(); }

// Pinned memory of the tests.
inline cuda::PinnedPool& test_pool() {
  static auto* const kPool = new cuda::PinnedPool(std::size_t{1} << 30U);
  return *kPool;
}

// Puts a slow copy on the stream, in front of a call: code that does not wait for it sees other bytes.
// Keep the result until the stream is past the copy.
[[nodiscard]] inline cuda::PinnedBuffer fill_later(const cuda::Stream& stream, std::byte* target,
                                                   const Bytes& content) {
  const auto context = cuda::ContextScope::enter(stream.device());
  auto pinned = test_pool().take(std::max<std::size_t>(1, content.size()));
  if (!pinned) throw Error(StatusCode::internal, -1, "no pinned memory for the test");
  if (!content.empty()) std::memcpy(pinned->data(), content.data(), content.size());
  table().cuLaunchHostFunc(
      stream.get(), [](void*) { std::this_thread::sleep_for(std::chrono::microseconds(300)); }, nullptr);
  static_cast<void>(cuda::copy_async(target, pinned->data(), content.size(), stream.get()));
  return *std::move(pinned);
}

// The content once the stream has done its work so far.
inline Bytes read_behind(const cuda::Stream& stream, const std::byte* source, std::size_t size_bytes) {
  Bytes found(size_bytes);
  const auto context = cuda::ContextScope::enter(stream.device());
  static_cast<void>(cuda::copy_async(found.data(), source, size_bytes, stream.get()));
  table().cuStreamSynchronize(stream.get());
  return found;
}

// A call of one rank: how much memory it takes, in elements, where the input lies in the output if it is in
// place
// (-1: it is not), and the call itself.
struct Tried {
  std::string name;
  std::size_t input, output;
  std::ptrdiff_t in_place;
  std::function<void(const void* input, void* output, const CallOptions& options)> call;
};

inline std::vector<Tried> calls_of(const CommGroup& g, std::size_t n, Dtype t, Op op, int root) {
  const auto p = static_cast<std::size_t>(g.size()), r = static_cast<std::size_t>(g.rank());
  // Uneven blocks, with gaps between them.
  static thread_local std::vector<std::uint64_t> counts, packed, gaps;
  counts.assign(p, 0);
  packed.assign(p, 0);
  gaps.assign(p, 0);
  for (std::size_t b = 0; b < p; ++b) counts[b] = b == 1 ? 0 : n / 2 + b;
  for (std::size_t b = 1; b < p; ++b) packed[b] = packed[b - 1] + counts[b - 1];
  for (std::size_t b = 0; b < p; ++b) gaps[b] = packed[b] + 3 * b + 1;
  const std::size_t all = packed[p - 1] + counts[p - 1], spread = gaps[p - 1] + counts[p - 1];
  const auto own = static_cast<std::ptrdiff_t>(r * n);
  using In = const void*;
  using Out = void*;
  using O = const CallOptions&;
  return {
      {"allreduce", n, n, -1, [=](In i, Out o, O a) { g.allreduce(i, o, n, t, op, a); }},
      {"allreduce", n, n, 0, [=](In i, Out o, O a) { g.allreduce(i, o, n, t, op, a); }},
      {"broadcast", n, n, 0, [=](In, Out o, O a) { g.broadcast(o, n, t, root, a); }},
      {"reduce", n, n, -1, [=](In i, Out o, O a) { g.reduce(i, o, n, t, op, root, a); }},
      {"reduce", n, n, 0, [=](In i, Out o, O a) { g.reduce(i, o, n, t, op, root, a); }},
      {"allgather", n, n * p, -1, [=](In i, Out o, O a) { g.allgather(i, o, n, t, a); }},
      {"allgather", n, n * p, own, [=](In i, Out o, O a) { g.allgather(i, o, n, t, a); }},
      {"allgatherv", counts[r], spread, -1,
       [=](In i, Out o, O a) { g.allgatherv(i, o, counts, gaps, t, a); }},
      {"reduce_scatter", n * p, n, -1, [=](In i, Out o, O a) { g.reduce_scatter(i, o, n, t, op, a); }},
      {"reduce_scatterv", all, counts[r], -1,
       [=](In i, Out o, O a) { g.reduce_scatterv(i, o, counts, t, op, a); }},
      {"alltoall", n * p, n * p, -1, [=](In i, Out o, O a) { g.alltoall(i, o, n, t, a); }},
      {"alltoall", n * p, n * p, 0, [=](In i, Out o, O a) { g.alltoall(i, o, n, t, a); }},
      {"gather", n, n * p, -1, [=](In i, Out o, O a) { g.gather(i, o, n, t, root, a); }},
      {"gatherv", counts[r], spread, -1,
       [=](In i, Out o, O a) { g.gatherv(i, o, counts, gaps, t, root, a); }},
      {"scatter", n * p, n, -1, [=](In i, Out o, O a) { g.scatter(i, o, n, t, root, a); }},
      {"scatterv", spread, counts[r], -1,
       [=](In i, Out o, O a) { g.scatterv(i, o, counts, gaps, t, root, a); }},
      {"scan", n, n, -1, [=](In i, Out o, O a) { g.scan(i, o, n, t, op, a); }},
      {"scan", n, n, 0, [=](In i, Out o, O a) { g.scan(i, o, n, t, op, a); }},
      {"exscan", n, n, -1, [=](In i, Out o, O a) { g.exscan(i, o, n, t, op, a); }},
  };
}

inline Bytes content_of(int seed, std::size_t elements, Dtype dtype) {
  Bytes content(elements * (dtype == Dtype::f64 ? 8 : 4));
  for (std::size_t i = 0; i < elements; ++i) {
    const std::int32_t whole =
        static_cast<std::int32_t>((i * 7 + static_cast<std::size_t>(seed) * 13) % 101) - 50;
    const float single = static_cast<float>(whole) / 3;
    const double twice = whole / 7.0;
    if (dtype == Dtype::i32) std::memcpy(&content[4 * i], &whole, 4);
    if (dtype == Dtype::f32) std::memcpy(&content[4 * i], &single, 4);
    if (dtype == Dtype::f64) std::memcpy(&content[8 * i], &twice, 8);
  }
  return content;
}

// Which calls, on which device, by which algorithm on host and device, and what is looked at after each on a
// device.
struct Comparison {
  std::string name;  // empty: all
  int device = 0;
  std::string algorithm;
  std::function<Verdict()> look = [] { return Verdict(); };
};

inline Verdict compare_calls(const CommGroup& group, std::size_t count, Dtype dtype, Op op, int root,
                             const Comparison& how = {}) {
  const std::size_t width = dtype == Dtype::f64 ? 8 : 4;
  auto context = cuda::ContextScope::enter(how.device);
  auto stream = cuda::Stream::create(how.device);
  if (!stream) return stream.status().message();
  Verdict verdict;
  // For all calls: freeing waits for the streams of the other ranks, too, and these for this rank's next
  // call.
  std::vector<Tried> calls = calls_of(group, count, dtype, op, root);
  std::erase_if(calls, [&](const Tried& tried) { return !how.name.empty() && tried.name != how.name; });
  std::size_t most = 0;
  for (const Tried& tried : calls) most = std::max({most, tried.input, tried.output});
  const test::DeviceMemory source(how.device, most * width), target(how.device, most * width);
  for (const Tried& tried : calls) {
    const Bytes input = content_of(group.rank(), tried.input, dtype);
    Bytes on_host = content_of(99, tried.output, dtype);
    const bool in_place = tried.in_place >= 0;
    const std::size_t at = in_place ? static_cast<std::size_t>(tried.in_place) * width : 0;
    // Before the call, in place: the input is where it is said to be.
    if (in_place && !input.empty()) std::memcpy(on_host.data() + at, input.data(), input.size());
    const Bytes before = on_host;
    CallOptions options;
    options.algorithm = how.algorithm;
    tried.call(in_place ? on_host.data() + at : input.data(), on_host.data(), options);

    const auto first = fill_later(*stream, source.data(), input);
    const auto second = fill_later(*stream, target.data(), before);
    options.cuda_stream = stream->get();
    options.memory = Memory::device;
    tried.call(in_place ? target.data() + at : source.data(), target.data(), options);
    if (Verdict seen = how.look(); verdict.empty()) verdict = std::move(seen);
    const Bytes on_device = read_behind(*stream, target.data(), before.size());
    if (on_device != on_host && verdict.empty()) {
      verdict = tried.name + (in_place ? " in place" : "") + " of " + std::to_string(count) +
                ": device memory has other bytes than host memory";
    }
  }
  group.barrier();
  return verdict;
}

}  // namespace tutti
