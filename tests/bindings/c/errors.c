// Errors of the C interface for mistakes and failures, which change nothing else. One of two ranks of a job;
// knows the C interface only.
#include <pthread.h>
#include <stdatomic.h>

#include "check.h"

static tutti_group_t world = NULL;
static int rank = 0;

static void null_handles(void) {
  static const uint64_t counts[1] = {1};
  int x = 1, y = 0, is_complete = 0;
  tutti_work_t work = NULL;
  tutti_group_t part = NULL;
  tutti_buffer_t buffer = NULL;
  void* memory = NULL;
  char text[8];
  CHECK(tutti_group_rank(NULL) == -1 && strstr(tutti_last_error(), "rank: this CommGroup is closed") != NULL);
  CHECK(tutti_group_size(NULL) == -1 && tutti_group_local_rank(NULL) == -1);
  CHECK(tutti_group_local_size(NULL) == -1);
#define CHECK_CLOSED(call) CHECK_FAILS(call, TUTTI_INVALID_ARGUMENT, "this CommGroup is closed")
  CHECK_CLOSED(tutti_allreduce(&x, &y, 1, TUTTI_I32, TUTTI_SUM, NULL, NULL));
  CHECK_CLOSED(tutti_allgatherv(&x, &y, counts, counts, TUTTI_I32, NULL, NULL));
  CHECK_CLOSED(tutti_barrier(NULL, NULL));
  CHECK_CLOSED(tutti_send(&x, 1, TUTTI_I32, 0, 0, NULL, NULL));
  CHECK_CLOSED(tutti_iallreduce(&x, &y, 1, TUTTI_I32, TUTTI_SUM, NULL, NULL, &work));
  CHECK_CLOSED(tutti_ibarrier(NULL, NULL, &work));
  CHECK_CLOSED(tutti_group_split(NULL, 0, 0, &part));
  CHECK_CLOSED(tutti_group_split_by_node(NULL, &part));
  CHECK_CLOSED(tutti_group_create(NULL, NULL, 0, &part));
  CHECK_CLOSED(tutti_group_create_tagged(NULL, NULL, 0, "tag", &part));
  CHECK_CLOSED(tutti_group_stream(NULL, 0, &part));
  CHECK_CLOSED(tutti_group_abort(NULL, "never"));
  CHECK_CLOSED(tutti_group_shrink(NULL, NULL, 0, &part));
  CHECK_CLOSED(tutti_group_grow(NULL, 0, &part));
  CHECK_CLOSED(tutti_group_reconfigure(NULL, 0, NULL, 0, &part));
  CHECK_CLOSED(tutti_group_member_ids(NULL, &x, 1));
  CHECK_CLOSED(tutti_group_invitation(NULL, text, sizeof text, NULL));
  CHECK_CLOSED(tutti_alloc(8, NULL, &memory));
  CHECK_CLOSED(tutti_free(&x, NULL));
  CHECK_CLOSED(tutti_register_buffer(&x, sizeof x, NULL, &buffer));
  CHECK_CLOSED(tutti_explain_algorithm(TUTTI_REDUCE, 1, TUTTI_I32, TUTTI_SUM, NULL, NULL, text, sizeof text));
  CHECK(work == NULL && part == NULL && memory == NULL && buffer == NULL && y == 0);
  CHECK(tutti_last_error_peer() == -1);

#define CHECK_NOWHERE(call) CHECK_FAILS(call, TUTTI_INVALID_ARGUMENT, "nowhere to put the result")
  CHECK_NOWHERE(tutti_init(NULL, NULL));
  CHECK_NOWHERE(tutti_make_unique_id(NULL));
  CHECK_NOWHERE(tutti_group_split(world, 0, 0, NULL));
  CHECK_NOWHERE(tutti_group_shrink(world, NULL, 0, NULL));
  CHECK_NOWHERE(tutti_iallreduce(&x, &y, 1, TUTTI_I32, TUTTI_SUM, world, NULL, NULL));
  CHECK_NOWHERE(tutti_alloc(8, world, NULL));
  CHECK_NOWHERE(tutti_register_buffer(&x, sizeof x, world, NULL));
  CHECK_NOWHERE(tutti_wait(NULL));
  CHECK_NOWHERE(tutti_test(&work, NULL));
  CHECK_NOWHERE(tutti_wait_for(NULL, 0, &is_complete));
  CHECK_NOWHERE(tutti_wait_within(NULL, 0));
  CHECK_NOWHERE(tutti_work_missing(NULL, NULL, 0));
  CHECK_NOWHERE(tutti_wait_all(NULL, 1));
  CHECK_NOWHERE(tutti_group_stream(world, 1, NULL));
  CHECK_NOWHERE(tutti_explain_algorithm(TUTTI_REDUCE, 1, TUTTI_I32, TUTTI_SUM, world, NULL, text, 0));

  // NULL is a complete operation and no group.
  CHECK_OK(tutti_wait(&work));
  CHECK_OK(tutti_test(&work, &is_complete));
  CHECK(is_complete == 1);
  CHECK_OK(tutti_wait_all(&work, 1));
  CHECK_OK(tutti_wait_all(NULL, 0));
  tutti_work_free(&work);
  tutti_work_free(NULL);
  tutti_group_close(&part);
  tutti_group_close(NULL);
}

