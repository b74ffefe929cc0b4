// Every function of the C interface that communicates, blocking and submitted, against values worked out
// here. A rank of a job; knows the C interface only.
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "check.h"

enum { MAX_RANKS = 8, COUNT = 37 };

static tutti_group_t world = NULL;
static int rank = 0;
static int size = 0;
static int is_submitted = 0;
static tutti_work_t work = NULL;

static int never(void* context) {
  (void)context;
  return 0;
}

// All ways to complete an operation, in turn.
static tutti_status_t complete(tutti_status_t status) {
  static int ways = 0;
  int is_complete = 0;
  if (status != TUTTI_OK) return status;
  CHECK(work != NULL);
  switch (ways++ % 5) {
    case 0:
      status = tutti_wait(&work);
      break;
    case 1:
      status = tutti_wait_all(&work, 1);
      break;
    case 2:
      status = tutti_wait_unless(&work, never, NULL, &is_complete);
      CHECK(is_complete);
      break;
    case 3:
      while (status == TUTTI_OK && !is_complete) status = tutti_wait_for(&work, 1, &is_complete);
      break;
    default:
      while (status == TUTTI_OK && !is_complete) status = tutti_test(&work, &is_complete);
  }
  CHECK(work == NULL);
  return status;
}

#define RUN(name, ...) \
  CHECK_OK(is_submitted ? complete(tutti_i##name(__VA_ARGS__, &work)) : tutti_##name(__VA_ARGS__))

static int32_t value(int of_rank, int index) { return 100 * (of_rank + 1) + index; }
static int32_t sum_of(int ranks, int index) {
  int32_t sum = 0;
  for (int r = 0; r < ranks; ++r) sum += value(r, index);
  return sum;
}

static int32_t input[MAX_RANKS * COUNT];
static int32_t output[MAX_RANKS * COUNT];

static void prepare(void) {
  for (int i = 0; i < size * COUNT; ++i) input[i] = value(rank, i);
  for (int i = 0; i < MAX_RANKS * COUNT; ++i) output[i] = -1;
}

static void reductions(int root) {
  prepare();
  RUN(allreduce, input, output, COUNT, TUTTI_I32, TUTTI_SUM, world, NULL);
  for (int i = 0; i < COUNT; ++i) CHECK(output[i] == sum_of(size, i));
  prepare();
  RUN(allreduce, input, input, COUNT, TUTTI_I32, TUTTI_MAX, world, NULL);  // in place
  for (int i = 0; i < COUNT; ++i) CHECK(input[i] == value(size - 1, i));
  prepare();
  RUN(reduce, input, output, COUNT, TUTTI_I32, TUTTI_SUM, root, world, NULL);
  for (int i = 0; i < COUNT; ++i) CHECK(output[i] == (rank == root ? sum_of(size, i) : -1));
  prepare();
  RUN(reduce_scatter, input, output, COUNT, TUTTI_I32, TUTTI_SUM, world, NULL);
  for (int i = 0; i < COUNT; ++i) CHECK(output[i] == sum_of(size, rank * COUNT + i));
  prepare();
  RUN(scan, input, output, COUNT, TUTTI_I32, TUTTI_SUM, world, NULL);
  for (int i = 0; i < COUNT; ++i) CHECK(output[i] == sum_of(rank + 1, i));
  prepare();
  RUN(exscan, input, output, COUNT, TUTTI_I32, TUTTI_SUM, world, NULL);
  for (int i = 0; i < COUNT; ++i) CHECK(output[i] == (rank == 0 ? -1 : sum_of(rank, i)));
}

static void moves(int root) {
  prepare();
  RUN(broadcast, input, COUNT, TUTTI_I32, root, world, NULL);
  for (int i = 0; i < COUNT; ++i) CHECK(input[i] == value(root, i));
  prepare();
  RUN(allgather, input, output, COUNT, TUTTI_I32, world, NULL);
  for (int i = 0; i < size * COUNT; ++i) CHECK(output[i] == value(i / COUNT, i % COUNT));
  prepare();
  RUN(alltoall, input, output, COUNT, TUTTI_I32, world, NULL);
  for (int i = 0; i < size * COUNT; ++i) CHECK(output[i] == value(i / COUNT, rank * COUNT + i % COUNT));
  prepare();
  RUN(gather, input, output, COUNT, TUTTI_I32, root, world, NULL);
  for (int i = 0; i < size * COUNT; ++i) {
    CHECK(output[i] == (rank == root ? value(i / COUNT, i % COUNT) : -1));
  }
  prepare();
  RUN(scatter, input, output, COUNT, TUTTI_I32, root, world, NULL);
  for (int i = 0; i < COUNT; ++i) CHECK(output[i] == value(root, rank * COUNT + i));
  RUN(barrier, world, NULL);
}

// Rank r has r + 1 elements; with displacements, one place lies between blocks.
static void uneven(int root, int has_gaps) {
  uint64_t counts[MAX_RANKS], places[MAX_RANKS], ones[MAX_RANKS], thirds[MAX_RANKS];
  uint64_t end = 0;
  for (int r = 0; r < size; ++r) {
    counts[r] = (uint64_t)r + 1;
    places[r] = end;
    end += counts[r] + (uint64_t)has_gaps;
    ones[r] = (uint64_t)rank + 1;  // alltoallv: rank s sends s + 1 elements to everybody
    thirds[r] = (uint64_t)(r * (MAX_RANKS + 1));
  }
  const uint64_t* displacements = has_gaps ? places : NULL;

  prepare();
  RUN(allgatherv, input, output, counts, displacements, TUTTI_I32, world, NULL);
  for (int r = 0; r < size; ++r) {
    for (int i = 0; i <= r; ++i) CHECK(output[places[r] + (uint64_t)i] == value(r, i));
    if (has_gaps) CHECK(output[places[r] + counts[r]] == -1);
  }
  prepare();
  RUN(gatherv, input, output, counts, displacements, TUTTI_I32, root, world, NULL);
  for (int r = 0; r < size; ++r) {
    for (int i = 0; i <= r; ++i) CHECK(output[places[r] + (uint64_t)i] == (rank == root ? value(r, i) : -1));
  }
  prepare();
  RUN(scatterv, input, output, counts, displacements, TUTTI_I32, root, world, NULL);
  for (int i = 0; i <= rank; ++i) CHECK(output[i] == value(root, (int)places[rank] + i));
  CHECK(output[rank + 1] == -1);
  // The root alone knows the counts.
  const uint64_t own_count = (uint64_t)rank + 1;
  const uint64_t* root_counts = rank == root ? counts : NULL;
  prepare();
  RUN(gatherv_root, input, own_count, output, root_counts, displacements, TUTTI_I32, root, world, NULL);
  for (int r = 0; r < size; ++r) {
    for (int i = 0; i <= r; ++i) CHECK(output[places[r] + (uint64_t)i] == (rank == root ? value(r, i) : -1));
  }
  prepare();
  RUN(scatterv_root, rank == root ? input : NULL, root_counts, displacements, output, own_count, TUTTI_I32,
      root, world, NULL);
  for (int i = 0; i <= rank; ++i) CHECK(output[i] == value(root, (int)places[rank] + i));
  CHECK(output[rank + 1] == -1);
  prepare();
  RUN(alltoallv, input, ones, thirds, output, counts, displacements, TUTTI_I32, world, NULL);
  for (int r = 0; r < size; ++r) {
    for (int i = 0; i <= r; ++i) CHECK(output[places[r] + (uint64_t)i] == value(r, (int)thirds[rank] + i));
  }
  if (has_gaps) return;
  prepare();
  RUN(reduce_scatterv, input, output, counts, TUTTI_I32, TUTTI_SUM, world, NULL);
  for (int i = 0; i <= rank; ++i) CHECK(output[i] == sum_of(size, (int)places[rank] + i));
}

// Round a ring; the last rank receives first, so that somebody does.
static void messages(void) {
  if (size == 1) return;
  const int to = (rank + 1) % size, from = (rank + size - 1) % size;
  prepare();
  if (rank < size - 1) RUN(send, input, COUNT, TUTTI_I32, to, 0, world, NULL);
  RUN(recv, output, COUNT, TUTTI_I32, from, 0, world, NULL, NULL);
  if (rank == size - 1) RUN(send, input, COUNT, TUTTI_I32, to, 0, world, NULL);
  for (int i = 0; i < COUNT; ++i) CHECK(output[i] == value(from, i));
}

// The other way round the ring, by tags in another order, from whoever sends.
static void tagged_messages(void) {
  if (size == 1) return;
  const int to = (rank + size - 1) % size, from = (rank + 1) % size;
  tutti_work_t sent[3] = {NULL};
  prepare();
  for (int tag = 0; tag < 3; ++tag)
    CHECK_OK(tutti_isend(input + tag, COUNT - 2, TUTTI_I32, to, tag, world, NULL, &sent[tag]));
  for (int tag = 2; tag >= 0; --tag) {
    int source = -5;
    RUN(recv, output, COUNT - 2, TUTTI_I32, TUTTI_ANY_SOURCE, tag, world, NULL, &source);
    CHECK(source == from);
    for (int i = 0; i < COUNT - 2; ++i) CHECK(output[i] == value(from, i + tag));
  }
  for (int tag = 0; tag < 3; ++tag) CHECK_OK(tutti_wait(&sent[tag]));
}

static void take_second(void* context, void* dst, const void* a, const void* b, size_t count) {
  (void)a;
  *(int*)context = 1;
  memmove(dst, b, count * sizeof(int32_t));
}

static void add(void* context, void* dst, const void* a, const void* b, size_t count) {
  (void)context;
  for (size_t i = 0; i < count; ++i) ((int32_t*)dst)[i] = ((const int32_t*)a)[i] + ((const int32_t*)b)[i];
}

static void special_operations(void) {
  tutti_call_options_t options = TUTTI_CALL_OPTIONS;
  options.integer_factor = rank + 1;
  prepare();
  RUN(allreduce, input, output, COUNT, TUTTI_I32, TUTTI_PREMUL_SUM, world, &options);
  for (int i = 0; i < COUNT; ++i) {
    int32_t expected = 0;
    for (int r = 0; r < size; ++r) expected += (r + 1) * value(r, i);
    CHECK(output[i] == expected);
  }
  double parts[2] = {1.0, rank}, sums[2] = {0, 0};
  options.factor = 0.5;
  RUN(allreduce, parts, sums, 2, TUTTI_F64, TUTTI_PREMUL_SUM, world, &options);
  CHECK(sums[0] == 0.5 * size && sums[1] == 0.25 * size * (size - 1));

  static int was_called = 0;
  tutti_call_options_t user = TUTTI_CALL_OPTIONS;
  user.function = take_second;
  user.function_context = &was_called;
  user.is_ordered = 1;
  prepare();
  RUN(allreduce, input, output, COUNT, TUTTI_I32, TUTTI_USER, world, &user);
  for (int i = 0; i < COUNT; ++i) CHECK(output[i] == value(size - 1, i));
  CHECK(size == 1 || was_called);
  user.function = add;
  user.is_ordered = 0;
  prepare();
  RUN(allreduce, input, output, COUNT, TUTTI_I32, TUTTI_USER, world, &user);
  for (int i = 0; i < COUNT; ++i) CHECK(output[i] == sum_of(size, i));
}

struct named {
  int32_t count;
  int32_t ranks[MAX_RANKS];
};

static void append(void* context, void* dst, const void* a, const void* b, size_t count) {
  (void)context;
  for (size_t i = 0; i < count; ++i) {
    struct named both = ((const struct named*)a)[i];
    const struct named* next = (const struct named*)b + i;
    for (int k = 0; k < next->count; ++k) both.ranks[both.count++] = next->ranks[k];
    ((struct named*)dst)[i] = both;
  }
}

static void elements_of_several_numbers(void) {
  float z[2] = {1, (float)rank};
  RUN(allreduce, z, z, 1, TUTTI_C64, TUTTI_SUM, world, NULL);
  CHECK(z[0] == (float)size && z[1] == (float)(size * (size - 1) / 2));
  struct {
    double value;
    int32_t index;
  } pair = {rank % 2, rank}, least;
  CHECK(sizeof pair == tutti_dtype_bytes(TUTTI_F64_I32));
  RUN(allreduce, &pair, &least, 1, TUTTI_F64_I32, TUTTI_MINLOC, world, NULL);
  CHECK(least.value == 0 && least.index == 0);
  RUN(allreduce, &pair, &pair, 1, TUTTI_F64_I32, TUTTI_MAXLOC, world, NULL);
  CHECK(pair.value == (size > 1) && pair.index == (size > 1));
  int32_t truth = rank == 0 ? 5 : 0;
  RUN(allreduce, &truth, &truth, 1, TUTTI_I32, TUTTI_LXOR, world, NULL);
  CHECK(size == 1 || truth == 1);
  struct named names[3];
  tutti_call_options_t options = TUTTI_CALL_OPTIONS;
  options.function = append;
  options.is_ordered = 1;
  options.element_bytes = sizeof names[0];
  CHECK(tutti_dtype_bytes(TUTTI_OPAQUE) == 0);
  for (int i = 0; i < 3; ++i) {
    names[i].count = 1;
    names[i].ranks[0] = rank;
  }
  RUN(allreduce, names, names, 3, TUTTI_OPAQUE, TUTTI_USER, world, &options);
  for (int r = 0; r < size; ++r) CHECK(names[2].count == size && names[2].ranks[r] == r);
}

struct told {
  tutti_group_t stream;
  int32_t token;
  tutti_work_t sent;
};

// Tells rank 1 that rank 0 waits.
static void tell(void* context) {
  struct told* told = context;
  if (told->sent != NULL) return;
  CHECK_OK(tutti_isend(&told->token, 1, TUTTI_I32, 1, 0, told->stream, NULL, &told->sent));
}

// A rank that waits calls a function of the program, here one that its peer waits for.
static void while_waiting(void) {
  if (size == 1) return;
  struct told told = {NULL, 7, NULL};
  tutti_call_options_t options = TUTTI_CALL_OPTIONS;
  options.while_waiting = tell;
  options.while_waiting_context = &told;
  int32_t x = 1, y = 0;
  CHECK_OK(tutti_group_stream(world, 9, &told.stream));
  if (rank == 0) {
    CHECK_OK(tutti_recv(&y, 1, TUTTI_I32, 1, 0, world, &options, NULL));
    CHECK_OK(tutti_wait(&told.sent));
    CHECK(y == 1);
  } else if (rank == 1) {
    CHECK_OK(tutti_recv(&y, 1, TUTTI_I32, 0, 0, told.stream, NULL, NULL));
    CHECK_OK(tutti_send(&x, 1, TUTTI_I32, 0, 0, world, NULL));
    CHECK(y == 7);
  }
  tutti_group_close(&told.stream);
}

// Within a node messages stay exact unless TUTTI_WIRE_DTYPE says otherwise: so nothing is lost.
static void wire_dtypes(void) {
  tutti_call_options_t options = TUTTI_CALL_OPTIONS;
  float losses[3] = {0, 0, 0}, x[3] = {1.001f, 2, 3};
  options.wire_dtype = TUTTI_BF16;
  options.residual = losses;
  RUN(allreduce, x, x, 3, TUTTI_F32, TUTTI_MAX, world, NULL);
  RUN(allreduce, x, x, 3, TUTTI_F32, TUTTI_SUM, world, &options);
  CHECK(x[1] == 2.0f * (float)size && losses[0] == 0);
  CHECK(tutti_scan(x, x, 3, TUTTI_F32, TUTTI_SUM, world, &options) == TUTTI_INVALID_ARGUMENT);
  CHECK(strstr(tutti_last_error(), "wire_dtype: only sums of f32") != NULL);
  options.wire_dtype = 99;
  CHECK(tutti_allreduce(x, x, 3, TUTTI_F32, TUTTI_SUM, world, &options) == TUTTI_INVALID_ARGUMENT);
  CHECK(strstr(tutti_last_error(), "wire_dtype: 99 is no wire_dtype") != NULL);
  options.wire_dtype = 0;
  CHECK(tutti_reduce(x, x, 3, TUTTI_F32, TUTTI_SUM, 0, world, &options) == TUTTI_INVALID_ARGUMENT);
  CHECK(strstr(tutti_last_error(), "residual: only sums of f32 by allreduce") != NULL);
}

static void queues(void) {
  enum { WORKS = 5 };
  tutti_queue_t queue = NULL;
  CHECK_OK(tutti_queue_make(&queue));
  tutti_completion_t done;
  int is_there = 1, left = WORKS, source = -5;
  CHECK_OK(tutti_queue_poll(queue, &done, &is_there));
  CHECK(!is_there);
  int32_t sums[WORKS];
  for (int i = 0; i < WORKS; ++i) {
    sums[i] = rank + i;
    CHECK_OK(tutti_iallreduce(&sums[i], &sums[i], 1, TUTTI_I32, TUTTI_SUM, world, NULL, &work));
    CHECK_OK(tutti_queue_add(queue, &work, &sums[i]));
    CHECK(work == NULL);
  }
  int32_t message = rank;
  if (size > 1 && rank < 2) {
    CHECK_OK(rank == 0 ? tutti_isend(&message, 1, TUTTI_I32, 1, 0, world, NULL, &work)
                       : tutti_irecv(&message, 1, TUTTI_I32, 0, 0, world, NULL, &source, &work));
    CHECK_OK(tutti_queue_add(queue, &work, &message));
    ++left;
  }
  while (left > 0) {
    CHECK_OK(tutti_queue_poll(queue, &done, &is_there));
    if (!is_there) continue;
    --left;
    CHECK(done.status == TUTTI_OK && done.peer == -1 && done.message[0] == '\0');
    if (done.context == &message) {
      CHECK(message == 0 && done.source == (rank == 1 ? 0 : -1) && source == (rank == 1 ? 0 : -5));
    } else {
      const int i = (int)((int32_t*)done.context - sums);
      CHECK(i >= 0 && i < WORKS && sums[i] == size * (size - 1) / 2 + size * i);
    }
  }
  CHECK(tutti_queue_poll(NULL, &done, &is_there) == TUTTI_INVALID_ARGUMENT);
  tutti_queue_free(&queue);
  CHECK(queue == NULL);
}

static void choice_and_memory(void) {
  char text[200], start[6];
  CHECK_OK(
      tutti_explain_algorithm(TUTTI_ALLREDUCE, 1000, TUTTI_F32, TUTTI_SUM, world, NULL, text, sizeof text));
  CHECK(strchr(text, ':') != NULL);
  CHECK_OK(
      tutti_explain_algorithm(TUTTI_ALLREDUCE, 1000, TUTTI_F32, TUTTI_SUM, world, NULL, start, sizeof start));
  CHECK(strlen(start) == sizeof start - 1 && strncmp(start, text, sizeof start - 1) == 0);
  CHECK_OK(
      tutti_explain_algorithm(TUTTI_BARRIER, 0, TUTTI_U8, (tutti_op_t)99, world, NULL, text, sizeof text));

  tutti_call_options_t options = TUTTI_CALL_OPTIONS;
  options.algorithm = "ring";
  prepare();
  RUN(allreduce, input, output, COUNT, TUTTI_I32, TUTTI_SUM, world, &options);
  for (int i = 0; i < COUNT; ++i) CHECK(output[i] == sum_of(size, i));

  void* memory = NULL;
  CHECK_OK(tutti_alloc(sizeof input, world, &memory));
  if (memory == NULL) return;
  int32_t* shared = memory;
  CHECK((uintptr_t)memory % 64 == 0 && shared[0] == 0);
  for (int i = 0; i < COUNT; ++i) shared[i] = value(rank, i);
  RUN(allreduce, shared, shared, COUNT, TUTTI_I32, TUTTI_SUM, world, NULL);
  for (int i = 0; i < COUNT; ++i) CHECK(shared[i] == sum_of(size, i));
  CHECK_OK(tutti_free(memory, world));
}

static void groups(void) {
  tutti_group_t part = NULL;
  CHECK_OK(tutti_group_split(world, rank % 2, -rank, &part));
  const int members = (size + (rank % 2 == 0)) / 2;
  CHECK(tutti_group_size(part) == members);
  CHECK(tutti_group_rank(part) == members - 1 - rank / 2);  // ordered by -rank
  int32_t sum = rank, expected = 0;
  for (int r = rank % 2; r < size; r += 2) expected += r;
  CHECK_OK(tutti_allreduce(&sum, &sum, 1, TUTTI_I32, TUTTI_SUM, part, NULL));
  CHECK(sum == expected);
  tutti_group_close(&part);
  CHECK(part == NULL);

  CHECK_OK(tutti_group_split(world, rank == 0 ? 1 : -1, 0, &part));
  CHECK((part != NULL) == (rank == 0));
  tutti_group_close(&part);

  CHECK_OK(tutti_group_split_by_node(world, &part));
  CHECK(tutti_group_rank(part) == tutti_group_local_rank(world));
  CHECK(tutti_group_size(part) == tutti_group_local_size(world));
  tutti_group_close(&part);

  if (rank > 1) return;
  const int last_first[2] = {1, 0};
  const int alone[1] = {0};
  CHECK_OK(tutti_group_create_tagged(world, size > 1 ? last_first : alone, size > 1 ? 2 : 1, "pair", &part));
  CHECK(tutti_group_rank(part) == (size > 1 ? 1 - rank : 0));
  CHECK_OK(tutti_barrier(part, NULL));
  tutti_group_close(&part);
}

// Completed in an order that is not that of submission; the handle may be dropped.
static void many_under_way(void) {
  enum { MANY = 40 };
  tutti_work_t pending[MANY] = {NULL};
  int32_t values[MANY];
  for (int i = 0; i < MANY; ++i) {
    values[i] = rank + i;
    CHECK_OK(tutti_iallreduce(&values[i], &values[i], 1, TUTTI_I32, TUTTI_SUM, world, NULL, &pending[i]));
  }
  for (int i = MANY - 1; i >= 0; --i) {
    CHECK_OK(tutti_wait(&pending[i]));
    CHECK(values[i] == size * i + size * (size - 1) / 2);
  }
  CHECK_OK(tutti_ibarrier(world, NULL, &pending[0]));
  tutti_work_free(&pending[0]);
  CHECK(pending[0] == NULL);
  CHECK_OK(tutti_barrier(world, NULL));
}

// Every rank submits all that it sends and receives, the last first, and then waits for all of it.
static void all_at_once(void) {
  tutti_work_t works[2 * MAX_RANKS] = {NULL};
  size_t count = 0;
  prepare();
  for (int peer = size - 1; peer >= 0; --peer) {
    if (peer == rank) continue;
    CHECK_OK(tutti_isend(input + peer * COUNT, COUNT, TUTTI_I32, peer, 0, world, NULL, &works[count++]));
    CHECK_OK(
        tutti_irecv(output + peer * COUNT, COUNT, TUTTI_I32, peer, 0, world, NULL, NULL, &works[count++]));
  }
  CHECK_OK(tutti_wait_all(works, count));
  for (int peer = 0; peer < size; ++peer) {
    if (peer != rank) CHECK(output[peer * COUNT] == value(peer, rank * COUNT));
  }
  for (size_t i = 0; i < count; ++i) CHECK(works[i] == NULL);
}

struct chain {
  tutti_group_t group;
  int32_t sum;
  int left;
  atomic_int ended;
};

// The end of one operation submits the next.
static void go_on(void* context, tutti_status_t status, const char* message, int peer) {
  struct chain* chain = context;
  tutti_work_t next = NULL;
  CHECK(status == TUTTI_OK && message[0] == '\0' && peer == -1);
  if (status != TUTTI_OK || --chain->left == 0) {
    chain->ended = 1;
    return;
  }
  CHECK_OK(tutti_iallreduce(&chain->sum, &chain->sum, 1, TUTTI_I32, TUTTI_MAX, chain->group, NULL, &next));
  CHECK_OK(tutti_on_complete(next, go_on, chain));
  tutti_work_free(&next);
}

static void callbacks(void) {
  struct chain chain = {world, rank, 20, 0};
  tutti_call_options_t options = TUTTI_CALL_OPTIONS;
  options.will_wait = 1;
  CHECK_OK(tutti_iallreduce(&chain.sum, &chain.sum, 1, TUTTI_I32, TUTTI_MAX, world, &options, &work));
  CHECK_OK(tutti_on_complete(work, go_on, &chain));
  CHECK_OK(tutti_wait(&work));
  while (!chain.ended) sched_yield();
  CHECK(chain.sum == size - 1);
}

struct user {
  int number;  // of the stream
  pthread_t thread;
};

// Its messages and collectives match those of the same stream of other ranks, whatever the others do.
static void* use_stream(void* given) {
  const struct user* user = given;
  tutti_group_t stream = NULL, again = NULL;
  CHECK_OK(tutti_group_stream(world, user->number, &stream));
  CHECK_OK(tutti_group_stream(stream, user->number, &again));
  CHECK(tutti_group_rank(stream) == rank && tutti_group_size(stream) == size);
  for (int32_t round = 0; round < 50; ++round) {
    int32_t sum = rank + user->number * round, got = -1;
    CHECK_OK(tutti_allreduce(&sum, &sum, 1, TUTTI_I32, TUTTI_SUM, round % 2 == 0 ? stream : again, NULL));
    CHECK(sum == size * (size - 1) / 2 + size * user->number * round);
    if (size == 1) continue;
    const int32_t mine = 1000 * user->number + 100 * rank + round;
    const int from = (rank + size - 1) % size;
    tutti_work_t sent = NULL;
    CHECK_OK(tutti_isend(&mine, 1, TUTTI_I32, (rank + 1) % size, 0, stream, NULL, &sent));
    CHECK_OK(tutti_recv(&got, 1, TUTTI_I32, from, 0, stream, NULL, NULL));
    CHECK_OK(tutti_wait(&sent));
    CHECK(got == 1000 * user->number + 100 * from + round);
  }
  tutti_group_close(&stream);
  tutti_group_close(&again);
  return NULL;
}

static void streams(void) {
  enum { THREADS = 3 };
  struct user users[THREADS];
  for (int t = 0; t < THREADS; ++t) {
    users[t].number = (t + rank) % THREADS;  // 0 is the group itself
    if (pthread_create(&users[t].thread, NULL, use_stream, &users[t]) != 0) abort();
  }
  for (int t = 0; t < THREADS; ++t) pthread_join(users[t].thread, NULL);
  tutti_group_t stream = NULL, again = NULL;
  int32_t x = 1;
  CHECK_OK(tutti_group_stream(world, 1, &stream));
  CHECK_OK(tutti_group_close_stream(world, 1));
  CHECK(tutti_allreduce(&x, &x, 1, TUTTI_I32, TUTTI_SUM, stream, NULL) == TUTTI_ABORTED);
  CHECK_OK(tutti_group_stream(world, 1, &again));  // a new one
  CHECK_OK(tutti_allreduce(&x, &x, 1, TUTTI_I32, TUTTI_SUM, again, NULL));
  CHECK(x == size);
  CHECK(tutti_group_close_stream(world, 0) == TUTTI_INVALID_ARGUMENT);
  tutti_group_close(&stream);
  tutti_group_close(&again);
}

int main(void) {
  CHECK(tutti_abi_version() == TUTTI_ABI_VERSION);
  CHECK(strcmp(tutti_version(), EXPECTED_VERSION) == 0);
  CHECK(tutti_last_error()[0] == '\0' && tutti_last_error_peer() == -1);
  CHECK_OK(tutti_init(NULL, &world));
  rank = tutti_group_rank(world);
  size = tutti_group_size(world);
  if (failures > 0 || size > MAX_RANKS) return 1;
  for (is_submitted = 0; is_submitted < 2; ++is_submitted) {
    for (int root = 0; root<size; root += size> 2 ? size - 1 : 1) {
      reductions(root);
      moves(root);
      uneven(root, 0);
      uneven(root, 1);
    }
    messages();
    tagged_messages();
    special_operations();
    elements_of_several_numbers();
    choice_and_memory();
  }
  groups();
  many_under_way();
  all_at_once();
  callbacks();
  while_waiting();
  wire_dtypes();
  queues();
  streams();
  tutti_group_close(&world);
  if (failures == 0) printf("fine\n");
  return failures == 0 ? 0 : 1;
}
