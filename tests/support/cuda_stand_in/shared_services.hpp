// The services of a group, for tests of engines: ranks that are threads or forked processes meet in memory
// that they share. Knows no transport; there is no native backend behind it.
#pragma once

#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <new>
#include <thread>

#include "backends/backend.hpp"
#include "backends/cuda/device_engine.hpp"

namespace tutti::test {

// The meeting place, made before threads start or processes are forked.
class SharedPlace {
 public:
  static constexpr std::uint32_t kMostRanks = 16;
  static constexpr std::size_t kMostBytes = 1024;
  struct Content {
    std::atomic<std::uint32_t> arrivals{0};
    std::byte slots[kMostRanks][kMostBytes];
  };

  SharedPlace() {
    void* memory =
        ::mmap(nullptr, sizeof(Content), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory != MAP_FAILED) content_ = new (memory) Content;
  }
  ~SharedPlace() {
    if (content_ != nullptr) ::munmap(content_, sizeof(Content));
  }
  SharedPlace(const SharedPlace&) = delete;
  SharedPlace& operator=(const SharedPlace&) = delete;
  Content* operator->() const { return content_; }

 private:
  Content* content_ = nullptr;
};

// Prepares one call and starts it.
inline Result<WorkRef> start_by(cuda::DeviceEngine& engine, const Call& call, std::string_view algorithm) {
  const auto prepared = engine.prepare(call, algorithm);
  if (!prepared) return prepared.status();
  return (*prepared)->start(call);
}

class SharedServices : public GroupServices {
 public:
  SharedServices(SharedPlace& place, std::uint32_t rank, std::uint32_t size)
      : place_(place), rank_(rank), size_(size) {}
  std::uint32_t rank() const override { return rank_; }
  std::uint32_t size() const override { return size_; }
  std::chrono::milliseconds timeout() const override { return timeout_.load(); }
  void set_timeout(std::chrono::milliseconds timeout) { timeout_ = timeout; }

  Status allgather(const void* mine, void* all, std::size_t bytes) override {
    if (bytes > SharedPlace::kMostBytes) return invalid_argument("more bytes than a slot of this test has");
    std::memcpy(place_->slots[rank_], mine, bytes);
    TUTTI_RETURN_IF_ERROR(meet());
    for (std::uint32_t k = 0; k < size_; ++k) {
      std::memcpy(static_cast<std::byte*>(all) + k * bytes, place_->slots[k], bytes);
    }
    return meet();
  }
  Backend& host() override {
    detail::assertion_failed("host()", __FILE__, __LINE__, "this test has no host backend");
  }
  void fail(const Status& cause) override {
    const std::lock_guard lock(mutex_);
    if (failure_) failure_ = cause;
  }
  Status failure() const override {
    const std::lock_guard lock(mutex_);
    return failure_;
  }

 private:
  Status meet() {
    const std::uint32_t round = place_->arrivals.fetch_add(1) / size_;
    const auto deadline = std::chrono::steady_clock::now() + timeout_.load();
    while (place_->arrivals.load() < (round + 1) * size_) {
      if (std::chrono::steady_clock::now() > deadline)
        return Status(StatusCode::timeout, "a rank is missing");
      std::this_thread::yield();
    }
    return {};
  }
  SharedPlace& place_;
  const std::uint32_t rank_;
  const std::uint32_t size_;
  std::atomic<std::chrono::milliseconds> timeout_{std::chrono::milliseconds(60000)};
  mutable std::mutex mutex_;
  Status failure_;
};

}  // namespace tutti::test