static void wrong_arguments(void) {
  static const uint64_t counts[2] = {1, 1};
  int x[2] = {1, 2}, y[2] = {0, 0};
  double d = 1;
  char text[8];
  tutti_group_t part = NULL;
  const int stranger[1] = {7};
#define CHECK_INVALID(call, text) CHECK_FAILS(call, TUTTI_INVALID_ARGUMENT, text)
  CHECK_INVALID(tutti_allreduce(x, y, 1, (tutti_dtype_t)99, TUTTI_SUM, world, NULL),
                "allreduce: dtype: 99 is no dtype");
  // One that a byte would take for another.
  CHECK_INVALID(tutti_broadcast(x, 1, (tutti_dtype_t)256, 0, world, NULL), "broadcast: dtype: 256");
  CHECK_INVALID(tutti_send(x, 1, (tutti_dtype_t)-1, 1 - rank, 0, world, NULL), "send: dtype: -1");
  CHECK_INVALID(tutti_allreduce(x, y, 1, TUTTI_I32, (tutti_op_t)15, world, NULL),
                "allreduce: op: 15 is no op");
  CHECK_INVALID(tutti_explain_algorithm((tutti_collective_t)12, 1, TUTTI_I32, TUTTI_SUM, world, NULL, text,
                                        sizeof text),
                "collective: 12");
  CHECK_INVALID(tutti_allreduce(&d, &d, 1, TUTTI_F64, TUTTI_BAND, world, NULL), "allreduce: op");
  CHECK_INVALID(tutti_allreduce(NULL, y, 1, TUTTI_I32, TUTTI_SUM, world, NULL), "input: a null pointer");
  CHECK_INVALID(tutti_broadcast(x, 1, TUTTI_I32, 2, world, NULL), "root: 2 is no rank");
  CHECK_INVALID(tutti_broadcast(x, 1, TUTTI_I32, -1, world, NULL), "root: -1 is no rank");
  CHECK_INVALID(tutti_recv(x, 1, TUTTI_I32, rank, 0, world, NULL, NULL), "is this rank itself");
  CHECK_INVALID(tutti_recv(x, 1, TUTTI_I32, 1 - rank, -1, world, NULL, NULL), "recv: tag: -1 is negative");
  CHECK_INVALID(tutti_send(x, 1, TUTTI_I32, TUTTI_ANY_SOURCE, 1, world, NULL), "send: peer: -1 is no rank");
  CHECK_INVALID(tutti_allreduce(x, (char*)x + 1, 1, TUTTI_I32, TUTTI_SUM, world, NULL),
                "shares elements with input");
  CHECK_INVALID(tutti_allgatherv(x, y, NULL, NULL, TUTTI_I32, world, NULL), "counts: 0 numbers for 2 ranks");
  CHECK_INVALID(tutti_alltoallv(x, counts, NULL, y, NULL, NULL, TUTTI_I32, world, NULL), "output_counts");
  CHECK_INVALID(tutti_allreduce(x, y, SIZE_MAX, TUTTI_I32, TUTTI_SUM, world, NULL), "more bytes");
  CHECK_INVALID(tutti_group_create(world, stranger, 1, &part), "7 is no rank");
  CHECK_INVALID(tutti_group_create(world, NULL, 1, &part), "ranks: a null pointer");
  CHECK_INVALID(tutti_group_shrink(world, stranger, 1, &part), "7 is no rank");
  CHECK_INVALID(tutti_group_shrink(world, NULL, 1, &part), "left_out: a null pointer");
  CHECK_INVALID(tutti_group_reconfigure(world, 0, NULL, 1, &part), "left_out: a null pointer");
  CHECK_INVALID(tutti_group_grow(world, -1, &part), "grow: new_size: -1");
  CHECK_INVALID(tutti_join("elsewhere", 0, &part), "not a text that");
  CHECK_INVALID(tutti_join(NULL, 0, &part), "not a text that");
  CHECK_INVALID(tutti_free(x, world), "not from tutti::alloc");
  tutti_buffer_t buffer = NULL;
  CHECK_INVALID(tutti_register_buffer(x, sizeof x, world, &buffer), "expected memory of a GPU");
  tutti_deregister_buffer(&buffer);
  tutti_deregister_buffer(NULL);
  CHECK_INVALID(tutti_group_stream(world, -1, &part), "stream: number: -1; expected 0 or more");
  CHECK_INVALID(tutti_on_complete(NULL, NULL, NULL), "on_complete: callback: a null pointer");
  CHECK(part == NULL && y[0] == 0);
  CHECK(tutti_dtype_bytes(TUTTI_BF16) == 2 && tutti_dtype_bytes((tutti_dtype_t)24) == 0);
  CHECK(strcmp(tutti_status_name(TUTTI_PEER_FAILED), "peer failed") == 0);
  CHECK(strcmp(tutti_status_name((tutti_status_t)10), "unknown status") == 0);
}

