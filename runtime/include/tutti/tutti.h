// tutti: collective communication between the ranks of a job. The C interface; this header is all a program
// includes. C11 and C++; docs/c_api.md has a complete program.
//
//   tutti_group_t world = NULL;
//   if (tutti_init(NULL, &world) != TUTTI_OK) { puts(tutti_last_error()); exit(1); }
//   tutti_allreduce(gradient, gradient, count, TUTTI_F32, TUTTI_AVG, world, NULL);             // blocking
//   tutti_work_t work = NULL;
//   tutti_iallreduce(gradient, gradient, count, TUTTI_F32, TUTTI_AVG, world, NULL, &work);     // submitted
//   tutti_wait(&work);
//   tutti_group_close(&world);
//
// Errors: a function that fails returns a status code, sets tutti_last_error() and leaves its results
//   untouched. TUTTI_INVALID_ARGUMENT and TUTTI_UNSUPPORTED change nothing. A group fails when a rank dies, a
//   deadline passes or ranks make different calls. Every pending and later operation of it then returns the
//   same cause on all ranks, and only closing it is useful. No exception leaves a function.
// Threads: a group is used by one thread at a time; two at once is an error that is reported. Give each
//   thread a stream of the group (tutti_group_stream). Different streams and groups may be used by different
//   threads. After fork() the child may not use any group.
// Buffers: counts are in elements and may exceed 2^31. Buffers belong to the operation until it is complete;
//   lists of counts are read before the call returns. Input and output may be the same memory only as each
//   function says; otherwise no element may be part of both. Blocks of one may lie between those of the
//   other.
// Agreement: counts, dtype, op and root must be equal on all ranks unless a function says otherwise. All
//   ranks of a group make the same calls in the same order. Different calls are detected and named.
// Cost: a blocking call costs some nanoseconds more than the same call of tutti.hpp, and allocates nothing;
//   a submitted one allocates its handle.
// ABI: functions are added, never changed, as long as TUTTI_ABI_VERSION (the N of libtutti.so.N) is the same.
#ifndef TUTTI_TUTTI_H
#define TUTTI_TUTTI_H

#include "tutti/c_types.h"

#define TUTTI_ABI_VERSION 0

#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

// -- this library, errors -----------------------------------------------------------------------------------
// Any thread, also without a group. Texts live as long as the process, but for tutti_last_error's.

const char* tutti_version(void);  // "0.1.0"
int tutti_abi_version(void);      // TUTTI_ABI_VERSION of the library that is running
const char* tutti_status_name(
    tutti_status_t status);                     // "timeout"; "unknown status" for a number that is none
size_t tutti_dtype_bytes(tutti_dtype_t dtype);  // of one element; 0 for TUTTI_OPAQUE and for no dtype

// The message of this thread's last failure, and the rank of the group that it is about (-1: none). "" before
// the first failure. Success does not change it; the text is valid until the thread's next failure.
const char* tutti_last_error(void);
int tutti_last_error_peer(void);

// -- joining ------------------------------------------------------------------------------------------------

// Joins the job and sets *world to the group of all its ranks. With options NULL the launcher is recognised:
// tutti run, mpirun, srun, torchrun, or none. May be called again, also while earlier worlds are open: each
// call makes a new world. All ranks must call it equally often. A world ends with its last group and work, or
// when the process ends: exit() and a return from main leave it as tutti_group_close would. Threads may be
// ranks too: each calls with the same unique id and its own rank. Errors: INVALID_ARGUMENT naming the
// variable or option, or the setting on which ranks differ; TIMEOUT naming who did not arrive; REFUSED.
tutti_status_t tutti_init(const tutti_init_options_t* options, tutti_group_t* world);
// One process makes it and hands it to all ranks. Any process that has it can join.
tutti_status_t tutti_make_unique_id(tutti_unique_id_t* id);

// -- groups -------------------------------------------------------------------------------------------------

// Of this rank; -1 on failure (see tutti_last_error). local: among the ranks of this node, in rank order.
int tutti_group_rank(tutti_group_t group);
int tutti_group_size(tutti_group_t group);
int tutti_group_local_rank(tutti_group_t group);
int tutti_group_local_size(tutti_group_t group);

