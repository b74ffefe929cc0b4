// The device that owns a pointer, the context of a device, and pinned memory for staging.
// Knows no collective and no kernel.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "backends/cuda/driver.hpp"
#include "runtime/base/status.hpp"

namespace tutti::cuda {

// The owner of memory. Managed memory counts as a device's; pinned and mapped host memory is host memory.
struct MemoryLocation {
  bool is_device = false;
  int device = -1;  // ordinal, of device memory
  friend bool operator==(const MemoryLocation&, const MemoryLocation&) = default;
};
// Host, as long as the program has no CUDA library (see driver_in_use()) or the pointer is none of CUDA's.
// Never initialises CUDA. Any thread.
MemoryLocation location_of(const void* pointer);

// While it lives, the primary context of a device is the calling thread's current one. The context is
// retained by the first use in the process and kept.
class ContextScope {
 public:
  static Result<ContextScope> enter(int device);
  ContextScope(ContextScope&& other) noexcept : table_(std::exchange(other.table_, nullptr)) {}
  ContextScope& operator=(ContextScope&&) = delete;
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;
  ~ContextScope();

 private:
  explicit ContextScope(const Driver* pushed) : table_(pushed) {}
  const Driver* table_;  // null: the context was current already, or this was moved from
};

// Lets kernels of `device` reach the memory of `peer`, another device that this process uses. Any number of
// times.
Status enable_peer_access(int device, int peer);

// dst <- src on `stream`, in stream order and without waiting; each side is memory of a device or of the
// host. The caller is in the context of the stream. Host memory that is not pinned makes the call wait.
Status copy_async(void* dst, const void* src, std::size_t size_bytes, CUstream stream);

class PinnedPool;

// Pinned host memory on loan from a pool; goes back when this ends. No device may use it by then.
class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  PinnedBuffer(PinnedBuffer&& other) noexcept
      : pool_(std::exchange(other.pool_, nullptr)), data_(other.data_), size_bytes_(other.size_bytes_) {}
  PinnedBuffer& operator=(PinnedBuffer&& other) noexcept {
    std::swap(pool_, other.pool_);
    std::swap(data_, other.data_);
    std::swap(size_bytes_, other.size_bytes_);
    return *this;
  }
  PinnedBuffer(const PinnedBuffer&) = delete;
  PinnedBuffer& operator=(const PinnedBuffer&) = delete;
  ~PinnedBuffer();

  void* data() const { return data_; }
  std::size_t size_bytes() const { return size_bytes_; }  // at least the size that was asked for

 private:
  friend class PinnedPool;
  PinnedBuffer(PinnedPool* pool, void* data, std::size_t size_bytes)
      : pool_(pool), data_(data), size_bytes_(size_bytes) {}
  PinnedPool* pool_ = nullptr;
  void* data_ = nullptr;
  std::size_t size_bytes_ = 0;
};

// Pinned host memory in powers of two, kept for reuse: pinning costs about as much as copying the same bytes. Usable by every device. Outlives its buffers. Any thread.
class PinnedPool {
 public:
  // At most `limit_bytes` pinned at a time, idle buffers included.
  explicit PinnedPool(std::size_t limit_bytes) : limit_bytes_(limit_bytes) {}
  ~PinnedPool();
  PinnedPool(const PinnedPool&) = delete;
  PinnedPool& operator=(const PinnedPool&) = delete;

  // resource_exhausted where lent buffers and this one would pass the limit, or where the system pins no
  // more. The calling thread has a context.
  Result<PinnedBuffer> take(std::size_t size_bytes);
  std::size_t pinned_bytes() const;

 private:
  friend class PinnedBuffer;
  void give_back(void* data, std::size_t size_bytes);
  void free_idle(std::size_t wanted_bytes);

  const std::size_t limit_bytes_;
  mutable std::mutex mutex_;
  std::size_t pinned_bytes_ = 0;
  std::map<std::size_t, std::vector<void*>> idle_;  // by size
};

}  // namespace tutti::cuda
