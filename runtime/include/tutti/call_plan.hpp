// Plans: a collective call that is described once and started many times, as MPI's persistent and partitioned
// operations. Its buffer may become ready, and complete, partition by partition. Included by tutti.hpp.
//
//   std::vector<std::uint64_t> partitions(16, bucket.size() / 16);
//   tutti::CallPlan plan = world.make_plan(
//       {.input = bucket.data(), .output = bucket.data(), .count = bucket.size()}, partitions);
//   for (...) {                            // each step
//     plan.start();
//     for (...) plan.ready(k);             // as soon as partition k is computed; its communication begins
//     plan.wait(0);                        // partition 0 is complete; plan.wait() waits for all
//   }
//
// Agreement: all ranks make equal plans of a group in the same order, with equal partitions. A plan is
//   independent of the group's calls and of other plans: ranks may start their plans in different orders.
// Order: partitions may become ready in any order, another one on each rank. All ranks communicate them in
//   one order: that in which they became ready on rank 0 in the run before, and in the first run by number. A
//   partition that is ready earlier waits for its predecessors in this order.
// Errors: misuse throws invalid_argument and changes nothing. When an operation fails, the plan fails on all
//   ranks; the group and its other plans go on.
// Threads: ready() and is_complete() may be called by any thread at any time, also in completion callbacks.
//   While one thread submits partitions, ready() leaves others to it and returns. One thread at a time waits
//   for a partition.
// Cost: a plan takes memory as a group of these ranks does, from its first start on. No communication when it
//   is made. A start costs as much as a call that repeats. A run of several partitions ends with one
//   broadcast of 4 bytes a partition.
#pragma once

#include <cstddef>
#include <memory>

#include "tutti/tutti.hpp"

#pragma GCC visibility push(default)
namespace tutti {

// One collective call. Buffers and counts as in the function of CommGroup for this collective.
struct CollectiveCall {
  Collective collective = Collective::allreduce;  // all but send_recv
  // Broadcast: its buffer is `output`. A barrier has neither.
  const void* input = nullptr;
  void* output = nullptr;
  std::size_t count = 0;
  Dtype dtype = Dtype::f32;
  Reduction op = Op::sum;
  int root = 0;
  // Of the v-variants, instead of `count`; alltoallv has lists for both sides. Read before make_plan()
  // returns.
  Counts counts = {};
  Counts displacements = {};
  Counts output_counts = {};
  Counts output_displacements = {};
  CallOptions options = {};
};

// A handle: copies are the same plan.
class CallPlan {
 public:
  CallPlan() = default;  // no plan: every function but is_open() throws

  bool is_open() const { return impl_ != nullptr; }
  std::size_t partition_count() const;  // 0: a plan without partitions

  // Begins a run. A plan without partitions communicates now; the others once partitions are ready. The
  // buffers belong to a partition from ready() on, until it is complete. Errors: invalid_argument while a run
  // is under way.
  void start() const;
  // Partitions [first, first + count) may be read and written from now on. Errors: invalid_argument before
  // start(), for partitions that do not exist, and for partitions that are ready already; then no partition
  // is marked.
  void ready(std::size_t first, std::size_t count = 1) const;

  // True once complete, also by failure. Makes progress. A plan that was not started is complete.
  bool is_complete() const;
  bool is_complete(std::size_t first, std::size_t count = 1) const;
  // Blocks until complete. Another thread may mark partitions as ready meanwhile. Errors: the failure of the
  // plan; timeout, naming the partitions that are not ready on this rank when the group's deadline passes.
  void wait() const;
  void wait(std::size_t first, std::size_t count = 1) const;
  // As wait(), but calls `is_interrupted` some ten times a second. Once that returns true this returns false,
  // and the run goes on. For languages that handle signals between calls only.
  bool wait_unless(bool (*is_interrupted)(void* context), void* context) const;
  bool wait_unless(std::size_t first, std::size_t count, bool (*is_interrupted)(void* context),
                   void* context) const;

  // Ends this handle. With its last handle a plan ends; a run under way then fails with `aborted` on all
  // ranks, and the buffers are free.
  void close() { impl_.reset(); }

  class [[gnu::visibility("hidden")]] Impl;  // for the implementation
  explicit CallPlan(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

 private:
  Impl& impl(const char* name) const;
  std::shared_ptr<Impl> impl_;
};

}  // namespace tutti
#pragma GCC visibility pop