// Closes the handle and sets it to NULL; NULL is ignored. The group ends with its last handle, its last work
// and the last handle of its streams. Every handle that a function below sets must be closed, in any order.
void tutti_group_close(tutti_group_t* group);

// The members with the same colour, ordered by (key, rank). A negative colour: *part is NULL, no error.
// Collective.
tutti_status_t tutti_group_split(tutti_group_t group, int colour, int key, tutti_group_t* part);
// The members on this rank's node, in rank order. No communication.
tutti_status_t tutti_group_split_by_node(tutti_group_t group, tutti_group_t* part);
// The listed ranks of this group, in that order; called by them alone, with equal lists. No communication.
// Groups with equal lists are told apart by the order in which a rank makes them, which must be the same on
// all members.
tutti_status_t tutti_group_create(tutti_group_t group, const int* ranks, size_t rank_count,
                                  tutti_group_t* part);
// The same for programs whose ranks may make groups in different orders. Each group has its own tag, equal on
// its members. NULL and "" are no tag.
tutti_status_t tutti_group_create_tagged(tutti_group_t group, const int* ranks, size_t rank_count,
                                         const char* tag, tutti_group_t* part);
// A stream of this group: the same members with an independent sequence of operations. Operations of
// different streams have no order between them. So several threads of each rank can use one group, each with
// its own stream. An operation that no other rank matches delays no other stream. Number 0 is the group
// itself; there are as many streams as the program asks for. The same number is the same stream on all ranks
// and in all handles, as long as the group lives. Streams fail together. Any thread, at any time, also while
// others use the group. No communication. A stream costs memory, and time at its first calls, as another
// group of these members does.
tutti_status_t tutti_group_stream(tutti_group_t group, int number, tutti_group_t* stream);
// Closes a stream (1 or more) in all handles. Its memory is reused once all members have closed it. Each
// member closes the stream after its last operation on it. Operations under way, and later ones on remaining
// handles, return TUTTI_ABORTED. Afterwards the number names a new stream. No communication. No other call on
// the stream may run at the same time. Its handles must still be closed.
tutti_status_t tutti_group_close_stream(tutti_group_t group, int number);
// Fails the group on all ranks; every pending and later operation returns TUTTI_ABORTED with this text.
tutti_status_t tutti_group_abort(tutti_group_t group, const char* why);
// Why the group has failed, as every operation returns it, with its text; OK while it works. Never waits.
tutti_status_t tutti_group_failure(tutti_group_t group);
// Sets *successor to the group that goes on without its dead members and those of `left_out` (NULL with a count of 0:
// none): the survivors in their old order, with ranks from 0. Collective over the survivors, which give equal lists.
// Works in a failed group and in a sound one, any number of times, and also if rank 0 died. The old group ends here,
// but its handle must still be closed. Groups and streams made of it do not follow. Buffers of operations that failed
// have undefined contents on every rank. Blocks; one thread of a rank at a time. Errors: TIMEOUT naming members that
// are alive and have not called it; REFUSED if the others left this rank out or took it for dead.
tutti_status_t tutti_group_shrink(tutti_group_t group, const int* left_out, size_t left_out_count,
                                  tutti_group_t* successor);
// Sets *successor to the group with processes that have called tutti_join() with an invitation of it; they get the
// highest ranks. With a new_size, waits until there are so many members; 0: admits those that wait. Members that have
// died are left out. Otherwise as tutti_group_shrink. Errors besides: TIMEOUT if too few processes want to join.
tutti_status_t tutti_group_grow(tutti_group_t group, int new_size, tutti_group_t* successor);
// Both at once: the survivors without `left_out`, and processes that join, up to new_size members.
tutti_status_t tutti_group_reconfigure(tutti_group_t group, int new_size, const int* left_out,
                                       size_t left_out_count, tutti_group_t* successor);
// Copies the numbers of the members, in rank order, that they keep in all successors: their ranks in the first group, and
// higher ones for processes that joined. So a successor tells who is missing. No communication. Errors: INVALID_ARGUMENT
// if id_count is below tutti_group_size(); nothing is copied then.
tutti_status_t tutti_group_member_ids(tutti_group_t group, int* ids, size_t id_count);
// Copies up to text_bytes of the text with which a process can join this group, ended by 0. It holds the secret of the
// job: whoever has it can join, while one of the first 8 members lives. *needed_bytes (if not NULL) is its length with
// the 0. Errors: INVALID_ARGUMENT if it does not fit; nothing is copied then.
tutti_status_t tutti_group_invitation(tutti_group_t group, char* text, size_t text_bytes,
                                      size_t* needed_bytes);