static void options(void) {
  int x = 1, y = 0;
  tutti_call_options_t call = TUTTI_CALL_OPTIONS;
  CHECK_INVALID(tutti_allreduce(&x, &y, 1, TUTTI_I32, TUTTI_PREMUL_SUM, world, NULL), "needs a factor");
  CHECK_INVALID(tutti_allreduce(&x, &y, 1, TUTTI_I32, TUTTI_USER, world, NULL), "needs a function");
  CHECK_INVALID(tutti_allreduce(&x, &y, 1, TUTTI_I32, TUTTI_USER, world, &call), "needs a function");
  call.algorithm = "no_such";
  CHECK_INVALID(tutti_allreduce(&x, &y, 1, TUTTI_I32, TUTTI_SUM, world, &call), "no_such");
  CHECK_FAILS(tutti_send(&x, 1, TUTTI_I32, 1 - rank, 0, world, &call), TUTTI_UNSUPPORTED, "algorithm");
  call.algorithm = NULL;
  call.memory = TUTTI_MEMORY_DEVICE;
  // The buffers are the host's, if there is CUDA to ask.
  const tutti_status_t status = tutti_allreduce(&x, &y, 1, TUTTI_I32, TUTTI_SUM, world, &call);
  CHECK(status == TUTTI_INVALID_ARGUMENT || status == TUTTI_UNSUPPORTED);
  CHECK(strstr(tutti_last_error(), "memory: the call is said to be on a GPU") != NULL);
  call.memory = (tutti_memory_t)3;
  CHECK_INVALID(tutti_allreduce(&x, &y, 1, TUTTI_I32, TUTTI_SUM, world, &call), "3 is no memory");
  call.memory = TUTTI_MEMORY_DETECT;
  call.struct_bytes = 8;
  CHECK_INVALID(tutti_barrier(world, &call), "barrier: options: struct_bytes is 8");

  // A program that was built against a later version, with one member more.
  struct {
    tutti_call_options_t known;
    size_t later;
  } newer = {TUTTI_CALL_OPTIONS, 0};
  newer.known.struct_bytes = sizeof newer;
  CHECK_OK(tutti_allreduce(&x, &y, 1, TUTTI_I32, TUTTI_SUM, world, &newer.known));
  CHECK(y == 2);
  newer.later = 1;
  CHECK_FAILS(tutti_barrier(world, &newer.known), TUTTI_UNSUPPORTED, "does not have");

  tutti_group_t other = NULL;
  tutti_init_options_t init = TUTTI_INIT_OPTIONS;
  init.size = 2;
  CHECK_INVALID(tutti_init(&init, &other), "rank and size go with");
  init.unique_id = "nonsense";
  CHECK_INVALID(tutti_init(&init, &other), "unique id");
  init.rank = 2;
  CHECK_INVALID(tutti_init(&init, &other), "rank=2");
  init.struct_bytes = 0;
  CHECK_INVALID(tutti_init(&init, &other), "init: options: struct_bytes is 0");
  CHECK(other == NULL);
}

