// tutti: collective communication between the ranks of a job. The C++ interface; this header is all a program
// includes.
//
//   tutti::CommGroup world = tutti::init();                    // started by tutti run, torchrun, or alone
//   std::vector<float> gradient = ...;
//   world.allreduce(std::span(gradient), tutti::Op::avg);      // in place, blocking
//   tutti::Work work = world.iallreduce(std::span(gradient));  // the same, in the background
//   work.wait();
//
// Errors: every function may throw tutti::Error. invalid_argument and unsupported change nothing. A group
//   fails when a rank dies, a deadline passes or ranks make different calls. Every pending and later
//   operation of it then throws the same cause on all ranks, and only destroying it is useful.
// Threads: a group is used by one thread at a time; two at once is an error that is reported. Give each
//   thread a stream of the group (stream()). Different streams and groups may be used by different threads.
//   After fork() the child may not use any group of its parent. It may make worlds of its own, with a unique
//   id or a store.
// Buffers: counts are in elements and may exceed 2^31. Buffers belong to the operation until it is complete.
//   Input and output may be the same memory only as each function says; otherwise no element may be part of
//   both. Blocks of one may lie between blocks of the other.
// Agreement: counts, dtype, op and root must be equal on all ranks unless a function says otherwise. All
//   ranks of a group make the same calls in the same order. Different calls are detected and named.
#pragma once

#if __cplusplus < 201709L
#error \
    "tutti/tutti.hpp needs C++20 (std::span): compile with -std=c++20, or use the C interface, tutti/tutti.h"
#endif

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "tutti/element.hpp"
#include "tutti/work.hpp"

#pragma GCC visibility push(default)
namespace tutti {

// As the peer of a receive: the rank of the group that sends first.
inline constexpr int kAnySource = -1;

using Counts =
    std::span<const std::uint64_t>;  // one number per rank, in elements; read before the call returns

// Memory that stays registered with a group until release(), the end of the last copy of this, or the end of
// the group; see CommGroup::register_buffer(). Each happens before the memory is freed. The former two need a
// thread that may use the group, while no call on the memory is under way.
class RegisteredBuffer {
 public:
  RegisteredBuffer() = default;  // of nothing
  bool is_registered() const { return held_ != nullptr; }
  void release() { held_.reset(); }

 private:
  friend class CommGroup;
  explicit RegisteredBuffer(std::shared_ptr<const void> held) : held_(std::move(held)) {}
  std::shared_ptr<const void> held_;
};

struct CollectiveCall;
class CallPlan;

// Ranks that communicate, in an order. A handle: copies refer to the same group, which ends with its last
// copy.
class CommGroup {
 public:
  CommGroup() = default;  // no group: every function but is_open() throws

  bool is_open() const { return impl_ != nullptr; }
  int rank() const;
  int size() const;
  int local_rank() const;  // among the ranks of this node, in rank order
  int local_size() const;