// Joins a running group by its invitation, and sets *successor to that group's successor, once its members have called
// tutti_group_grow or tutti_group_reconfigure. Waits up to timeout_ms; 0: TUTTI_TIMEOUT. Errors: INVALID_ARGUMENT for
// another text, or for a setting that differs; TIMEOUT if the members do not admit this process; REFUSED.
tutti_status_t tutti_join(const char* invitation, int64_t timeout_ms, tutti_group_t* successor);

// -- collectives, blocking ----------------------------------------------------------------------------------
// options may be NULL.

// input: count elements; output: count elements, equal on all ranks; in place: output == input.
tutti_status_t tutti_allreduce(const void* input, void* output, size_t count, tutti_dtype_t dtype,
                               tutti_op_t op, tutti_group_t group, const tutti_call_options_t* options);
// buffer: count elements, the root's on all ranks afterwards.
tutti_status_t tutti_broadcast(void* buffer, size_t count, tutti_dtype_t dtype, int root, tutti_group_t group,
                               const tutti_call_options_t* options);
// output: count elements, at the root only (ignored elsewhere); in place at the root: output == input.
tutti_status_t tutti_reduce(const void* input, void* output, size_t count, tutti_dtype_t dtype, tutti_op_t op,
                            int root, tutti_group_t group, const tutti_call_options_t* options);
// input: count elements; output: size * count, in rank order; in place: input == output + rank * count.
tutti_status_t tutti_allgather(const void* input, void* output, size_t count, tutti_dtype_t dtype,
                               tutti_group_t group, const tutti_call_options_t* options);
// counts, displacements: one number per rank, in elements; block r of output has counts[r] elements and
// starts at displacements[r] (NULL: one after the other). All ranks pass all counts. In place: input is this
// rank's block of output.
tutti_status_t tutti_allgatherv(const void* input, void* output, const uint64_t* counts,
                                const uint64_t* displacements, tutti_dtype_t dtype, tutti_group_t group,
                                const tutti_call_options_t* options);
// input: size * count elements; output: count, this rank's block of the result. In place: output == input +
// rank * count; the other blocks of input stay as they are.
tutti_status_t tutti_reduce_scatter(const void* input, void* output, size_t count, tutti_dtype_t dtype,
                                    tutti_op_t op, tutti_group_t group, const tutti_call_options_t* options);
// Block r of input has counts[r] elements; output: counts[rank]. In place: output is this rank's block of
// input, and the other blocks stay as they are.
tutti_status_t tutti_reduce_scatterv(const void* input, void* output, const uint64_t* counts,
                                     tutti_dtype_t dtype, tutti_op_t op, tutti_group_t group,
                                     const tutti_call_options_t* options);
// input, output: size * count elements; block d of input goes to rank d; in place: output == input.
tutti_status_t tutti_alltoall(const void* input, void* output, size_t count, tutti_dtype_t dtype,
                              tutti_group_t group, const tutti_call_options_t* options);
// Each side has its own counts and displacements. A rank must expect the count that the other sends to it. In
// place: output == input, and both sides have equal counts and displacements.
tutti_status_t tutti_alltoallv(const void* input, const uint64_t* input_counts,
                               const uint64_t* input_displacements, void* output,
                               const uint64_t* output_counts, const uint64_t* output_displacements,
                               tutti_dtype_t dtype, tutti_group_t group, const tutti_call_options_t* options);
// input: count elements; output at the root: size * count; in place at the root: input == output + rank *
// count.
tutti_status_t tutti_gather(const void* input, void* output, size_t count, tutti_dtype_t dtype, int root,
                            tutti_group_t group, const tutti_call_options_t* options);
tutti_status_t tutti_gatherv(const void* input, void* output, const uint64_t* counts,
                             const uint64_t* displacements, tutti_dtype_t dtype, int root,
                             tutti_group_t group, const tutti_call_options_t* options);