static void* look_at_errors(void* text_of_main) {
  int is_right = tutti_last_error()[0] == '\0' && tutti_last_error_peer() == -1;
  is_right = is_right && tutti_group_rank(NULL) == -1 && tutti_last_error()[0] != '\0';
  return is_right && tutti_last_error() != (const char*)text_of_main ? text_of_main : NULL;
}

static void errors_of_threads(void) {
  pthread_t thread;
  void* result = NULL;
  CHECK_FAILS(tutti_barrier(NULL, NULL), TUTTI_INVALID_ARGUMENT, "barrier");
  if (pthread_create(&thread, NULL, look_at_errors, (void*)(uintptr_t)tutti_last_error()) != 0) return;
  pthread_join(thread, &result);
  CHECK(result != NULL);
  CHECK(strstr(tutti_last_error(), "barrier") != NULL);
}

static int stop(void* asked) {
  ++*(int*)asked;
  return 1;
}

// A receive that nothing has been sent for goes on when the time is over, or when somebody says so.
static void unfinished(void) {
  int x = 5, is_complete = 1, asked = 0;
  tutti_work_t work = NULL;
  if (rank == 0) {
    x = 0;
    CHECK_OK(tutti_irecv(&x, 1, TUTTI_I32, 1, 0, world, NULL, NULL, &work));
    CHECK_OK(tutti_test(&work, &is_complete));
    CHECK(!is_complete && work != NULL);
    CHECK_OK(tutti_wait_for(&work, 1, &is_complete));
    CHECK(!is_complete && work != NULL);
    CHECK_OK(tutti_wait_unless(&work, stop, &asked, &is_complete));
    CHECK(!is_complete && work != NULL && asked == 1);
    CHECK_INVALID(tutti_wait_unless(&work, NULL, NULL, &is_complete), "is_interrupted: a null pointer");
    CHECK(work != NULL);
    char missing[200] = "";
    CHECK_OK(tutti_work_missing(work, missing, sizeof missing));
    CHECK(strstr(missing, "from rank 1") != NULL);
    CHECK_OK(tutti_work_missing(work, missing, 5));
    CHECK(strlen(missing) == 4);
    CHECK_INVALID(tutti_work_missing(work, missing, 0), "text_bytes: 0");
    CHECK_OK(tutti_group_failure(world));
  }
  CHECK_OK(tutti_barrier(world, NULL));
  if (rank == 1) CHECK_OK(tutti_send(&x, 1, TUTTI_I32, 0, 0, world, NULL));
  // A century, and no more than that.
  CHECK_OK(tutti_wait_for(&work, INT64_MAX, &is_complete));
  CHECK(is_complete && work == NULL && x == 5);
  CHECK_OK(tutti_ibarrier(world, NULL, &work));
  CHECK_OK(tutti_wait_within(&work, INT64_MAX));
  CHECK(work == NULL);
}

