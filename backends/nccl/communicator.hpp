// One communicator of NCCL: made, used, watched and ended without ever blocking for longer than the group's
// timeout.
// Knows no collective; calls of NCCL are made by functions that others hand in.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string_view>

#include "backends/nccl/library.hpp"
#include "runtime/base/status.hpp"

namespace tutti::nccl {

// How long to wait for NCCL, and what else ends a wait.
struct Patience {
  std::chrono::milliseconds timeout;
  std::function<Status()> failure;  // of the group; any thread
};

// A rank's place in a communicator that is to be made.
struct Place {
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
                                                      Place place, Patience patience);
  ~Communicator();  // aborts what was not closed
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
  // What went wrong while nobody called. Any thread.
  Status async_error();
  // Ends what is under way, on the device too; later calls are refused with `cause`. Any thread.
  void abort(const Status& cause);
  // Waits for what is under way, then frees the communicator; aborts it after `timeout`.
  void close(std::chrono::milliseconds timeout);

  // What later calls wait for; of one that was split off it is the parent's until then. For the thread that
  // makes calls.
  void be_patient(Patience patience) { patience_ = std::move(patience); }

  int rank() const { return place_.rank; }
  int size() const { return place_.size; }
  int device() const { return place_.device; }
  const Library& library() const { return library_; }

 private:
  Communicator(const Library& library, Place place, Patience patience)
      : library_(library), place_(place), patience_(std::move(patience)) {}
  // Waits until NCCL is through with the last call.
  Status settle(std::string_view what, std::chrono::milliseconds timeout);
  // NCCL's state: whether it is through, else its error or why it was ended.
  Result<bool> look(std::string_view what);
  Status call_within(std::chrono::milliseconds timeout, std::string_view what,
                     const std::function<ncclResult_t(ncclComm_t)>& function);

  const Library& library_;
  Place place_;
  Patience patience_;
  std::mutex mutex_;  // the handle, and why there is none
  ncclComm_t handle_ = nullptr;
  ncclComm_t part_ = nullptr;  // where NCCL puts what it splits off, perhaps late; not after an abort
  Status ended_;
};

}  // namespace tutti::nccl