// The same where only the root knows all counts. This rank contributes own_count elements, which is
// counts[rank] at the root. Other ranks ignore output, counts and displacements. All ranks call it in this
// form. The only algorithm is "linear".
tutti_status_t tutti_gatherv_root(const void* input, size_t own_count, void* output, const uint64_t* counts,
                                  const uint64_t* displacements, tutti_dtype_t dtype, int root,
                                  tutti_group_t group, const tutti_call_options_t* options);
// input at the root: size * count elements; output: count; in place at the root: output == input + rank *
// count. The root's input stays as it is.
tutti_status_t tutti_scatter(const void* input, void* output, size_t count, tutti_dtype_t dtype, int root,
                             tutti_group_t group, const tutti_call_options_t* options);
tutti_status_t tutti_scatterv(const void* input, void* output, const uint64_t* counts,
                              const uint64_t* displacements, tutti_dtype_t dtype, int root,
                              tutti_group_t group, const tutti_call_options_t* options);
// The same where only the root knows all counts; see tutti_gatherv_root.
tutti_status_t tutti_scatterv_root(const void* input, const uint64_t* counts, const uint64_t* displacements,
                                   void* output, size_t own_count, tutti_dtype_t dtype, int root,
                                   tutti_group_t group, const tutti_call_options_t* options);
// Returns once every rank has called it.
tutti_status_t tutti_barrier(tutti_group_t group, const tutti_call_options_t* options);
// output: count elements, the combination of ranks 0..rank in rank order; in place: output == input.
tutti_status_t tutti_scan(const void* input, void* output, size_t count, tutti_dtype_t dtype, tutti_op_t op,
                          tutti_group_t group, const tutti_call_options_t* options);
// The same of ranks 0..rank-1; rank 0's output is untouched.
tutti_status_t tutti_exscan(const void* input, void* output, size_t count, tutti_dtype_t dtype, tutti_op_t op,
                            tutti_group_t group, const tutti_call_options_t* options);
// Messages of one sender, receiver and tag (0 or more) match in submission order. Messages of other tags may
// overtake them. Count and dtype must be equal on both sides. A receive from TUTTI_ANY_SOURCE takes the first
// message of its tag; *source becomes the rank that sent it (NULL: not wanted). A send with a tag other than
// 0 may wait until a receive takes it. A complete send means that its buffer may be reused, not that the
// message was received. The message is delivered if the sender ends in an orderly way: it closes its last
// handle of the group, main returns, or exit() is called. After _exit(), a signal or a crash it may be lost.
tutti_status_t tutti_send(const void* buffer, size_t count, tutti_dtype_t dtype, int peer, int tag,
                          tutti_group_t group, const tutti_call_options_t* options);
tutti_status_t tutti_recv(void* buffer, size_t count, tutti_dtype_t dtype, int peer, int tag,
                          tutti_group_t group, const tutti_call_options_t* options, int* source);

// -- the same, submitted ------------------------------------------------------------------------------------
// Each sets *work, for tutti_wait and its like; any number may be under way.

tutti_status_t tutti_iallreduce(const void* input, void* output, size_t count, tutti_dtype_t dtype,
                                tutti_op_t op, tutti_group_t group, const tutti_call_options_t* options,
                                tutti_work_t* work);
tutti_status_t tutti_ibroadcast(void* buffer, size_t count, tutti_dtype_t dtype, int root,
                                tutti_group_t group, const tutti_call_options_t* options, tutti_work_t* work);
tutti_status_t tutti_ireduce(const void* input, void* output, size_t count, tutti_dtype_t dtype,
                             tutti_op_t op, int root, tutti_group_t group,
                             const tutti_call_options_t* options, tutti_work_t* work);
tutti_status_t tutti_iallgather(const void* input, void* output, size_t count, tutti_dtype_t dtype,
                                tutti_group_t group, const tutti_call_options_t* options, tutti_work_t* work);
tutti_status_t tutti_iallgatherv(const void* input, void* output, const uint64_t* counts,
                                 const uint64_t* displacements, tutti_dtype_t dtype, tutti_group_t group,
                                 const tutti_call_options_t* options, tutti_work_t* work);
tutti_status_t tutti_ireduce_scatter(const void* input, void* output, size_t count, tutti_dtype_t dtype,
                                     tutti_op_t op, tutti_group_t group, const tutti_call_options_t* options,
                                     tutti_work_t* work);
