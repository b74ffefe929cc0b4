// Errors, reductions, call options and operations under way. Included by tutti.hpp.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "tutti/clock.hpp"
#include "tutti/types.hpp"

#pragma GCC visibility push(default)
namespace tutti {

// Why an operation failed: the code to act on, the rank of the group it is about (-1: none), a message for
// people.
class Error : public std::runtime_error {
 public:
  Error(StatusCode code, int peer, const std::string& message)
      : std::runtime_error(message), code_(code), peer_(peer) {}
  StatusCode code() const { return code_; }
  int peer() const { return peer_; }

 private:
  StatusCode code_;
  int peer_;
};

// A user-defined operation: dst[i] = a[i] op b[i] for i < count, elements of the call's dtype. dst may be a
// or b. Must not throw and must be associative; a non-commutative one is applied in rank order. The function
// must outlive every operation that uses it; nothing of it is kept afterwards.
using UserFunction = void (*)(void* context, void* dst, const void* a, const void* b,
                              std::size_t count) noexcept;

// Called by a thread that waits for operations, every few microseconds at most. A program can make progress
// in another communication library here, so that neither waits for the other. It must not wait for operations
// of tutti, nor throw.
using WaitFunction = void (*)(void* context) noexcept;

// The operation of a reduction on two elements. Converts from Op. docs/operations.md says what each op means
// on each dtype.
class Reduction {
 public:
  Reduction(Op op = Op::sum) : op_(op) {}      // NOLINT(google-explicit-constructor)
  static Reduction premul_sum(double factor);  // each rank's input times its own factor, then added
  static Reduction premul_sum_integer(std::int64_t factor);  // the same for integer dtypes
  static Reduction user(UserFunction function, void* context, bool is_commutative);
  // On Dtype::opaque: elements of `element_bytes` (1 to 65536, equal on all ranks).
  static Reduction user(UserFunction function, void* context, bool is_commutative,
                        std::uint32_t element_bytes);

  Op op() const { return op_; }

 private:
  friend struct ReductionAccess;  // for the implementation
  Op op_ = Op::sum;
  bool has_integer_factor_ = false;
  bool is_commutative_ = true;
  std::uint32_t element_bytes_ = 0;
  double factor_ = 1;
  std::int64_t integer_factor_ = 1;
  UserFunction function_ = nullptr;
  void* context_ = nullptr;
};

// How one call is carried out.
struct CallOptions {
  // An item of the rule grammar ("ring", "bruck(radix=4)"): used, or the call fails.
  std::string_view algorithm;
  // Of submitted calls: the caller waits at once, so no progress thread is woken.
  bool will_wait = false;
  // Of calls on GPUs' memory: the cudaStream_t that they are ordered on (null: the default stream).
  void* cuda_stream = nullptr;
  Memory memory = Memory::detect;
  // Sums of f32 (allreduce, reduce and reduce_scatter by sum, avg or premul_sum): messages between nodes travel as
  // bf16, f16, f8e4m3 or f8e5m2; f32: in full. Equal on all ranks. Unset: as TUTTI_WIRE_DTYPE says. See
  // docs/tensors.md for what it does to results.
  std::optional<Dtype> wire_dtype = {};
  // Of an allreduce with a wire dtype, in the memory of the host: `count` elements, to which the losses of roundings
  // on this rank are added. All ranks give one, or none. The residuals of all ranks together are what the sum lacks.
  float* residual = nullptr;
  // Called with its context while a thread waits in this call or for its Work. Unset, it costs nothing; set,
  // a waiting thread never sleeps for long.
  WaitFunction while_waiting = nullptr;
  void* while_waiting_context = nullptr;
};

namespace detail {
// A counted reference to an operation under way; small, and copied without allocation.
class WorkHandle {
 public:
  WorkHandle() = default;
  explicit WorkHandle(void* state);
  WorkHandle(const WorkHandle& other) : WorkHandle(other.state_) {}
  WorkHandle(WorkHandle&& other) noexcept : state_(std::exchange(other.state_, nullptr)) {}
  WorkHandle& operator=(WorkHandle other) noexcept {
    std::swap(state_, other.state_);
    return *this;
  }
  ~WorkHandle();
  void* get() const { return state_; }

