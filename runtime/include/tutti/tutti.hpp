// tutti: collective communication between the ranks of a job. The C++ interface; this header is all a program
// includes.
//
//   tutti::CommGroup world = tutti::init();                    // started by tutti run, torchrun, or alone
//   std::vector<float> gradient = ...;
//   world.allreduce(std::span(gradient), tutti::Op::avg);      // in place, blocking
//   tutti::Work work = world.iallreduce(std::span(gradient));  // the same, in the background
//   work.wait();
//
// Errors: every function may throw tutti::Error. invalid_argument and unsupported change nothing. Once a
//   group has failed (a rank died, a deadline passed, ranks made different calls) every pending and later
//   operation of it throws the same cause on all ranks; only destroying it is then useful.
// Threads: a group is used by one thread at a time (two at once is an error that is reported); give each
//   thread a stream of it, by stream(). Different streams and groups may be used by different threads. After
//   fork() the child may not use any group of its parent; it may make worlds of its own, with a unique id or a
//   store.
// Buffers: counts are in elements and may exceed 2^31. Buffers belong to the operation until it is complete.
//   Input and output may be the same memory only as each function says; otherwise no element may be part of
//   both. Blocks of one may lie between blocks of the other.
// Agreement: counts, dtype, op and root must be equal on all ranks unless a function says otherwise; all ranks
//   of a group make the same calls in the same order. Different calls are detected and named.
#pragma once

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

// As the peer of a receive: whichever rank of the group sends first.
inline constexpr int kAnySource = -1;

using Counts =
    std::span<const std::uint64_t>;  // one number per rank, in elements; read before the call returns

// Memory that stays registered with a group until the last copy of this ends, or release(), or the group
// ends; see CommGroup::register_buffer(). The former two happen in a thread that may use the group, while no
// call on the memory is under way; all of them before the memory is freed.
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

// Ranks that communicate, in an order. A handle: copies refer to the same group, which ends with the last of
// them.
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
  // input: size() * count elements; output: count, block rank() of the result; in place: output == input +
  // rank() * count, and the other blocks of input stay as they are.
  Work ireduce_scatter(const void* input, void* output, std::size_t count, Dtype, Reduction = Op::sum,
                       CallOptions = {}) const;
  // Block r of input has counts[r] elements; output: counts[rank()]. In place: output is this rank's block of
  // input, and the other blocks stay as they are.
  Work ireduce_scatterv(const void* input, void* output, Counts counts, Dtype, Reduction = Op::sum,
                        CallOptions = {}) const;
  // input, output: size() * count elements; block d of input goes to rank d; in place: output == input.
  Work ialltoall(const void* input, void* output, std::size_t count, Dtype, CallOptions = {}) const;
  // Own counts and displacements for both sides; what a rank sends to another, that one must expect. In
  // place: output == input, and both sides have equal counts and displacements.
  Work ialltoallv(const void* input, Counts input_counts, Counts input_displacements, void* output,
                  Counts output_counts, Counts output_displacements, Dtype, CallOptions = {}) const;
  // input: count elements; output at the root: size() * count; in place at the root: input == output + rank()
  // * count.
  Work igather(const void* input, void* output, std::size_t count, Dtype, int root, CallOptions = {}) const;
  Work igatherv(const void* input, void* output, Counts counts, Counts displacements, Dtype, int root,
                CallOptions = {}) const;
  // The same where the root alone knows all counts: this rank's are own_count elements, counts[rank()] at the
  // root; counts and displacements mean nothing elsewhere. All ranks call it in this form. The only algorithm
  // is "linear".
  Work igatherv(const void* input, std::size_t own_count, void* output, Counts counts, Counts displacements,
                Dtype, int root, CallOptions = {}) const;
  // input at the root: size() * count elements; output: count; in place at the root: output == input + rank()
  // * count. The root's input stays as it is.
  Work iscatter(const void* input, void* output, std::size_t count, Dtype, int root, CallOptions = {}) const;
  Work iscatterv(const void* input, void* output, Counts counts, Counts displacements, Dtype, int root,
                 CallOptions = {}) const;
  // The same where the root alone knows all counts; see igatherv.
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
  // Messages of one sender, receiver and tag match in the order in which they were submitted; those of other
  // tags may overtake them, and one that nobody receives delays no other. Count and dtype must be equal on
  // both sides. A receive from kAnySource takes whichever message of its tag comes first, and Work::source()
  // says whose it was. A send with a tag other than 0 may wait until a receive takes it, as may long ones.
  // A complete send means that its buffer may be reused, not that the message was received. A complete send
  // is delivered when the sender ends in an orderly way: its last handle of the group ends, main
  // returns, or exit() is called. After _exit(), a signal or a crash it may be lost.
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
  // communication. Groups with equal lists and tags are told apart by the order in which a rank makes them,
  // which must be the same on all members. A program that cannot promise that order gives each group a tag of
  // its own.
  CommGroup create(std::span<const int> ranks, std::string_view tag = {}) const;
  // A stream of this group: the same members, and a sequence of operations of its own, with no order between
  // its operations and those of other streams. So several threads of each rank use one group, each its
  // stream; what nobody matches on one holds up none of the others. 0 is the group itself, and there are as
  // many as are asked for: the same number is the same stream on all ranks and in all handles, for as long as
  // the group lives, which ends with the last handle of it or of a stream. Streams fail together. Any thread,
  // at any time, also while others use the group. No communication; memory, and time at its first calls, as
  // another group of these members.
  CommGroup stream(int number) const;
  // Closes a stream (not 0) in all handles: its memory serves others once all members have closed it. Every
  // member closes it behind its last operation there; operations under way fail with StatusCode::aborted, as
  // later ones of handles that are left. stream(number) is a new stream afterwards, of the members that have
  // closed it as often. No communication. Not at the same time as other calls on that stream.
  void close_stream(int number) const;

  // Tells NCCL that this memory of a GPU will be in many calls of this group (not of its streams), so that it
  // may let network cards and switches reach it directly (ncclCommRegister, since NCCL 2.19). It is an offer
  // that changes no result: where NCCL carries none of the group's calls nothing happens. Before the group's
  // first call on a GPU it is kept until then. Of this rank alone; no communication. Errors: invalid_argument
  // for memory of the host or of another GPU than the group's; what NCCL said.
  RegisteredBuffer register_buffer(const void* memory, std::size_t bytes) const;

  // The algorithm that the i-function of a collective would use here, and why ("two_shot: default rules item
  // 2"; "one_shot (shared buffers: two_shot): ..." where it is another one if all ranks' buffers are shared).
  std::string explain_algorithm(Collective, std::size_t count, Dtype, Reduction = Op::sum) const;
  // Why the group has failed, as every operation throws it; nothing while it works. Never waits. Any thread.
  std::optional<Error> failure() const;
  // Fails the group on all ranks; every pending and later operation throws this message.
  void abort(const std::string& why) const;

  struct [[gnu::visibility("hidden")]] Impl;  // for the implementation
  explicit CommGroup(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

 private:
  std::shared_ptr<Impl> impl_;
};

