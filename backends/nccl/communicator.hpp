// One communicator of NCCL: made, used, watched and ended without ever blocking for longer than the group's
// timeout.
// Knows no collective; calls of NCCL are made by functions that others hand in.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
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

  static constexpr int kNoColor = -1;
  // Collective over this communicator: those of one color make one, ordered by key; null for kNoColor.
  // Nothing may be outstanding. Errors as for create(), for parent and child alike.
  Result<std::unique_ptr<Communicator>> split(int color, int key);
  // Collective over all ranks but `excluded`, which may be dead: those that remain, in their order.
  // `aborts_pending` first ends what this one has under way. unsupported before NCCL 2.27.
  Result<std::unique_ptr<Communicator>> shrink(std::span<const int> excluded, bool aborts_pending);

  // Has `function` call NCCL with the handle, calls of all communicators of this process one at a time, and
  // waits until NCCL has taken it in (the first call connects the ranks).
  Status call(std::string_view what, const std::function<ncclResult_t(ncclComm_t)>& function);
  // What went wrong while nobody called. Any thread.
  Status async_error();
  // Ends what is under way, on the device too; later calls are refused with `cause`. Any thread.
  void abort(const Status& cause);
  // Waits for what is under way, then frees the communicator; aborts it after `timeout`.
  void close(std::chrono::milliseconds timeout);

  // What later calls wait for; of split and shrunk ones it is the parent's until then. For the thread that
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
  struct Making;
  // Takes over what NCCL made of this one, if it did, and asks for the place in it.
  Result<std::unique_ptr<Communicator>> adopt(const Status& status, std::unique_ptr<Making> making);

  const Library& library_;
  Place place_;
  Patience patience_;
  std::mutex mutex_;  // the handle, and why there is none
  ncclComm_t handle_ = nullptr;
  Status ended_;
};

}  // namespace tutti::nccl
