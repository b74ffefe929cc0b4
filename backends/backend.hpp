// The backend seam: a backend carries out whole collectives for one group. Host memory has the native backend;
// memory of GPUs has one device backend, and several engines behind it.
// Knows no algorithm, no transport and no way of choosing.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "runtime/base/call.hpp"
#include "runtime/base/status.hpp"
#include "runtime/base/work.hpp"

namespace tutti {

class Selector;
class Trace;
struct LoweredPlans;

struct BackendCaps {
  std::string_view name;  // "native"
};

// How to carry out a call. `algorithm`: of the catalogue ("ring"); empty leaves the choice to the backend,
// which applies rules and tuning. A named algorithm is used or the call fails with the reason.
struct Choice {
  std::string_view algorithm;
  Completion completion = Completion::asynchronous;
};

// Threading: calls of one backend object come from one thread at a time (the stream's submitter).
class Backend {
 public:
  virtual ~Backend() = default;
  virtual const BackendCaps& caps() const = 0;
  // ok, or why this backend cannot carry out the call.
  virtual Status supports(const Call& call) const = 0;
  // Starts the operation; it runs inline until it would block. Empty: it has ended well. The buffers belong to
  // the operation until it is complete. Errors (nothing was started): invalid_argument, unsupported, aborted or
  // peer_failed once the group has failed.
  virtual Result<WorkRef> start(const Call& call, const Choice& choice) = 0;
  // The signature of the call that was started last, with no algorithm named and by now complete, resolved for
  // callers who make it again and again; null where nothing is gained by it. Lives as long as the backend.
  virtual CachedCall* cached_call(const Call& call) = 0;
  // The plans of a call for memory that all ranks reach; null where the algorithm has none. `algorithm`: as
  // of a Choice. For the thread that submits. Errors: as of start().
  virtual Result<std::shared_ptr<const LoweredPlans>> lowered_plans(const Call& /*call*/,
                                                                    std::string_view /*algorithm*/) {
    return std::shared_ptr<const LoweredPlans>();
  }
  // The algorithm that a call would get and why, in one line ("ring: rule TUTTI_ADJUST_ALLREDUCE item 2").
  virtual Result<std::string> explain(const Call& call) const = 0;
};

// The group as its device backend sees it; outlives the backend. `host` and `allgather` use streams of their
// own, so that no call of the user comes between.
class GroupServices {
 public:
  virtual ~GroupServices() = default;
  virtual std::uint32_t rank() const = 0;
  virtual std::uint32_t size() const = 0;
  virtual std::chrono::milliseconds timeout() const = 0;
  // Collective, blocking: `all` gets the `bytes` of every rank, in rank order, in host memory. For the thread
  // that submits to the group. Errors: the group's failure; timeout.
  virtual Status allgather(const void* mine, void* all, std::size_t bytes) = 0;
  // The native backend of a stream for staged calls; one thread uses it. For the thread that submits.
  virtual Backend& host() = 0;
  // Of the group's native backend; see Backend.
  virtual Result<std::shared_ptr<const LoweredPlans>> lowered_plans(const Call& /*call*/,
                                                                    std::string_view /*algorithm*/) {
    return std::shared_ptr<const LoweredPlans>();
  }
  // The group fails, on all ranks. Any thread.
  virtual void fail(const Status& cause) = 0;
  // Why the group has failed; ok while it has not. Any thread.
  virtual Status failure() const = 0;
};

// Properties of a group that stay; equal on all ranks.
struct DeviceOptions {
  const Selector& selector;
  std::uint32_t nodes = 1;
  std::uint32_t ranks_per_node = 1;  // of the fullest node
  Trace* trace = nullptr;            // of this rank; may be null
  Status nccl_refusal{};             // why NCCL must not carry the group's calls; ok: it may
};

// Memory registered with an engine's library, as long as this lives. No call uses it when this ends.
class Registration {
 public:
  virtual ~Registration() = default;
};

// Calls of one group on the memory of GPUs, by the engine that a rule names or that is cheapest. For the
// thread that submits to the group.
class DeviceBackend {
 public:
  virtual ~DeviceBackend() = default;
  // Puts a checked call on its stream and returns; the Work is complete once the device is past the call. The
  // group's first call is collective. Errors: those of the choice and of the engine; the group's failure.
  virtual Result<WorkRef> start(const Call& call, std::string_view algorithm) = 0;
  // Prepares `child`, the device backend of a group split from this one (null: this rank is in none), for
  // NCCL. Collective. Errors: the group's failure.
  virtual Status split(DeviceBackend* child, int color) = 0;
  // Registers memory of a GPU with the engines that gain by it, until deregister_buffer(). Local. Errors:
  // invalid_argument, if it is on another GPU than the group's calls; those of the engine's library.
  virtual Result<std::uint64_t> register_buffer(const void* memory, std::size_t bytes) = 0;
  virtual void deregister_buffer(std::uint64_t number) = 0;
  // The engine of the last call, and its algorithm where the catalogue has it: "staged", "ring".
  struct Route {
    std::string_view engine, algorithm;
  };
  virtual Route last() const = 0;
};

}  // namespace tutti
