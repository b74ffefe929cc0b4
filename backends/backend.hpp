// The backend seam: who carries out a whole collective for one group (native schedules, later NCCL).
// Knows no algorithm, no transport and no way of choosing; at most eight methods.
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

struct LoweredPlans;

struct BackendCaps {
  std::string_view name;    // "native"
  std::string unavailable;  // why it cannot be used; empty if it can
  std::string disliked;     // why it is better used only where it is named; empty if it is not
};

// How a call is to be carried out. `algorithm` is a backend's own word ("ring"); empty leaves the choice to
// the backend, which applies rules and tuning (kernels among peers must be told). A named algorithm is used
// or the call fails with the reason.
struct Choice {
  std::string_view algorithm;
  Completion completion = Completion::asynchronous;
};

// What a backend has prepared for a buffer; ends with this object, or with the backend.
class Registration {
 public:
  virtual ~Registration() = default;
};

// Threading: calls of one backend object come from one thread at a time (the stream's submitter).
class Backend {
 public:
  virtual ~Backend() = default;
  virtual const BackendCaps& caps() const = 0;
  // ok, or why this backend cannot carry out the call.
  virtual Status supports(const Call& call) const = 0;
  // Starts the operation; it runs inline until it would block. Empty: it has ended well. The buffers belong to
  // the operation until it is complete. Errors (nothing was started): invalid_argument, unsupported, aborted or peer_failed once the
  // group has failed.
  virtual Result<WorkRef> start(const Call& call, const Choice& choice) = 0;
  // The signature of the call that was started last, with no algorithm named and by now complete, resolved for
  // callers who make it again and again; null where nothing is gained by it. Lives as long as the backend.
  virtual CachedCall* cached_call(const Call& call) = 0;
  // Memory that many calls will use, known to the backend as long as the result lives; none of these calls is
  // under way when that ends. Null where nothing is gained by it. Errors: what the backend's library said.
  virtual Result<std::unique_ptr<Registration>> register_buffer(const void* /*memory*/,
                                                                std::size_t /*bytes*/) {
    return std::unique_ptr<Registration>();
  }
  // The plans by which this backend has a call carried out in memory that all ranks reach; null where it has
  // none. `algorithm`: as of a choice. For the thread that submits. Errors: as of start().
  virtual Result<std::shared_ptr<const LoweredPlans>> lowered_plans(const Call& /*call*/,
                                                                    std::string_view /*algorithm*/) {
    return std::shared_ptr<const LoweredPlans>();
  }
  // The algorithm that a call would get and why, in one line ("ring: rule TUTTI_ADJUST_ALLREDUCE item 2").
  virtual Result<std::string> explain(const Call& call) const = 0;
};

// What a backend for memory of GPUs needs of its group, which outlives it. `host` and `allgather` communicate
// apart from the group's own calls: nothing that its user submits comes between.
class GroupServices {
 public:
  virtual ~GroupServices() = default;
  virtual std::uint32_t rank() const = 0;
  virtual std::uint32_t size() const = 0;
  virtual std::chrono::milliseconds timeout() const = 0;
  // Collective, blocking: `all` gets the `bytes` of every rank, in rank order, in host memory. For the thread
  // that submits to the group. Errors: the group's failure; timeout.
  virtual Status allgather(const void* mine, void* all, std::size_t bytes) = 0;
  // Carries calls on host memory out; for one thread, which need not be the one that submits to the group.
  virtual Backend& host() = 0;
  // Those of the group's own schedules; see Backend.
  virtual Result<std::shared_ptr<const LoweredPlans>> lowered_plans(const Call& /*call*/,
                                                                    std::string_view /*algorithm*/) {
    return std::shared_ptr<const LoweredPlans>();
  }
  // The group fails, on all ranks. Any thread.
  virtual void fail(const Status& cause) = 0;
  // Why the group has failed; ok while it has not. Any thread.
  virtual Status failure() const = 0;
};

}  // namespace tutti