  // The i-functions submit and return; those without i wait as well.
  //
  // input: count elements; output: count elements, equal on all ranks; in place: output == input.
  Work iallreduce(const void* input, void* output, std::size_t count, Dtype, Reduction = Op::sum,
                  CallOptions = {}) const;
  // buffer: count elements, the root's on all ranks afterwards.
  Work ibroadcast(void* buffer, std::size_t count, Dtype, int root, CallOptions = {}) const;
  // output: count elements, at the root only (ignored elsewhere); in place at the root: output == input.
  Work ireduce(const void* input, void* output, std::size_t count, Dtype, Reduction, int root,
               CallOptions = {}) const;
  // input: count elements; output: size() * count, in rank order; in place: input == output + rank() * count.
  Work iallgather(const void* input, void* output, std::size_t count, Dtype, CallOptions = {}) const;
  // Block r of output has counts[r] elements and starts at displacements[r] (empty: one after the other). All
  // ranks pass all counts. In place: input is this rank's block of output.
  Work iallgatherv(const void* input, void* output, Counts counts, Counts displacements, Dtype,
                   CallOptions = {}) const;
  // input: size() * count elements; output: count, block rank() of the result. In place: output == input +
  // rank() * count; the other blocks of input stay as they are.
  Work ireduce_scatter(const void* input, void* output, std::size_t count, Dtype, Reduction = Op::sum,
                       CallOptions = {}) const;
  // Block r of input has counts[r] elements; output: counts[rank()]. In place: output is this rank's block of
  // input, and the other blocks stay as they are.
  Work ireduce_scatterv(const void* input, void* output, Counts counts, Dtype, Reduction = Op::sum,
                        CallOptions = {}) const;
  // input, output: size() * count elements; block d of input goes to rank d; in place: output == input.
  Work ialltoall(const void* input, void* output, std::size_t count, Dtype, CallOptions = {}) const;
  // Each side has its own counts and displacements. A rank must expect the count that the other sends to it.
  // In place: output == input, and both sides have equal counts and displacements.
  Work ialltoallv(const void* input, Counts input_counts, Counts input_displacements, void* output,
                  Counts output_counts, Counts output_displacements, Dtype, CallOptions = {}) const;
  // input: count elements; output at the root: size() * count; in place at the root: input == output + rank()
  // * count.
  Work igather(const void* input, void* output, std::size_t count, Dtype, int root, CallOptions = {}) const;
  Work igatherv(const void* input, void* output, Counts counts, Counts displacements, Dtype, int root,
                CallOptions = {}) const;
  // The same where only the root knows all counts. This rank contributes own_count elements, which is
  // counts[rank()] at the root. Other ranks ignore counts and displacements. All ranks call it in this form.
  // The only algorithm is "linear".
  Work igatherv(const void* input, std::size_t own_count, void* output, Counts counts, Counts displacements,
                Dtype, int root, CallOptions = {}) const;
  // input at the root: size() * count elements; output: count; in place at the root: output == input + rank()
  // * count. The root's input stays as it is.
  Work iscatter(const void* input, void* output, std::size_t count, Dtype, int root, CallOptions = {}) const;
  Work iscatterv(const void* input, void* output, Counts counts, Counts displacements, Dtype, int root,
                 CallOptions = {}) const;
  // The same where only the root knows all counts; see igatherv.
  Work iscatterv(const void* input, Counts counts, Counts displacements, void* output, std::size_t own_count,
                 Dtype, int root, CallOptions = {}) const;
  // Complete once every rank has called it.
  Work ibarrier(CallOptions = {}) const;
  // output: count elements, the combination of ranks 0..rank() in rank order; in place: output == input.
  Work iscan(const void* input, void* output, std::size_t count, Dtype, Reduction = Op::sum,
             CallOptions = {}) const;
  // The same of ranks 0..rank()-1; rank 0's output is untouched.
  Work iexscan(const void* input, void* output, std::size_t count, Dtype, Reduction = Op::sum,
               CallOptions = {}) const;
  // Messages of one sender, receiver and tag match in submission order. Messages of other tags may overtake
  // them, and one that nobody receives delays no other. Count and dtype must be equal on both sides. A
  // receive from kAnySource takes the first message of its tag; Work::source() is the rank that sent it. A
  // send with a tag other than 0 may wait until a receive takes it, as may long ones. A complete send means
  // that its buffer may be reused, not that the message was received. The message is delivered if the sender
  // ends in an orderly way: its last handle of the group ends, main returns, or exit() is called. After
  // _exit(), a signal or a crash it may be lost.
  Work isend(const void* buffer, std::size_t count, Dtype, int peer, int tag = 0, CallOptions = {}) const;
  Work irecv(void* buffer, std::size_t count, Dtype, int peer, int tag = 0, CallOptions = {}) const;