// The arguments of a completion callback. `tried`: another one that it waits for, in vain.
struct ending {
  tutti_status_t status;
  int peer;
  char message[200];
  tutti_work_t* tried;
  atomic_int calls;
};

static void note(void* context, tutti_status_t status, const char* message, int peer) {
  struct ending* ending = context;
  ending->status = status;
  ending->peer = peer;
  strncpy(ending->message, message, sizeof ending->message - 1);
  if (ending->tried != NULL) CHECK_INVALID(tutti_wait(ending->tried), "callback must not wait");
  ++ending->calls;
}

// The streams of a group fail with it.
static void failures_are_told(void) {
  struct ending first = {0}, second = {0}, third = {0};
  int x = 0, y = 0;
  tutti_group_t part = NULL, stream = NULL;
  tutti_work_t works[3] = {NULL, NULL, NULL};
  CHECK_OK(tutti_group_split(world, 0, 0, &part));
  CHECK_OK(tutti_group_stream(part, 3, &stream));
  if (rank == 0) {
    CHECK_OK(tutti_irecv(&x, 1, TUTTI_I32, 1, 0, part, NULL, NULL, &works[0]));
    CHECK_OK(tutti_irecv(&y, 1, TUTTI_I32, 1, 0, stream, NULL, NULL, &works[2]));
    second.tried = &works[2];
    CHECK_OK(tutti_on_complete(works[0], note, &first));
    CHECK_OK(tutti_on_complete(works[2], note, &third));
    CHECK_OK(tutti_on_complete(NULL, note, &second));  // complete, so at once
    CHECK(second.calls == 1 && second.status == TUTTI_OK && second.message[0] == 0 && second.peer == -1);
    CHECK(works[2] != NULL);
    CHECK_OK(tutti_barrier(world, NULL));
    CHECK_FAILS(tutti_wait_all(works, 3), TUTTI_ABORTED, "rank 1 aborted the group: enough of it");
    CHECK(works[0] == NULL && works[2] == NULL);
    while (first.calls == 0 || third.calls == 0) sched_yield();  // a worker may be at it
    CHECK(first.calls == 1 && first.status == TUTTI_ABORTED && first.peer == 1);
    CHECK(strstr(first.message, "enough of it") != NULL);
    CHECK(third.calls == 1 && strcmp(third.message, first.message) == 0);
  } else {
    CHECK_OK(tutti_barrier(world, NULL));
    CHECK_OK(tutti_group_abort(part, "enough of it"));
  }
  CHECK_FAILS(tutti_barrier(stream, NULL), TUTTI_ABORTED, "enough of it");
  CHECK_FAILS(tutti_group_stream(part, 4, &stream), TUTTI_ABORTED, "enough of it");
  tutti_group_close(&part);
  CHECK(tutti_group_rank(stream) == rank);
  tutti_group_close(&stream);
}

// Nobody waits to join, so the members stay the same.
static void grows(tutti_group_t group) {
  static char text[65536];
  size_t needed = 0;
  tutti_group_t grown = NULL;
  CHECK_INVALID(tutti_group_invitation(group, text, 4, &needed), "text_bytes: 4; expected at least");
  CHECK(needed > 4 && needed < sizeof text);
  CHECK_OK(tutti_group_invitation(group, text, needed, NULL));
  CHECK(strlen(text) + 1 == needed);
  CHECK_OK(tutti_group_grow(group, 0, &grown));
  CHECK(tutti_group_size(grown) == tutti_group_size(group));
  CHECK_OK(tutti_barrier(grown, NULL));
  tutti_group_close(&grown);
}