tutti_status_t tutti_ireduce_scatterv(const void* input, void* output, const uint64_t* counts,
                                      tutti_dtype_t dtype, tutti_op_t op, tutti_group_t group,
                                      const tutti_call_options_t* options, tutti_work_t* work);
tutti_status_t tutti_ialltoall(const void* input, void* output, size_t count, tutti_dtype_t dtype,
                               tutti_group_t group, const tutti_call_options_t* options, tutti_work_t* work);
tutti_status_t tutti_ialltoallv(const void* input, const uint64_t* input_counts,
                                const uint64_t* input_displacements, void* output,
                                const uint64_t* output_counts, const uint64_t* output_displacements,
                                tutti_dtype_t dtype, tutti_group_t group, const tutti_call_options_t* options,
                                tutti_work_t* work);
tutti_status_t tutti_igather(const void* input, void* output, size_t count, tutti_dtype_t dtype, int root,
                             tutti_group_t group, const tutti_call_options_t* options, tutti_work_t* work);
tutti_status_t tutti_igatherv(const void* input, void* output, const uint64_t* counts,
                              const uint64_t* displacements, tutti_dtype_t dtype, int root,
                              tutti_group_t group, const tutti_call_options_t* options, tutti_work_t* work);
tutti_status_t tutti_iscatter(const void* input, void* output, size_t count, tutti_dtype_t dtype, int root,
                              tutti_group_t group, const tutti_call_options_t* options, tutti_work_t* work);
tutti_status_t tutti_iscatterv(const void* input, void* output, const uint64_t* counts,
                               const uint64_t* displacements, tutti_dtype_t dtype, int root,
                               tutti_group_t group, const tutti_call_options_t* options, tutti_work_t* work);
tutti_status_t tutti_igatherv_root(const void* input, size_t own_count, void* output, const uint64_t* counts,
                                   const uint64_t* displacements, tutti_dtype_t dtype, int root,
                                   tutti_group_t group, const tutti_call_options_t* options,
                                   tutti_work_t* work);
tutti_status_t tutti_iscatterv_root(const void* input, const uint64_t* counts, const uint64_t* displacements,
                                    void* output, size_t own_count, tutti_dtype_t dtype, int root,
                                    tutti_group_t group, const tutti_call_options_t* options,
                                    tutti_work_t* work);
tutti_status_t tutti_ibarrier(tutti_group_t group, const tutti_call_options_t* options, tutti_work_t* work);
tutti_status_t tutti_iscan(const void* input, void* output, size_t count, tutti_dtype_t dtype, tutti_op_t op,
                           tutti_group_t group, const tutti_call_options_t* options, tutti_work_t* work);
tutti_status_t tutti_iexscan(const void* input, void* output, size_t count, tutti_dtype_t dtype,
                             tutti_op_t op, tutti_group_t group, const tutti_call_options_t* options,
                             tutti_work_t* work);
tutti_status_t tutti_isend(const void* buffer, size_t count, tutti_dtype_t dtype, int peer, int tag,
                           tutti_group_t group, const tutti_call_options_t* options, tutti_work_t* work);
// *source is set by the function that completes the work, and only on success.
tutti_status_t tutti_irecv(void* buffer, size_t count, tutti_dtype_t dtype, int peer, int tag,
                           tutti_group_t group, const tutti_call_options_t* options, int* source,
                           tutti_work_t* work);

// -- operations under way -----------------------------------------------------------------------------------
// Any one thread waits for a work. Once the work is complete, also by failure (which the function returns),
// it is freed and *work is NULL. Where waiting was refused, it stays. A NULL work is complete.

// Blocks until complete. After the group's deadline the operation and the group fail with TIMEOUT; the
// message names the missing ranks.
tutti_status_t tutti_wait(tutti_work_t* work);
// The same with an earlier deadline: limit_ms from now.
tutti_status_t tutti_wait_within(tutti_work_t* work, int64_t limit_ms);
// Writes to `text` which ranks the operation waits for, and what is known of them. The text is cut to
// text_bytes with its terminating zero; "" once the operation is complete. Queries the other ranks, for at
// most a third of a second. Not while a thread waits for the work.
tutti_status_t tutti_work_missing(tutti_work_t work, char* text, size_t text_bytes);
// As tutti_wait, for at most at_most_ms (0 or less: one poll). *is_complete is 0 if the operation goes on.
tutti_status_t tutti_wait_for(tutti_work_t* work, int64_t at_most_ms, int* is_complete);
// Makes progress; never blocks for long.
tutti_status_t tutti_test(tutti_work_t* work, int* is_complete);
// As tutti_wait, but calls `is_interrupted` some ten times a second. Once that returns anything but 0,
// *is_complete is 0 and the operation goes on. For languages that handle signals between calls only.
tutti_status_t tutti_wait_unless(tutti_work_t* work, int (*is_interrupted)(void* context), void* context,
                                 int* is_complete);
