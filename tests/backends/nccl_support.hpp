// Ranks that are threads, each with a GPU of the stand-in's and an engine of NCCL's stand-in.
// Knows no group of tutti: the services of one are played here.
#pragma once

#include <condition_variable>
#include <cstring>
#include <functional>
#include <future>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "backends/cuda/driver.hpp"
#include "backends/cuda/memory.hpp"
#include "backends/cuda/stream_event.hpp"
#include "backends/nccl/library.hpp"
#include "backends/nccl/nccl_engine.hpp"
#include "tests/support/cuda_stand_in/control.hpp"
#include "tests/support/device_memory.hpp"
#include "tests/support/nccl_stand_in/control.hpp"

namespace tutti::test {

using Verdict = std::string;  // empty: as expected

// What the ranks of a group share.
class FakeGroup {
 public:
  FakeGroup(std::uint32_t size, std::chrono::milliseconds timeout) : size_(size), timeout_(timeout) {}
  std::uint32_t size() const { return size_; }
  std::chrono::milliseconds timeout() const { return timeout_; }

  Status allgather(std::uint32_t rank, const void* mine, void* all, std::size_t bytes) {
    std::unique_lock lock(mutex_);
    const std::uint64_t turn = turn_;
    slots_.resize(size_ * bytes);
    std::memcpy(slots_.data() + rank * bytes, mine, bytes);
    if (++arrived_ == size_) {
      arrived_ = 0;
      ++turn_;
      result_ = slots_;
      changed_.notify_all();
    }
    const auto is_over = [&] { return turn_ != turn || !failure_; };
    if (!changed_.wait_for(lock, timeout_, is_over))
      return Status(StatusCode::timeout, "allgather: a rank is missing");
    if (turn_ == turn) return failure_;
    std::memcpy(all, result_.data(), size_ * bytes);
    return {};
  }
  void fail(const Status& cause) {
    const std::lock_guard lock(mutex_);
    if (failure_) failure_ = cause;
    changed_.notify_all();
  }
  Status failure() const {
    const std::lock_guard lock(mutex_);
    return failure_;
  }

 private:
  const std::uint32_t size_;
  const std::chrono::milliseconds timeout_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t turn_ = 0;
  std::uint32_t arrived_ = 0;
  std::vector<char> slots_, result_;
  Status failure_;
};

class FakeServices final : public GroupServices {
 public:
  FakeServices(FakeGroup& group, std::uint32_t rank) : group_(group), rank_(rank) {}
  std::uint32_t rank() const override { return rank_; }
  std::uint32_t size() const override { return group_.size(); }
  std::chrono::milliseconds timeout() const override { return group_.timeout(); }
  Status allgather(const void* mine, void* all, std::size_t bytes) override {
    return group_.allgather(rank_, mine, all, bytes);
  }
  Backend& host() override { throw std::logic_error("NCCL needs no host"); }
  void fail(const Status& cause) override { group_.fail(cause); }
  Status failure() const override { return group_.failure(); }

 private:
  FakeGroup& group_;
  const std::uint32_t rank_;
};

// Prepares a call and starts it.
inline Result<WorkRef> start_by(cuda::DeviceEngine& engine, const Call& call) {
  const auto prepared = engine.prepare(call, {});
  if (!prepared) return prepared.status();
  return (*prepared)->start(call);
}

constexpr std::size_t kBufferBytes = 64 << 10U;

struct Rank {
  Rank(FakeServices& used, int on_device, std::unique_ptr<cuda::DeviceEngine> made)
      : services(used),
        device(on_device),
        engine(std::move(made)),
        stream(*cuda::Stream::create(on_device)),
        input(on_device, kBufferBytes),
        output(on_device, kBufferBytes) {}
  std::uint32_t rank() const { return services.rank(); }
  std::uint32_t size() const { return services.size(); }

  // A call of this rank's on its buffers and stream.
  Call call(Collective collective, Dtype dtype, std::uint64_t count) const {
    Call made;
    made.collective = collective;
    made.dtype = dtype;
    made.count = count;
    made.input = input.data();
    made.output = output.data();
    made.is_device = true;
    made.device = device;
    made.stream = stream.get();
    return made;
  }

  Result<WorkRef> start(const Call& made) const { return start_by(*engine, made); }

  FakeServices& services;
  int device;
  std::unique_ptr<cuda::DeviceEngine> engine;
  cuda::Stream stream;
  DeviceMemory input, output;
};

inline Clock::time_point soon() { return Clock::now() + std::chrono::seconds(20); }

// Makes an engine on each rank, GPU i for rank i, and runs `body`; what the ranks complain of.
inline Verdict with_engines(FakeGroup& group, const std::function<Verdict(Rank&)>& body) {
  std::vector<std::future<Verdict>> ranks;
  for (std::uint32_t i = 0; i < group.size(); ++i) {
    ranks.push_back(std::async(std::launch::async, [&group, &body, i]() -> Verdict {
      FakeServices services(group, i);
      const int device = static_cast<int>(i);
      auto made = nccl::make_nccl_engine(services, device);
      if (!made) return "no engine: " + made.status().to_string();
      Rank rank(services, device, *std::move(made));
      Verdict verdict = body(rank);
      rank.engine.reset();
      return verdict;
    }));
  }
  Verdict all;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (const Verdict one = ranks[i].get(); !one.empty())
      all += "rank " + std::to_string(i) + ": " + one + "\n";
  }
  return all;
}

// The stand-ins, wherever a program looks for the libraries; for an initialiser that runs before main().
inline bool use_stand_ins(const char* cuda_file, const char* nccl_file) {
  return ::setenv("TUTTI_CUDA_LIBRARY", cuda_file, 1) == 0 &&
         ::setenv("TUTTI_NCCL_LIBRARY", nccl_file, 1) == 0 && ::setenv("CUDA_STAND_IN_DEVICES", "4", 1) == 0;
}

}  // namespace tutti::test
