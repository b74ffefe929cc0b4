// Call plans of the C interface against values worked out here. A rank of a job; knows the C interface only.
#include "check.h"

enum { PARTITIONS = 4, ELEMENTS = 40 };

static tutti_group_t world = NULL;
static int rank = 0;
static int size = 0;
static const uint64_t partitions[PARTITIONS] = {4, 0, 16, 20};
static const int begins[PARTITIONS + 1] = {0, 4, 4, 20, 40};

static void fill(int32_t* values, int partition, int step) {
  for (int i = begins[partition]; i < begins[partition + 1]; ++i) values[i] = rank + step * i;
}

static void check_sum(const int32_t* values, int partition, int step) {
  for (int i = begins[partition]; i < begins[partition + 1]; ++i)
    CHECK(values[i] == size * (size - 1) / 2 + size * step * i);
}

static tutti_plan_t plan_of(int32_t* values) {
  tutti_plan_t plan = NULL;
  tutti_collective_call_t call = TUTTI_COLLECTIVE_CALL;
  call.input = call.output = values;
  call.count = ELEMENTS;
  call.dtype = TUTTI_I32;
  CHECK_OK(tutti_plan_make(&call, partitions, PARTITIONS, world, NULL, &plan));
  return plan;
}

// In an order of each rank's own.
static void partitions_one_by_one(void) {
  int32_t values[ELEMENTS];
  tutti_plan_t plan = plan_of(values);
  int is_complete = 0;
  CHECK_OK(tutti_plan_test(plan, &is_complete));
  CHECK(is_complete == 1);
  for (int step = 0; step < 5; ++step) {
    CHECK_OK(tutti_plan_start(plan));
    CHECK_OK(tutti_plan_test_partitions(plan, 2, 1, &is_complete));
    CHECK(is_complete == 0);  // it is not ready
    for (int i = 0; i < PARTITIONS; ++i) {
      const int partition = (i + rank + step) % PARTITIONS;
      fill(values, partition, step);
      CHECK_OK(tutti_plan_ready(plan, (size_t)partition, 1));
    }
    CHECK_OK(tutti_plan_wait_partitions(plan, 0, 1));
    check_sum(values, 0, step);
    do {
      CHECK_OK(tutti_plan_test_partitions(plan, 1, 2, &is_complete));
    } while (failures == 0 && is_complete == 0);
    check_sum(values, 2, step);
    CHECK_OK(tutti_plan_wait(plan));
    check_sum(values, 3, step);
    CHECK_OK(tutti_plan_test(plan, &is_complete));
    CHECK(is_complete == 1);
  }
  tutti_plan_free(&plan);
  CHECK(plan == NULL);
  tutti_plan_free(&plan);
}

static void whole_calls(void) {
  int32_t mine = 0, all[64];
  uint64_t counts[64];
  tutti_collective_call_t call = TUTTI_COLLECTIVE_CALL;
  tutti_plan_t gathering = NULL, walling = NULL;
  for (int r = 0; r < size; ++r) counts[r] = 1;
  call.collective = TUTTI_ALLGATHER;
  call.input = &mine;
  call.output = all;
  call.counts = counts;
  call.dtype = TUTTI_I32;
  CHECK_OK(tutti_plan_make(&call, NULL, 0, world, NULL, &gathering));
  call = (tutti_collective_call_t)TUTTI_COLLECTIVE_CALL;
  call.collective = TUTTI_BARRIER;
  CHECK_OK(tutti_plan_make(&call, NULL, 0, world, NULL, &walling));
  for (int step = 0; step < 3; ++step) {
    mine = 10 * step + rank;
    CHECK_OK(tutti_plan_start(step % 2 == 0 ? gathering : walling));  // plans know no order between them
    CHECK_OK(tutti_plan_start(step % 2 == 0 ? walling : gathering));
    CHECK_OK(tutti_plan_wait(gathering));
    for (int r = 0; r < size; ++r) CHECK(all[r] == 10 * step + r);
    CHECK_OK(tutti_plan_wait(walling));
  }
  tutti_plan_free(&gathering);
  tutti_plan_free(&walling);
}

static void options(void) {
  double value = rank + 1;
  tutti_collective_call_t call = TUTTI_COLLECTIVE_CALL;
  tutti_call_options_t with = TUTTI_CALL_OPTIONS;
  tutti_plan_t plan = NULL;
  call.input = call.output = &value;
  call.count = 1;
  call.dtype = TUTTI_F64;
  call.op = TUTTI_PREMUL_SUM;
  with.factor = 0.5;
  CHECK_OK(tutti_plan_make(&call, NULL, 0, world, &with, &plan));
  CHECK_OK(tutti_plan_start(plan));
  CHECK_OK(tutti_plan_wait(plan));
  CHECK(value == 0.25 * size * (size + 1));
  tutti_plan_free(&plan);
  CHECK_FAILS(tutti_plan_make(&call, NULL, 0, world, NULL, &plan), TUTTI_INVALID_ARGUMENT,
              "plan_make: options: a null pointer");
}

