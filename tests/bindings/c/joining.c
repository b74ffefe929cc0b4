// The ways into a job that a C program may offer itself: a unique id, an exchange, a store. The ranks are
// threads of this program; knows the C interface only.
#include <pthread.h>
#include <stdlib.h>

#include "check.h"

enum { RANKS = 3, MAX_BYTES = 1 << 20, MAX_VALUES = 64 };

static tutti_unique_id_t id;

// An exchange: ranks meet, and meet again before the next one may write.
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static unsigned char gathered[RANKS * MAX_BYTES];
static int arrived = 0, round_number = 0;

static void meet(void) {
  pthread_mutex_lock(&mutex);
  const int mine = round_number;
  if (++arrived == RANKS) {
    arrived = 0;
    ++round_number;
    pthread_cond_broadcast(&changed);
  }
  while (round_number == mine) pthread_cond_wait(&changed, &mutex);
  pthread_mutex_unlock(&mutex);
}

// Its context is the rank.
static int allgather_bytes(void* context, const void* mine, void* all, size_t bytes) {
  if (bytes > MAX_BYTES) return 2;
  memcpy(gathered + bytes * (size_t) * (int*)context, mine, bytes);
  meet();
  memcpy(all, gathered, RANKS * bytes);
  meet();
  return 0;
}

// A store, whose keys end with the rank and so differ.
static struct {
  char key[200];
  void* value;
  size_t bytes;
} values[MAX_VALUES];
static int value_count = 0, short_answers = 0;

static int put_bytes(void* context, const char* key, const void* value, size_t bytes) {
  (void)context;
  pthread_mutex_lock(&mutex);
  if (value_count == MAX_VALUES) abort();
  strncpy(values[value_count].key, key, sizeof values[0].key - 1);
  values[value_count].value = malloc(bytes + 1);
  memcpy(values[value_count].value, value, bytes);
  values[value_count++].bytes = bytes;
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&mutex);
  return 0;
}

// The first call reports more bytes than there is room for, as for a very long value.
static int get_bytes(void* context, const char* key, void* value, size_t capacity, size_t* bytes) {
  static _Thread_local int has_asked = 0;
  (void)context;
  pthread_mutex_lock(&mutex);
  for (;;) {
    for (int i = 0; i < value_count; ++i) {
      if (strcmp(values[i].key, key) != 0) continue;
      *bytes = values[i].bytes;
      if (!has_asked++) {
        ++short_answers;
        *bytes = capacity + 1;
      } else {
        if (*bytes <= capacity) memcpy(value, values[i].value, *bytes);
      }
      pthread_mutex_unlock(&mutex);
      return 0;
    }
    pthread_cond_wait(&changed, &mutex);
  }
}

static int refuse_bytes(void* context, const void* mine, void* all, size_t bytes) {
  (void)context, (void)mine, (void)all, (void)bytes;
  return 7;
}

enum way { BY_ID, BY_EXCHANGE, BY_STORE };
struct rank_arguments {
  enum way way;
  int rank;
};

// Returns NULL if the rank is in a group of all, which works.
static void* run_rank(void* given) {
  struct rank_arguments* arguments = given;
  tutti_init_options_t options = TUTTI_INIT_OPTIONS;
  options.rank = arguments->rank;
  options.size = RANKS;
  options.timeout_ms = 30000;
  options.exchange_context = &arguments->rank;
  if (arguments->way == BY_ID) options.unique_id = id.text;
  if (arguments->way == BY_EXCHANGE) options.allgather = allgather_bytes;
  if (arguments->way == BY_STORE) options.put = put_bytes, options.get = get_bytes;
  tutti_group_t world = NULL;
  int sum = arguments->rank + 1;
  tutti_status_t status = tutti_init(&options, &world);
  if (status == TUTTI_OK) status = tutti_allreduce(&sum, &sum, 1, TUTTI_I32, TUTTI_SUM, world, NULL);
  if (status != TUTTI_OK) fprintf(stderr, "rank %d: %s\n", arguments->rank, tutti_last_error());
  const int is_right = status == TUTTI_OK && sum == RANKS * (RANKS + 1) / 2 &&
                       tutti_group_rank(world) == arguments->rank && tutti_group_size(world) == RANKS;
  tutti_group_close(&world);
  return is_right ? NULL : given;
}

static void join(enum way way) {
  pthread_t threads[RANKS];
  struct rank_arguments arguments[RANKS];
  for (int r = 0; r < RANKS; ++r) {
    arguments[r].way = way;
    arguments[r].rank = r;
    if (pthread_create(&threads[r], NULL, run_rank, &arguments[r]) != 0) abort();
  }
  for (int r = 0; r < RANKS; ++r) {
    void* result = NULL;
    pthread_join(threads[r], &result);
    CHECK(result == NULL);
  }
}

int main(void) {
  CHECK_OK(tutti_make_unique_id(&id));
  CHECK(strncmp(id.text, "tutti-", 6) == 0);
  join(BY_ID);
  join(BY_EXCHANGE);
  join(BY_STORE);
  CHECK(short_answers == RANKS);
  for (int i = 0; i < value_count; ++i) free(values[i].value);

  tutti_group_t world = NULL;
  tutti_init_options_t options = TUTTI_INIT_OPTIONS;
  options.size = 1;
  options.allgather = refuse_bytes;
  CHECK_FAILS(tutti_init(&options, &world), TUTTI_INTERNAL, "allgather returned 7");
  options.put = put_bytes;
  CHECK_FAILS(tutti_init(&options, &world), TUTTI_INVALID_ARGUMENT, "only one of");
  CHECK(world == NULL);
  if (failures == 0) printf("fine\n");
  return failures == 0 ? 0 : 1;
}