  void allreduce(const void* input, void* output, std::size_t count, Dtype, Reduction = Op::sum,
                 CallOptions = {}) const;
  void broadcast(void* buffer, std::size_t count, Dtype, int root, CallOptions = {}) const;
  void reduce(const void* input, void* output, std::size_t count, Dtype, Reduction, int root,
              CallOptions = {}) const;
  void allgather(const void* input, void* output, std::size_t count, Dtype, CallOptions = {}) const;
  void allgatherv(const void* input, void* output, Counts counts, Counts displacements, Dtype,
                  CallOptions = {}) const;
  void reduce_scatter(const void* input, void* output, std::size_t count, Dtype, Reduction = Op::sum,
                      CallOptions = {}) const;
  void reduce_scatterv(const void* input, void* output, Counts counts, Dtype, Reduction = Op::sum,
                       CallOptions = {}) const;
  void alltoall(const void* input, void* output, std::size_t count, Dtype, CallOptions = {}) const;
  void alltoallv(const void* input, Counts input_counts, Counts input_displacements, void* output,
                 Counts output_counts, Counts output_displacements, Dtype, CallOptions = {}) const;
  void gather(const void* input, void* output, std::size_t count, Dtype, int root, CallOptions = {}) const;
  void gatherv(const void* input, void* output, Counts counts, Counts displacements, Dtype, int root,
               CallOptions = {}) const;
  void gatherv(const void* input, std::size_t own_count, void* output, Counts counts, Counts displacements,
               Dtype, int root, CallOptions = {}) const;
  void scatter(const void* input, void* output, std::size_t count, Dtype, int root, CallOptions = {}) const;
  void scatterv(const void* input, void* output, Counts counts, Counts displacements, Dtype, int root,
                CallOptions = {}) const;
  void scatterv(const void* input, Counts counts, Counts displacements, void* output, std::size_t own_count,
                Dtype, int root, CallOptions = {}) const;
  void barrier(CallOptions = {}) const;
  void scan(const void* input, void* output, std::size_t count, Dtype, Reduction = Op::sum,
            CallOptions = {}) const;
  void exscan(const void* input, void* output, std::size_t count, Dtype, Reduction = Op::sum,
              CallOptions = {}) const;
  void send(const void* buffer, std::size_t count, Dtype, int peer, int tag = 0, CallOptions = {}) const;
  int recv(void* buffer, std::size_t count, Dtype, int peer, int tag = 0,
           CallOptions = {}) const;  // returns the source

  // Typed forms; the element type says the dtype. Sizes must fit each other as above. In place where only one
  // span is given. Wait for the Work that an i-function returns.
  template <class T>
  Work iallreduce(std::span<T> buffer, Reduction = Op::sum, CallOptions = {}) const;
  template <class In, class T>
  Work iallreduce(std::span<In> input, std::span<T> output, Reduction = Op::sum, CallOptions = {}) const;
  template <class T>
  Work ibroadcast(std::span<T> buffer, int root, CallOptions = {}) const;
  template <class In, class T>
  Work ireduce(std::span<In> input, std::span<T> output, Reduction, int root, CallOptions = {}) const;
  template <class In, class T>
  Work iallgather(std::span<In> input, std::span<T> output, CallOptions = {}) const;
  template <class In, class T>
  Work ireduce_scatter(std::span<In> input, std::span<T> output, Reduction = Op::sum, CallOptions = {}) const;
  template <class In, class T>
  Work ialltoall(std::span<In> input, std::span<T> output, CallOptions = {}) const;
  template <class In, class T>
  Work igather(std::span<In> input, std::span<T> output, int root, CallOptions = {}) const;
  template <class In, class T>
  Work iscatter(std::span<In> input, std::span<T> output, int root, CallOptions = {}) const;
  template <class In, class T>
  Work iscan(std::span<In> input, std::span<T> output, Reduction = Op::sum, CallOptions = {}) const;
  template <class In, class T>
  Work iexscan(std::span<In> input, std::span<T> output, Reduction = Op::sum, CallOptions = {}) const;
  template <class T>
  Work isend(std::span<T> buffer, int peer, int tag = 0, CallOptions = {}) const;
  template <class T>
  Work irecv(std::span<T> buffer, int peer, int tag = 0, CallOptions = {}) const;
  template <class T>
  void allreduce(std::span<T> buffer, Reduction = Op::sum, CallOptions = {}) const;
  template <class In, class T>
  void allreduce(std::span<In> input, std::span<T> output, Reduction = Op::sum, CallOptions = {}) const;
  template <class T>
  void broadcast(std::span<T> buffer, int root, CallOptions = {}) const;
  template <class In, class T>
  void reduce(std::span<In> input, std::span<T> output, Reduction, int root, CallOptions = {}) const;
  template <class In, class T>
  void allgather(std::span<In> input, std::span<T> output, CallOptions = {}) const;
  template <class In, class T>
  void reduce_scatter(std::span<In> input, std::span<T> output, Reduction = Op::sum, CallOptions = {}) const;
  template <class In, class T>
  void alltoall(std::span<In> input, std::span<T> output, CallOptions = {}) const;
  template <class In, class T>
  void gather(std::span<In> input, std::span<T> output, int root, CallOptions = {}) const;
  template <class In, class T>
  void scatter(std::span<In> input, std::span<T> output, int root, CallOptions = {}) const;
  template <class In, class T>
  void scan(std::span<In> input, std::span<T> output, Reduction = Op::sum, CallOptions = {}) const;
  template <class In, class T>
  void exscan(std::span<In> input, std::span<T> output, Reduction = Op::sum, CallOptions = {}) const;
  template <class T>
  void send(std::span<T> buffer, int peer, int tag = 0, CallOptions = {}) const;
  template <class T>
  int recv(std::span<T> buffer, int peer, int tag = 0, CallOptions = {}) const;

