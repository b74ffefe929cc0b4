// One communicator of NCCL: made, used, watched and ended, without blocking longer than the group's timeout.
// Knows no collective; callers hand in functions that call NCCL.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string_view>

#include "backends/nccl/library.hpp"
#include "runtime/base/status.hpp"

namespace tutti::nccl {

// The limit of a wait for NCCL, and the failure that ends it earlier.
struct WaitLimit {
  std::chrono::milliseconds timeout;
  std::function<Status()> failure;  // of the group; any thread
};

// One rank of a communicator that is to be made.
struct Member {
  int rank = 0;
  int size = 1;
  int device = 0;
};

// Threading: one thread makes calls; any thread may ask for errors or abort. The calling thread is in the
// device's context.
class Communicator {
 public:
  // Collective. Errors: NCCL's; timeout; the group's failure.
  static Result<std::unique_ptr<Communicator>> create(const Library& library, const ncclUniqueId& id,
                                                      Member member, WaitLimit limit);
  ~Communicator();  // aborts, unless it was closed
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  // Collective over this communicator: those of one color make one, ordered by key; null for negative ones.
  // Nothing may be outstanding. Errors as for create(); this one is of no use then.
  Result<std::unique_ptr<Communicator>> split(int color, int key);

  // Lets NCCL, of 2.19 or newer, prepare for calls on the memory; the handle is for deregister_memory() and
  // may be null.
  Result<void*> register_memory(const void* memory, std::size_t bytes);
  // No call on it is under way. Nothing to do once the communicator has ended.
  void deregister_memory(void* handle);

  // Has `function` call NCCL with the handle, calls of all communicators of this process one at a time, and
  // waits until NCCL has taken it in (the first call connects the ranks).
  Status call(std::string_view what, const std::function<ncclResult_t(ncclComm_t)>& function);
  // An error that NCCL found between calls. Any thread.
  Status async_error();
  // Ends calls under way, on the device too; later calls are refused with `cause`. Any thread.
  void abort(const Status& cause);
  // Waits for calls under way, then frees the communicator; aborts it after `timeout`.
  void close(std::chrono::milliseconds timeout);

  // The limit of later calls; a part has its parent's until then. For the thread that makes calls.
  void set_wait_limit(WaitLimit limit) { wait_limit_ = std::move(limit); }

  int rank() const { return member_.rank; }
  int size() const { return member_.size; }
  int device() const { return member_.device; }
  const Library& library() const { return library_; }

 private:
  Communicator(const Library& library, Member member, WaitLimit limit)
      : library_(library), member_(member), wait_limit_(std::move(limit)) {}
  // Waits until NCCL is through with the last call.
  Status settle(std::string_view what, std::chrono::milliseconds timeout);
  // NCCL's state: whether it is through, else its error or why it was ended.
  Result<bool> poll(std::string_view what);
  Status call_within(std::chrono::milliseconds timeout, std::string_view what,
                     const std::function<ncclResult_t(ncclComm_t)>& function);

  const Library& library_;
  Member member_;
  WaitLimit wait_limit_;
  std::mutex mutex_;  // the handle, and why there is none
  ncclComm_t handle_ = nullptr;
  ncclComm_t part_ = nullptr;  // NCCL stores a split communicator here, perhaps late; not after an abort
  Status ended_;
};

}  // namespace tutti::nccl