// How a program swaps bytes by its own means (MPI, a framework): every rank contributes, all get all in rank
// order.
using AllgatherBytes = std::function<std::vector<std::string>(std::string_view mine)>;
using PutBytes = std::function<void(const std::string& key, const std::string& value)>;
using GetBytes = std::function<std::string(const std::string& key)>;  // waits until the key exists
using EraseBytes = std::function<void(const std::string& key)>;

struct InitOptions {
  // The launcher's variables are used unless one of these is given; rank and size go with each of them.
  std::string unique_id;     // from make_unique_id(), handed to all ranks
  AllgatherBytes allgather;  // an exchange of the program's
  PutBytes put;              // or its store, with a prefix that no other world of that store uses
  GetBytes get;
  // Called for what this rank has put, when all have read it and before init() returns on any rank: a later
  // world may then use the same prefix. Its exceptions are ignored. Optional.
  EraseBytes erase;
  std::string store_prefix = "tutti";
  // With allgather, or put and get: ranks that all have some world open in common make the group there, as
  // create() does, and not a world of its own, so that it costs no connection, thread or memory segment. It
  // has its own timeout and failure, and the world's settings. If one rank does not set this, or a rank of that
  // world has died or left, the group gets a world of its own.
  bool shares_world = false;
  int rank = -1;
  int size = -1;
  std::chrono::milliseconds timeout{0};  // deadline of every wait, joining included; 0: TUTTI_TIMEOUT
};

// Joins the job and returns the group of all its ranks. May be called again, also with earlier worlds still
// open: each call makes a world of its own (all ranks must call it equally often). A world ends with its last
// CommGroup and Work, or when the process ends: exit() and a return from main leave it as its destructor
// would. Threads may be ranks too: each calls with the same unique id and its own rank. Errors:
// invalid_argument naming the variable or option, or the setting on which ranks differ; timeout naming who
// did not arrive; refused.
CommGroup init(const InitOptions& options = {});
// Text that makes a job: whoever has it can join. One process makes it and hands it to all ranks.
std::string make_unique_id();

// Memory that the other ranks of this node can map, so that collectives on it copy less. Any thread; 64-byte
// aligned, zeroed. `group` decides which world it belongs to; free it before that ends.
void* alloc(const CommGroup& group, std::size_t bytes);
void free(const CommGroup& group, void* memory);
// The same, freed with the last reference, for owners that do not know when the group ends: the memory stays
// after its world has ended, and collectives of later worlds take it as any other. Dropping a reference never
// throws; in a child of fork() it frees nothing.
std::shared_ptr<void> alloc_owned(const CommGroup& group, std::size_t bytes);

std::string_view version();

}  // namespace tutti
#pragma GCC visibility pop

#include "tutti/typed_calls.hpp"