  // The members with the same colour, ordered by (key, rank). A negative colour: no group for this rank
  // (closed). Collective. Where NCCL carries this group's calls on GPUs, waits for those under way.
  CommGroup split(int colour, int key = 0) const;
  // The members on this rank's node, in rank order. No communication.
  CommGroup split_by_node() const;
  // The listed ranks of this group, in that order; called by them alone, with equal lists and tags. No
  // communication. The order in which a rank makes groups with equal lists and tags tells them apart. It must be
  // equal on all members; a program that cannot promise that gives each group its own tag, not "tutti ...".
  CommGroup create(std::span<const int> ranks, std::string_view tag = {}) const;
  // A stream of this group: the same members with an independent sequence of operations. Operations of
  // different streams have no order between them. So several threads of each rank can use one group, each
  // with its own stream. An operation that no other rank matches delays no other stream. Number 0 is the
  // group itself; there are as many streams as the program asks for. The same number is the same stream on
  // all ranks and in all handles, as long as the group lives. The group ends with the last handle of it and
  // of its streams. Streams fail together. Any thread, at any time, also while others use the group. No
  // communication. A stream costs memory, and time at its first calls, as another group of these members
  // does.
  CommGroup stream(int number) const;
  // Closes a stream (not 0) in all handles. Its memory is reused once all members have closed it. Each member
  // closes the stream after its last operation on it. Operations under way, and later ones on remaining
  // handles, fail with StatusCode::aborted. Afterwards stream(number) is a new stream, of the members that
  // have closed the number equally often. No communication. No other call on the stream may run at the same
  // time.
  void close_stream(int number) const;

  // A call that is described once and started many times. With `partitions` its buffer becomes ready and
  // complete piece by piece: partition k has partitions[k] elements, and they are the whole buffer in order.
  // Offered for allreduce. Collective as create() is, and no communication. See tutti/call_plan.hpp.
  CallPlan make_plan(const CollectiveCall& call, Counts partitions = {}) const;

  // Tells NCCL (ncclCommRegister) that many calls of this group, not of its streams, will use this GPU
  // memory. Network adapters and switches may then access it directly (NCCL 2.19 or later). The result of no
  // call changes. Where NCCL carries none of the group's calls, nothing happens. Before the group's first
  // call on a GPU the request is kept until then. Of this rank alone; no communication. Errors:
  // invalid_argument for host memory or for another GPU than the group's; NCCL's own errors.
  RegisteredBuffer register_buffer(const void* memory, std::size_t bytes) const;

  // The algorithm that the i-function of a collective would use here, and the reason: "two_shot: default
  // rules item 2". "one_shot (shared buffers: two_shot): ..." names a second algorithm for the case that all
  // ranks' buffers are shared.
  std::string explain_algorithm(Collective, std::size_t count, Dtype, Reduction = Op::sum) const;
  // Why the group has failed, as every operation throws it; nothing while it works. Never waits. Any thread.
  std::optional<Error> failure() const;
  // Fails the group on all ranks; every pending and later operation throws this message.
  void abort(const std::string& why) const;

  // The group that goes on without its dead members and those `left_out`: the survivors in their old order, with
  // ranks from 0. Collective over the survivors, which give equal lists. Works in a failed group and in a sound one,
  // any number of times, and also if rank 0 died. Members agree through the lowest rank that is alive. If a member
  // dies meanwhile, they agree anew, so all survivors get the same group. This group ends here: its later operations
  // fail with StatusCode::aborted, or as it failed, and its memory is free once its last handle ends. Groups and
  // streams made of it do not follow; make them anew. A member that has closed its groups counts as dead.
  // Buffers of operations that failed have undefined contents on every rank. Errors: timeout naming members that
  // are alive and have not called it within the group's timeout; refused if the others left this rank out or took it
  // for dead; unsupported across nodes if a node cannot be reached. Blocks; one thread of a rank at a time. Cost:
  // see docs/elastic.md.
  CommGroup shrink(std::span<const int> left_out = {}) const;
  // The group with processes that have called tutti::join() with an invitation of it; they get the highest ranks.
  // With a new_size, waits until there are so many members; 0: admits those that wait. Otherwise as shrink(), also
  // for members that have died: so many more processes are admitted. Errors besides those of shrink(): timeout if
  // too few processes want to join, of whom none is admitted then.
  CommGroup grow(int new_size = 0) const;
  // Both at once: the survivors without `left_out`, and processes that join, up to new_size members. If more members
  // than new_size survive, all of them stay.
  CommGroup reconfigure(int new_size = 0, std::span<const int> left_out = {}) const;
  // Numbers of the members, in rank order, that they keep in all successors: their ranks in the first group, and higher
  // ones for processes that joined. So a successor tells who is missing. No communication.
  std::vector<int> member_ids() const;
  // Text with which a process can join this group by tutti::join(), while one of its first 8 members lives. A
  // successor takes it, too. It holds the addresses of these members and the secret of the job: whoever has it can
  // join. No communication.
  std::string invitation() const;

