// Named tensors of the C interface against values worked out here. A rank of a job; knows the C interface only.
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>
#include <unistd.h>

#include "check.h"

enum { MAX_RANKS = 8 };

static tutti_group_t world = NULL;
static tutti_tensor_queue_t queue = NULL;
static int rank = 0;
static int size = 0;

static tutti_work_t submit(const char* name, const tutti_tensor_call_t* call) {
  tutti_work_t work = NULL;
  CHECK_OK(tutti_tensor_queue_submit(queue, name, call, &work));
  return work;
}

// In an order of each rank's own.
static void sums(void) {
  static const char* const names[] = {"a", "b", "c"};
  float values[3][4];
  tutti_work_t works[3];
  for (int step = 0; step < 5; ++step) {
    for (int i = 0; i < 3; ++i) {
      const int which = (i + rank + step) % 3;
      const uint64_t shape[] = {2, 2};
      for (int k = 0; k < 4; ++k) values[which][k] = (float)(rank + which + k);
      tutti_tensor_call_t call = TUTTI_TENSOR_CALL;
      call.input = call.output = values[which];
      call.shape = shape;
      call.dimension_count = 2;
      call.prescale = 2;
      call.batch = step == 4 ? "all" : NULL;
      call.batch_size = 3;
      works[i] = submit(names[which], &call);
    }
    CHECK_OK(tutti_wait_all(works, 3));
    for (int i = 0; i < 3; ++i) {
      for (int k = 0; k < 4; ++k) CHECK(values[i][k] == (float)(size * (size - 1) + 2 * size * (i + k)));
    }
  }
}

struct Rows {
  uint64_t from[MAX_RANKS];
  size_t rank_count;
  int32_t* memory;
};

static void* allocate(void* context, const uint64_t* rows, size_t row_count) {
  struct Rows* got = context;
  uint64_t sum = 0;
  got->rank_count = row_count;
  for (size_t i = 0; i < row_count; ++i) sum += got->from[i] = rows[i];
  return got->memory = malloc((sum + 1) * sizeof *got->memory);
}

static void* no_memory(void* context, const uint64_t* rows, size_t row_count) {
  (void)context, (void)rows, (void)row_count;
  return NULL;
}

static void uneven_parts(void) {
  int32_t mine[MAX_RANKS];
  for (int i = 0; i < MAX_RANKS; ++i) mine[i] = 10 * rank + i;
  struct Rows got = {{0}, 0, NULL};
  uint64_t rows = (uint64_t)rank + 1;
  tutti_tensor_call_t call = TUTTI_TENSOR_CALL;
  call.collective = TUTTI_ALLGATHER;
  call.input = mine;
  call.dtype = TUTTI_I32;
  call.shape = &rows;
  call.dimension_count = 1;
  call.allocate = allocate;
  call.allocate_context = &got;
  tutti_work_t work = submit("gathered", &call);
  CHECK_OK(tutti_wait(&work));
  CHECK(got.rank_count == (size_t)size && got.from[size - 1] == (uint64_t)size);
  for (int r = 0, at = 0; r < size; ++r) {
    for (int i = 0; i <= r; ++i) CHECK(got.memory[at++] == 10 * r + i);
  }
  free(got.memory);

  uint64_t splits[MAX_RANKS];  // one row for rank 0, two for each other
  for (int r = 0; r < size; ++r) splits[r] = r == 0 ? 1 : 2;
  rows = (uint64_t)(2 * size - 1);
  call.collective = TUTTI_ALLTOALL;
  call.splits = splits;
  work = submit("exchanged", &call);
  CHECK_OK(tutti_wait(&work));
  for (int r = 0; r < size; ++r) {
    CHECK(got.from[r] == splits[rank]);
    CHECK(got.memory[(int)splits[rank] * r] == 10 * r + (rank == 0 ? 0 : 2 * rank - 1));
  }
  free(got.memory);

  // One rank without memory: the others have theirs.
  call.collective = TUTTI_ALLGATHER;
  call.splits = NULL;
  if (rank == 1) call.allocate = no_memory;
  work = submit("gathered too", &call);
  if (rank == 1) {
    CHECK_FAILS(tutti_wait(&work), TUTTI_RESOURCE_EXHAUSTED, "\"gathered too\": allocate: it gave no memory");
  } else {
    CHECK_OK(tutti_wait(&work));
    CHECK(got.memory[(2 * size - 1)] == 10);
    free(got.memory);
  }
}

