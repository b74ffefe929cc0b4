// Buffers that the host does not reach, as the harness uses them: filled, checked and waited for through
// copies. Knows no device.
#pragma once

#include <cstddef>
#include <cstring>
#include <vector>

namespace tutti::bench {

// Where the buffers of calls lie, if not in the host's memory. Each function comes behind the calls that were
// made before, returns when it is done, and throws if it or one of them fails.
class RemoteMemory {
 public:
  virtual ~RemoteMemory() = default;
  virtual void write(void* there, const void* here, std::size_t bytes) = 0;
  virtual void read(void* here, const void* there, std::size_t bytes) = 0;
  virtual void fill(void* there, unsigned char value, std::size_t bytes) = 0;
  virtual void wait() = 0;
};

// The harness's own access to buffers: directly in host memory, else through a copy.
class BufferAccess {
 public:
  // nullptr: the host's memory.
  explicit BufferAccess(RemoteMemory* remote) : remote_(remote) {}

  // put(to) writes `bytes` bytes.
  template <class Put>
  void write(void* buffer, std::size_t bytes, Put&& put) {
    if (remote_ == nullptr) return put(buffer);
    copy_.resize(bytes);
    put(copy_.data());
    remote_->write(buffer, copy_.data(), bytes);
  }
  // The result of look(from) on `bytes` bytes.
  template <class Look>
  auto read(const void* buffer, std::size_t bytes, Look&& look) {
    if (remote_ == nullptr) return look(buffer);
    copy_.resize(bytes);
    remote_->read(copy_.data(), buffer, bytes);
    return look(static_cast<const void*>(copy_.data()));
  }
  void fill(void* buffer, unsigned char value, std::size_t bytes) {
    if (bytes == 0) return;
    if (remote_ == nullptr) {
      std::memset(buffer, value, bytes);
    } else {
      remote_->fill(buffer, value, bytes);
    }
  }
  // Until the calls that were made are over; those on the host's memory are when they return.
  void wait() {
    if (remote_ != nullptr) remote_->wait();
  }

 private:
  RemoteMemory* remote_;
  std::vector<unsigned char> copy_;
};

}  // namespace tutti::bench