// Waits for all of them, then returns the first failure in the order of the list; all become NULL. There is
// no "grouped start", because submitted operations never wait for each other to be posted. Messages between
// any ranks and of any length may be submitted in any order and waited for together.
tutti_status_t tutti_wait_all(tutti_work_t* works, size_t work_count);
// Calls `callback` with `context` once the operation is complete. It runs on the thread that completes the
// operation: a progress thread, or one that waits for something. If the operation is complete already, it
// runs here and now. It may submit operations, and test complete ones (of a receive, to learn the source).
// Waiting in it for an incomplete one fails with INVALID_ARGUMENT. Any number of callbacks; they run in the
// order in which they were given. The work must still be waited for or freed, which may happen at once or in
// the callback. With TUTTI_PROGRESS_THREADS=0 callbacks run while some thread waits or tests.
tutti_status_t tutti_on_complete(tutti_work_t work, tutti_complete_function_t callback, void* context);
// Frees the handle and sets it to NULL; neither waits nor cancels.
void tutti_work_free(tutti_work_t* work);

// A queue hands completions to a thread of the program's choice. Any thread may add; one thread at a time
// polls.
tutti_status_t tutti_queue_make(tutti_queue_t* queue);
// Takes the work (*work becomes NULL); `context` comes back with its completion.
tutti_status_t tutti_queue_add(tutti_queue_t queue, tutti_work_t* work, void* context);
// The next completion, in the order of completion; *is_there is 0 if there is none. Makes progress; never
// waits. Returns OK also for an operation that failed: completion->status has the outcome.
tutti_status_t tutti_queue_poll(tutti_queue_t queue, tutti_completion_t* completion, int* is_there);
// Frees the queue and sets it to NULL; NULL is ignored. Works still in it go on, and their completions are
// dropped.
void tutti_queue_free(tutti_queue_t* queue);

// -- plans --------------------------------------------------------------------------------------------------
// A collective call that is described once and started many times. The buffer of an allreduce may have
// partitions, which become ready, and complete, one by one. docs/plans.md has the rest. Any thread may mark
// partitions as ready and test them, at any time; one thread at a time waits for a partition.

// Sets *plan. partitions: elements of each, call->count together; partition_count 0: the call has none. Only
// TUTTI_ALLREDUCE has partitions. All ranks make equal plans of a group in the same order. No communication.
tutti_status_t tutti_plan_make(const tutti_collective_call_t* call, const uint64_t* partitions,
                               size_t partition_count, tutti_group_t group,
                               const tutti_call_options_t* options, tutti_plan_t* plan);
// Begins a run. A plan without partitions communicates now; the others once partitions are ready. The buffers
// belong to a partition from tutti_plan_ready on, until it is complete. INVALID_ARGUMENT while a run is under
// way.
tutti_status_t tutti_plan_start(tutti_plan_t plan);
// Partitions first to first + count - 1 may be read and written from now on. INVALID_ARGUMENT before a start,
// for partitions that do not exist, and for those that are ready already; then no partition is marked.
tutti_status_t tutti_plan_ready(tutti_plan_t plan, size_t first, size_t count);
// *is_complete is 1 once the run, or each of these partitions, is complete, also by failure. Makes progress;
// never blocks for long. A plan that was not started is complete.
tutti_status_t tutti_plan_test(tutti_plan_t plan, int* is_complete);
tutti_status_t tutti_plan_test_partitions(tutti_plan_t plan, size_t first, size_t count, int* is_complete);
// Blocks until complete. Returns the failure of the plan; TIMEOUT names the partitions that are not ready on
// this rank when the group's deadline passes.
tutti_status_t tutti_plan_wait(tutti_plan_t plan);
tutti_status_t tutti_plan_wait_partitions(tutti_plan_t plan, size_t first, size_t count);
// Ends the plan and sets it to NULL; NULL is ignored. A run under way then fails with ABORTED on all ranks, and
// the buffers are free. No other thread may use the plan at the same time.
void tutti_plan_free(tutti_plan_t* plan);