static void wrong_descriptions(void) {
  float values[4] = {0};
  const uint64_t too_few = 3;
  tutti_plan_t plan = NULL;
  tutti_collective_call_t call = TUTTI_COLLECTIVE_CALL;
  call.input = call.output = values;
  call.count = 4;
  CHECK_FAILS(tutti_plan_make(NULL, NULL, 0, world, NULL, &plan), TUTTI_INVALID_ARGUMENT,
              "plan_make: call: a null pointer");
  CHECK_FAILS(tutti_plan_make(&call, NULL, 0, world, NULL, NULL), TUTTI_INVALID_ARGUMENT,
              "plan: a null pointer");
  CHECK_FAILS(tutti_plan_make(&call, NULL, 2, world, NULL, &plan), TUTTI_INVALID_ARGUMENT,
              "partitions: a null pointer");
  CHECK_FAILS(tutti_plan_make(&call, &too_few, 1, world, NULL, &plan), TUTTI_INVALID_ARGUMENT,
              "3 elements together, and the buffer 4");
  CHECK_FAILS(tutti_plan_make(&call, NULL, 0, NULL, NULL, &plan), TUTTI_INVALID_ARGUMENT, "closed");
  call.collective = TUTTI_BROADCAST;
  CHECK_FAILS(tutti_plan_make(&call, &too_few, 1, world, NULL, &plan), TUTTI_UNSUPPORTED,
              "only allreduce is communicated in partitions");
  call.collective = TUTTI_SEND_RECV;
  CHECK_FAILS(tutti_plan_make(&call, NULL, 0, world, NULL, &plan), TUTTI_INVALID_ARGUMENT, "no plans");
  call.collective = TUTTI_ALLREDUCE;
  call.dtype = (tutti_dtype_t)99;
  CHECK_FAILS(tutti_plan_make(&call, NULL, 0, world, NULL, &plan), TUTTI_INVALID_ARGUMENT, "99 is no dtype");
  call.dtype = TUTTI_F32;
  call.struct_bytes = 8;
  CHECK_FAILS(tutti_plan_make(&call, NULL, 0, world, NULL, &plan), TUTTI_INVALID_ARGUMENT, "struct_bytes");
  CHECK(plan == NULL);
}

static void wrong_runs(void) {
  int32_t values[ELEMENTS];
  int is_complete = 0;
  tutti_plan_t plan = plan_of(values);
  CHECK_FAILS(tutti_plan_ready(plan, 0, 1), TUTTI_INVALID_ARGUMENT, "has not been started");
  CHECK_OK(tutti_plan_start(plan));
  CHECK_FAILS(tutti_plan_start(plan), TUTTI_INVALID_ARGUMENT, "a run is under way: partition 0 of 4");
  for (int partition = 0; partition < PARTITIONS; ++partition) fill(values, partition, 1);
  CHECK_OK(tutti_plan_ready(plan, 1, 3));
  CHECK_FAILS(tutti_plan_ready(plan, 0, 2), TUTTI_INVALID_ARGUMENT, "partition 1");
  CHECK_FAILS(tutti_plan_ready(plan, 3, 2), TUTTI_INVALID_ARGUMENT, "first=3 and count=2");
  CHECK_FAILS(tutti_plan_test_partitions(plan, 4, 1, &is_complete), TUTTI_INVALID_ARGUMENT,
              "expected partitions of 0 to 3");
  CHECK_FAILS(tutti_plan_test(plan, NULL), TUTTI_INVALID_ARGUMENT, "is_complete: a null pointer");
  CHECK_FAILS(tutti_plan_wait_partitions(plan, 0, 9), TUTTI_INVALID_ARGUMENT, "count=9");
  CHECK_FAILS(tutti_plan_start(NULL), TUTTI_INVALID_ARGUMENT, "plan_start: plan: a null pointer");
  CHECK_OK(tutti_plan_ready(plan, 0, 1));  // nothing was changed
  CHECK_OK(tutti_plan_wait(plan));
  for (int partition = 0; partition < PARTITIONS; ++partition) check_sum(values, partition, 1);
  tutti_plan_free(&plan);
}

// A plan that ends in the middle of a run fails on all ranks, and the group goes on.
static void ended_runs(void) {
  int32_t values[ELEMENTS] = {0};
  tutti_plan_t plan = plan_of(values);
  CHECK_OK(tutti_plan_start(plan));
  if (rank > 0) CHECK_OK(tutti_plan_ready(plan, 0, PARTITIONS));
  CHECK_OK(tutti_barrier(world, NULL));
  if (rank > 0) {
    CHECK_FAILS(tutti_plan_wait(plan), TUTTI_ABORTED, "it ended its plan while a run was under way");
  }
  tutti_plan_free(&plan);
  CHECK_OK(tutti_barrier(world, NULL));
}

int main(void) {
  CHECK_OK(tutti_init(NULL, &world));
  rank = tutti_group_rank(world);
  size = tutti_group_size(world);
  if (failures > 0 || size > 64) return 1;
  partitions_one_by_one();
  whole_calls();
  options();
  wrong_descriptions();
  wrong_runs();
  ended_runs();
  tutti_group_close(&world);
  if (failures == 0) printf("fine\n");
  return failures == 0 ? 0 : 1;
}