  struct [[gnu::visibility("hidden")]] Impl;  // for the implementation
  explicit CommGroup(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

 private:
  std::shared_ptr<Impl> impl_;
};

// The program's own allgather (MPI, a framework): every rank contributes bytes, and all ranks get all
// contributions in rank order.
using AllgatherBytes = std::function<std::vector<std::string>(std::string_view mine)>;
using PutBytes = std::function<void(const std::string& key, const std::string& value)>;
using GetBytes = std::function<std::string(const std::string& key)>;  // waits until the key exists
using EraseBytes = std::function<void(const std::string& key)>;

struct InitOptions {
  // The launcher's variables are used unless one of these is given; each needs rank and size.
  std::string unique_id;     // from make_unique_id(), handed to all ranks
  AllgatherBytes allgather;  // the program's own exchange
  PutBytes put;              // or its store, with a prefix that no other world of that store uses
  GetBytes get;
  // Erases the keys that this rank has put, once all ranks have read them. It runs before init() returns on
  // any rank, so that a later world may use the same prefix. Its exceptions are ignored. Optional.
  EraseBytes erase;
  std::string store_prefix = "tutti";
  // With allgather, or put and get: if all ranks have some world open in common, the group is made there, as
  // create() makes it. It then needs no connection, thread or memory segment of its own. It has its own
  // timeout and failure, and the world's settings. If one rank does not set this, or a rank of that world has
  // died or left, the group gets a new world.
  bool shares_world = false;
  int rank = -1;
  int size = -1;
  std::chrono::milliseconds timeout{0};  // deadline of every wait, joining included; 0: TUTTI_TIMEOUT
};

// Joins the job and returns the group of all its ranks. May be called again, also while earlier worlds are
// open: each call makes a new world. All ranks must call it equally often. A world ends with its last
// CommGroup and Work, or when the process ends. A call of exit() and a return from main leave it as its
// destructor would. Threads may be ranks too: each calls with the same unique id and its own rank. Errors:
// invalid_argument naming the variable or option, or the setting on which ranks differ; timeout naming who
// did not arrive; refused.
CommGroup init(const InitOptions& options = {});
// Joins a running group by its invitation, and returns the successor of that group, once its members have called grow()
// or reconfigure(). The settings of the environment must fit theirs, as in init(). Waits up to `timeout`, which is that
// of the group, too; 0: TUTTI_TIMEOUT. Errors: invalid_argument for another text, or for a setting that differs;
// timeout if the members do not admit this process; refused, for another build.
CommGroup join(std::string_view invitation, std::chrono::milliseconds timeout = std::chrono::milliseconds(0));
// Text that identifies a job. One process makes it and hands it to all ranks. Any process that has it can
// join.
std::string make_unique_id();

// Memory that the other ranks of this node can map, so that collectives on it copy less. Any thread; 64-byte
// aligned, zeroed. The memory belongs to the world of `group`; free it before that world ends.
void* alloc(const CommGroup& group, std::size_t bytes);
void free(const CommGroup& group, void* memory);
// The same, freed with the last reference, for owners that do not know when the group ends. The memory stays
// valid after its world has ended; collectives of later worlds then treat it as any other memory. Dropping a
// reference never throws; in a child of fork() it frees nothing.
std::shared_ptr<void> alloc_owned(const CommGroup& group, std::size_t bytes);

std::string_view version();

}  // namespace tutti
#pragma GCC visibility pop

#include "tutti/call_plan.hpp"
#include "tutti/typed_calls.hpp"