// -- named tensors ------------------------------------------------------------------------------------------
// Collectives whose order the ranks need not agree on: each tensor is communicated once all ranks have
// submitted it under its name, and small ones share an operation. docs/tensors.md has the rest. Any thread, at
// any time, but for closing.

// The queue of a group. Every rank of the group makes one, at any time; ranks that make several of one group
// make them in the same order. It keeps the group open.
tutti_status_t tutti_tensor_queue_create(tutti_group_t group, tutti_tensor_queue_t* queue);
// Sets *work, which is complete when the tensor is; any number may be under way. Returns what is wrong with the
// arguments, also INVALID_ARGUMENT for a name that is under way. Where ranks disagree, waiting returns MISMATCH
// on every rank that submitted the tensor, with who submitted what; other tensors go on.
tutti_status_t tutti_tensor_queue_submit(tutti_tensor_queue_t queue, const char* name,
                                         const tutti_tensor_call_t* call, tutti_work_t* work);
// This rank has no more tensors: others' allreduces and barriers go on without it, as if it gave zeros. *work is
// complete when all ranks have joined; *last_rank (NULL: not wanted) becomes the one that joined last, set by the
// function that completes the work, and only on success.
tutti_status_t tutti_tensor_queue_join(tutti_tensor_queue_t queue, int* last_rank, tutti_work_t* work);
// Rank 0 writes the phases of each tensor to this file from now on, as TUTTI_TIMELINE does from the start; any
// timeline before ends. mark_cycles: it shows when negotiations begin. Other ranks' calls do nothing. Waits
// until all ranks know.
tutti_status_t tutti_tensor_queue_start_timeline(tutti_tensor_queue_t queue, const char* path,
                                                 int mark_cycles);
tutti_status_t tutti_tensor_queue_stop_timeline(tutti_tensor_queue_t queue);  // completes the file
// Ends the queue on all ranks, frees it and sets it to NULL; NULL is ignored. Operations under way return
// TUTTI_ABORTED. Waits for those that use this rank's buffers, unless in a callback. No other thread may use the
// queue at the same time.
void tutti_tensor_queue_close(tutti_tensor_queue_t* queue);

// -- choice, memory -----------------------------------------------------------------------------------------

// The algorithm that a submitted call with these arguments would use, and the reason: "two_shot: default item
// 2". "one_shot (shared buffers: two_shot): ..." names a second algorithm for the case that all ranks'
// buffers are shared. The text is cut to text_bytes with its terminating zero. op: of collectives that
// reduce.
tutti_status_t tutti_explain_algorithm(tutti_collective_t collective, size_t count, tutti_dtype_t dtype,
                                       tutti_op_t op, tutti_group_t group,
                                       const tutti_call_options_t* options, char* text, size_t text_bytes);

// Memory that the other ranks of this node can map, so that collectives on it copy less. Any thread; 64-byte
// aligned, zeroed. The memory belongs to the group's world; free it before that world ends.
tutti_status_t tutti_alloc(size_t bytes, tutti_group_t group, void** memory);
tutti_status_t tutti_free(void* memory, tutti_group_t group);

// Tells NCCL that many calls of this group (not of its streams) will use this GPU memory. Network adapters
// and switches may then access it directly (NCCL 2.19 or later). The result of no call changes. Where NCCL
// carries none of the group's calls, nothing happens. Before the group's first call on a GPU the request is
// kept until then. Of this rank alone; no communication. Errors: INVALID_ARGUMENT for host memory or for
// another GPU than the group's; NCCL's own errors.
tutti_status_t tutti_register_buffer(const void* memory, size_t bytes, tutti_group_t group,
                                     tutti_buffer_t* buffer);
// Ends the registration, unless the group has ended, and sets *buffer to NULL; NULL is ignored. Call it from
// a thread that may use the group, before the memory is freed and while no call on it is under way.
void tutti_deregister_buffer(tutti_buffer_t* buffer);

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop

#endif
