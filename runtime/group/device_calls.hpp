// The group's side of calls on the memory of GPUs: finds out where buffers lie, and serves the device backend.
// Knows no engine and no vendor's library. For the thread that submits to the group.
#pragma once

#include <memory>
#include <string_view>

#include "backends/backend.hpp"
#include "runtime/group/comm_group.hpp"
#include "runtime/net/wire_security.hpp"

namespace tutti {

class DeviceCalls final : private GroupServices {
 public:
  // `group` outlives it. Nothing communicates before the first call. Errors: unsupported, if CUDA is not in
  // this build.
  static Result<std::unique_ptr<DeviceCalls>> make(CommGroup::Impl& group);
  DeviceBackend& backend() const { return *backend_; }

 private:
  explicit DeviceCalls(CommGroup::Impl& group) : group_(group) {}

  // GroupServices
  std::uint32_t rank() const override { return static_cast<std::uint32_t>(group_.rank()); }
  std::uint32_t size() const override { return static_cast<std::uint32_t>(group_.size()); }
  std::chrono::milliseconds timeout() const override { return group_.group().timeout(); }
  Status allgather(const void* mine, void* all, std::size_t bytes) override;
  Backend& host() override {
    return group_.internal_stream(CommGroup::Impl::Purpose::device_staging).backend();
  }
  Result<std::shared_ptr<const LoweredPlans>> lowered_plans(const Call& call,
                                                            std::string_view algorithm) override {
    return group_.backend().lowered_plans(call, algorithm);
  }
  void fail(const Status& cause) override { static_cast<void>(group_.fail_everywhere(cause)); }
  Status failure() const override {
    return group_.group().has_failed() ? group_.group().failure() : Status();
  }

  CommGroup::Impl& group_;
  std::unique_ptr<DeviceBackend> backend_;
};

// Says in the call whether the buffers that this rank has are on a GPU, and on which. Errors:
// invalid_argument, if they are not all in one place, or not where `memory` says. For calls in whose process
// CUDA is in use.
Status locate(std::string_view name, Call& call, std::uint32_t rank, std::uint32_t size, Memory memory);

// ok if NCCL may carry calls of a group on so many nodes; else unsupported, with the reason.
Status check_nccl(WireSecurity security, std::uint32_t nodes);

// Errors: invalid_argument, unless it is `bytes` of a GPU's memory.
Status check_device_memory(const void* memory, std::size_t bytes);

}  // namespace tutti