// Rank 0 stays behind, and the others follow one of them.
static void survivors_go_on(void) {
  const int first = 0;
  int ids[64];
  int x = rank, y = -1, size = tutti_group_size(world);
  tutti_group_t part = NULL, rest = NULL;
  CHECK_OK(tutti_group_split(world, 0, 0, &part));
  if (rank != 0 || size == 1) {
    CHECK_OK(tutti_group_shrink(part, &first, size == 1 ? 0 : 1, &rest));
    CHECK(tutti_group_rank(rest) == (size == 1 ? 0 : rank - 1));
    CHECK(tutti_group_size(rest) == (size == 1 ? 1 : size - 1));
    for (int i = 0; i < tutti_group_size(rest); ++i) ids[i] = -1;
    CHECK_INVALID(tutti_group_member_ids(rest, ids, 0), "id_count: 0; expected at least");
    CHECK_NOWHERE(tutti_group_member_ids(rest, NULL, 64));
    CHECK_OK(tutti_group_member_ids(rest, ids, 64));
    for (int i = 0; i < tutti_group_size(rest); ++i) CHECK(ids[i] == (size == 1 ? 0 : i + 1));
    CHECK_OK(tutti_allreduce(&x, &y, 1, TUTTI_I32, TUTTI_SUM, rest, NULL));
    CHECK(y == size * (size - 1) / 2);
    CHECK_FAILS(tutti_barrier(part, NULL), TUTTI_ABORTED, "has a successor");
    grows(rest);
    tutti_group_close(&rest);
  }
  tutti_group_close(&part);
  CHECK_OK(tutti_barrier(world, NULL));
}

static void failures_of_groups(void) {
  int x[4] = {1, 2, 3, 4}, y[4];
  tutti_group_t part = NULL;
  tutti_work_t work = NULL;
  CHECK_OK(tutti_group_split(world, 0, 0, &part));
  CHECK_FAILS(tutti_allreduce(x, y, rank == 0 ? 2 : 3, TUTTI_I32, TUTTI_SUM, part, NULL), TUTTI_MISMATCH,
              "different calls");
  CHECK_FAILS(tutti_barrier(part, NULL), TUTTI_MISMATCH, "different calls");
  tutti_group_close(&part);

  CHECK_OK(tutti_group_split(world, 0, 0, &part));
  if (rank == 0) {
    CHECK_OK(tutti_irecv(x, 1, TUTTI_I32, 1, 0, part, NULL, NULL, &work));
    CHECK_OK(tutti_barrier(world, NULL));
  } else {
    CHECK_OK(tutti_barrier(world, NULL));
    CHECK_OK(tutti_group_abort(part, "enough"));
  }
  if (rank == 0) CHECK_FAILS(tutti_wait(&work), TUTTI_ABORTED, "rank 1 aborted the group: enough");
  CHECK(work == NULL);
  CHECK_FAILS(tutti_barrier(part, NULL), TUTTI_ABORTED, "enough");
  CHECK(tutti_last_error_peer() == 1);
  tutti_group_close(&part);
  CHECK_FAILS(tutti_barrier(part, NULL), TUTTI_INVALID_ARGUMENT, "closed");
  CHECK_OK(tutti_barrier(world, NULL));
}

// A world whose deadline is short, and a rank that does not come.
static void deadline(void) {
  tutti_init_options_t soon = TUTTI_INIT_OPTIONS;
  tutti_group_t impatient = NULL;
  soon.timeout_ms = 3000;
  CHECK_OK(tutti_init(&soon, &impatient));
  if (rank == 0) {
    CHECK_FAILS(tutti_barrier(impatient, NULL), TUTTI_TIMEOUT, "did not arrive");
    CHECK(tutti_last_error_peer() == 1);
  }
  CHECK_OK(tutti_barrier(world, NULL));
  CHECK_FAILS(tutti_barrier(impatient, NULL), TUTTI_TIMEOUT, "did not arrive");
  tutti_group_close(&impatient);
}

int main(void) {
  CHECK_OK(tutti_init(NULL, &world));
  rank = tutti_group_rank(world);
  if (failures > 0 || tutti_group_size(world) != 2) return 1;
  null_handles();
  wrong_arguments();
  options();
  errors_of_threads();
  unfinished();
  failures_are_told();
  failures_of_groups();
  survivors_go_on();
  deadline();
  CHECK_OK(tutti_barrier(world, NULL));
  tutti_group_close(&world);
  if (failures == 0) printf("fine\n");
  return failures == 0 ? 0 : 1;
}