static void others(void) {
  int32_t value = rank + 5;
  tutti_tensor_call_t call = TUTTI_TENSOR_CALL;
  call.collective = TUTTI_BROADCAST;
  call.input = call.output = &value;
  call.dtype = TUTTI_I32;
  call.root = 1;
  call.memory = TUTTI_MEMORY_HOST;
  call.will_wait = 1;
  tutti_work_t work = submit("value", &call);
  CHECK_OK(tutti_wait(&work));
  CHECK(value == 6);
  call = (tutti_tensor_call_t)TUTTI_TENSOR_CALL;
  call.collective = TUTTI_BARRIER;
  work = submit("wall", &call);
  CHECK_OK(tutti_wait(&work));
}

static void errors(void) {
  float values[4] = {1, 1, 1, 1};
  uint64_t count = rank == 0 ? 3 : 4;
  tutti_work_t work = NULL;
  tutti_tensor_call_t call = TUTTI_TENSOR_CALL;
  call.input = call.output = values;
  call.shape = &count;
  call.dimension_count = 1;
  work = submit("w", &call);
  CHECK_FAILS(tutti_wait(&work), TUTTI_MISMATCH,
              "ranks submitted tensor \"w\" with different shape [3] and [4]");
  CHECK(work == NULL);
  call.wire_dtype = rank == 0 ? TUTTI_BF16 : TUTTI_F32;
  count = 4;
  work = submit("w", &call);
  CHECK_FAILS(tutti_wait(&work), TUTTI_MISMATCH, "different dtype on the wire bf16 and f32");
  call.wire_dtype = 99;
  CHECK_FAILS(tutti_tensor_queue_submit(queue, "w", &call, &work), TUTTI_INVALID_ARGUMENT,
              "wire_dtype: 99 is no wire_dtype");
  call.wire_dtype = TUTTI_I16;
  CHECK_FAILS(tutti_tensor_queue_submit(queue, "w", &call, &work), TUTTI_INVALID_ARGUMENT,
              "tensor \"w\": wire_dtype: expected bf16");
  call.wire_dtype = 0;
  call.error_feedback = rank == 0 ? 1 : -1;
  work = submit("w", &call);
  CHECK_FAILS(tutti_wait(&work), TUTTI_MISMATCH, "different error feedback on and off");
  call.error_feedback = 0;

  CHECK_FAILS(tutti_tensor_queue_submit(NULL, "w", &call, &work), TUTTI_INVALID_ARGUMENT,
              "queue: a null pointer");
  CHECK_FAILS(tutti_tensor_queue_submit(queue, NULL, &call, &work), TUTTI_INVALID_ARGUMENT,
              "name: a null pointer");
  CHECK_FAILS(tutti_tensor_queue_submit(queue, "w", NULL, &work), TUTTI_INVALID_ARGUMENT,
              "call: a null pointer");
  CHECK_FAILS(tutti_tensor_queue_submit(queue, "w", &call, NULL), TUTTI_INVALID_ARGUMENT,
              "work: a null pointer");
  CHECK_FAILS(tutti_tensor_queue_create(NULL, &queue), TUTTI_INVALID_ARGUMENT, "closed");
  call.dtype = (tutti_dtype_t)99;
  CHECK_FAILS(tutti_tensor_queue_submit(queue, "w", &call, &work), TUTTI_INVALID_ARGUMENT, "99 is no dtype");
  call.dtype = TUTTI_F32;
  call.op = TUTTI_USER;
  CHECK_FAILS(tutti_tensor_queue_submit(queue, "w", &call, &work), TUTTI_INVALID_ARGUMENT,
              "not offered by name");
  call.op = TUTTI_SUM;
  call.shape = NULL;
  CHECK_FAILS(tutti_tensor_queue_submit(queue, "w", &call, &work), TUTTI_INVALID_ARGUMENT,
              "shape: a null pointer");
  call.shape = &count;
  call.struct_bytes = 8;
  CHECK_FAILS(tutti_tensor_queue_submit(queue, "w", &call, &work), TUTTI_INVALID_ARGUMENT, "struct_bytes");
}