 private:
  void* state_ = nullptr;
};
}  // namespace detail

// A submitted operation. Copies refer to the same one; dropping it neither waits nor cancels. An empty one is
// complete. Any one thread may wait; errors are thrown by wait and wait_for, each time they are called.
class Work {
 public:
  Work() = default;
  // Makes progress; true once complete, also by failure (wait() then throws it).
  bool test() const;
  // Blocks until complete. After the group's deadline the operation and the group fail with timeout; the
  // message names the missing ranks.
  void wait() const;
  // The rank that sent the message of a complete receive. -1 before, for other operations, and after a
  // failure before the source was known.
  int source() const;
  // As wait(), with an earlier deadline: `limit` after `since`, the time of submission or now.
  void wait_within(std::chrono::milliseconds limit,
                   RunningClock::time_point since = RunningClock::now()) const;
  // True if complete within the time given. The operation goes on if not.
  bool wait_for(std::chrono::milliseconds at_most) const;
  // The ranks that the operation waits for, and what is known of them: "did not arrive: rank 2 (is alive; its
  // last call was barrier of 0 bytes)". Or "all ranks have called it"; of a message, its state. Empty once
  // complete. Queries the other ranks, for at most a third of a second. Not while a thread waits.
  std::string missing() const;
  // Calls `callback` once the operation is complete, with null or its error. It runs on the thread that
  // completes the operation: a progress thread, or one that waits for something. If the operation is complete
  // and earlier callbacks have returned, it runs here and now. It may submit operations; waiting in it for an
  // incomplete one throws invalid_argument. It must not throw. Any number of callbacks; they run one after
  // the other, in the order in which they were given. With TUTTI_PROGRESS_THREADS=0 they run while some thread waits
  // or tests.
  void on_complete(std::function<void(const Error* error)> callback) const;
  // As wait(), but calls `is_interrupted` some ten times a second. Once that returns true this returns false,
  // and the operation goes on. For languages that handle signals between calls only.
  bool wait_unless(bool (*is_interrupted)(void* context), void* context) const;

 private:
  friend struct WorkAccess;  // for the implementation
  std::shared_ptr<void> group_;
  detail::WorkHandle handle_;
  std::uint32_t sequence_ = 0;
  WaitFunction while_waiting_ = nullptr;
  void* while_waiting_context_ = nullptr;
};

// Hands completions to a thread of the program's choice. poll() returns the added works in the order of their
// completion.
// Threads: any may add; one at a time polls. Cost: some allocations for each Work.
class CompletionQueue {
 public:
  struct Completion {
    std::uint64_t tag = 0;
    std::optional<Error> error;  // none: the operation succeeded
    int source = -1;             // see Work::source()
  };
  CompletionQueue();
  // Works that are still in it go on; their completions are dropped.
  ~CompletionQueue();
  CompletionQueue(const CompletionQueue&) = delete;
  CompletionQueue& operator=(const CompletionQueue&) = delete;

  // Keeps the Work until its completion is handed out. `tag`: the program's own.
  void add(const Work& work, std::uint64_t tag);
  // The next completion, or nothing if none is there. Makes progress; never waits.
  std::optional<Completion> poll();
  // Works whose completion has not been handed out.
  std::size_t size() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

// Waits for all of them, then throws the first error in the order of the list, if there is one. There is no
// "grouped start", because submitted operations never wait for each other to be posted. Messages between any
// ranks and of any length may be submitted in any order and waited for together.
void wait_all(std::span<const Work> works);

}  // namespace tutti
#pragma GCC visibility pop