static void joining(void) {
  float value = 1;
  tutti_work_t work = NULL;
  int last = -1, greatest = -1;
  tutti_tensor_call_t call = TUTTI_TENSOR_CALL;
  call.input = call.output = &value;
  if (rank > 0) {
    work = submit("not of rank 0", &call);
    CHECK_OK(tutti_wait(&work));
    CHECK(value == (float)(size - 1));
  }
  CHECK_OK(tutti_tensor_queue_join(queue, &last, &work));
  CHECK_OK(tutti_wait(&work));
  CHECK(last >= 0 && last < size);
  CHECK_OK(tutti_allreduce(&last, &greatest, 1, TUTTI_I32, TUTTI_MAX, world, NULL));
  CHECK(last == greatest);
}

static void timeline(void) {
  char path[64], text[4096] = "";
  snprintf(path, sizeof path, "/tmp/tutti_c_timeline_%d.json", (int)getpid());
  CHECK_OK(tutti_tensor_queue_start_timeline(queue, path, 1));
  CHECK_OK(tutti_barrier(world, NULL));
  others();
  CHECK_OK(tutti_barrier(world, NULL));
  CHECK_OK(tutti_tensor_queue_stop_timeline(queue));
  FILE* const file = fopen(path, "r");
  CHECK((file != NULL) == (rank == 0));  // rank 0 alone writes one
  if (file == NULL) return;
  CHECK(fread(text, 1, sizeof text - 1, file) > 0);
  fclose(file);
  remove(path);
  CHECK(strstr(text, "NEGOTIATE_BROADCAST") != NULL && strstr(text, "CYCLE_START") != NULL);
  CHECK_FAILS(tutti_tensor_queue_start_timeline(queue, "/nowhere/at/all", 0), TUTTI_INVALID_ARGUMENT,
              "/nowhere/at/all");
  CHECK_FAILS(tutti_tensor_queue_start_timeline(queue, NULL, 0), TUTTI_INVALID_ARGUMENT,
              "path: a null pointer");
}

int main(void) {
  CHECK_OK(tutti_init(NULL, &world));
  rank = tutti_group_rank(world);
  size = tutti_group_size(world);
  if (failures > 0 || size > MAX_RANKS || size < 2) return 1;
  CHECK_OK(tutti_tensor_queue_create(world, &queue));
  sums();
  uneven_parts();
  others();
  errors();
  joining();
  timeline();
  // Rank 0 ends the queue once the others have submitted; what they have under way fails.
  tutti_tensor_call_t call = TUTTI_TENSOR_CALL;
  call.collective = TUTTI_BARRIER;
  tutti_work_t never = rank > 0 ? submit("never on rank 0", &call) : NULL;
  CHECK_OK(tutti_barrier(world, NULL));
  if (rank > 0) CHECK_FAILS(tutti_wait(&never), TUTTI_ABORTED, "closed the tensor queue");
  tutti_tensor_queue_close(&queue);
  CHECK(queue == NULL);
  tutti_tensor_queue_close(&queue);
  // One that is left open ends with the process.
  CHECK_OK(tutti_tensor_queue_create(world, &queue));
  others();
  if (failures == 0) printf("fine\n");
  return failures == 0 ? 0 : 1;
}
