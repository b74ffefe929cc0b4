// Several copies of the library in one process, of two versions: each has its own state and works while the
// others do. Usage: two_copies local|global LIBRARY VERSION [LIBRARY VERSION]..., where global puts the names
// of all of them into one scope, as linking does. Knows the C interface only, by the names of its functions.
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tutti/tutti.h"

enum { MAX_COPIES = 4, RANKS = 2, CALLS = 200 };

struct copy {
  const char* path;
  const char* version;
  const char* (*version_of)(void);
  const char* (*last_error)(void);
  int (*rank_of)(tutti_group_t);
  tutti_status_t (*make_unique_id)(tutti_unique_id_t*);
  tutti_status_t (*init)(const tutti_init_options_t*, tutti_group_t*);
  tutti_status_t (*allreduce)(const void*, void*, size_t, tutti_dtype_t, tutti_op_t, tutti_group_t,
                              const tutti_call_options_t*);
  void (*close)(tutti_group_t*);
  tutti_unique_id_t id;
  tutti_unique_id_t lonely_id;
};

static struct copy copies[MAX_COPIES];
static int copy_count = 0;

// A pointer to a function is no pointer to an object in C, so its bytes are copied.
static void find(void* library, const char* name, void* function) {
  void* found = dlsym(library, name);
  if (found == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    exit(1);
  }
  memcpy(function, &found, sizeof found);
}

static void load(struct copy* copy, int scope) {
  void* library = dlopen(copy->path, RTLD_NOW | scope);
  if (library == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    exit(1);
  }
  find(library, "tutti_version", &copy->version_of);
  find(library, "tutti_last_error", &copy->last_error);
  find(library, "tutti_group_rank", &copy->rank_of);
  find(library, "tutti_make_unique_id", &copy->make_unique_id);
  find(library, "tutti_init", &copy->init);
  find(library, "tutti_allreduce", &copy->allreduce);
  find(library, "tutti_group_close", &copy->close);
}

// Returns whether `calls` allreduces in a group of `size` gave what they should.
static int run(const struct copy* copy, const char* id, int rank, int size, int calls) {
  tutti_init_options_t options = TUTTI_INIT_OPTIONS;
  tutti_group_t world = NULL;
  options.unique_id = id;
  options.rank = rank;
  options.size = size;
  options.timeout_ms = 30000;
  int is_right = copy->init(&options, &world) == TUTTI_OK && copy->rank_of(world) == rank;
  for (int call = 0; call < calls && is_right; ++call) {
    int64_t sum = rank + call;
    is_right = copy->allreduce(&sum, &sum, 1, TUTTI_I64, TUTTI_SUM, world, NULL) == TUTTI_OK &&
               sum == (int64_t)size * call + size * (size - 1) / 2;
  }
  if (!is_right) fprintf(stderr, "%s, rank %d of %d: %s\n", copy->path, rank, size, copy->last_error());
  copy->close(&world);
  return is_right;
}

struct rank_of_copy {
  const struct copy* copy;
  int rank;
};

static void* run_rank(void* given) {
  const struct rank_of_copy* mine = given;
  return run(mine->copy, mine->copy->id.text, mine->rank, RANKS, CALLS) ? NULL : given;
}

int main(int argc, char** argv) {
  pthread_t threads[MAX_COPIES * RANKS];
  struct rank_of_copy ranks[MAX_COPIES * RANKS];
  int is_right = argc >= 6 && argc % 2 == 0 && argc <= 2 * MAX_COPIES + 2;
  for (int i = 2; i + 1 < argc && is_right; i += 2) {
    struct copy* copy = &copies[copy_count++];
    copy->path = argv[i];
    copy->version = argv[i + 1];
    load(copy, strcmp(argv[1], "global") == 0 ? RTLD_GLOBAL : RTLD_LOCAL);
    is_right = strcmp(copy->version_of(), copy->version) == 0;
    if (!is_right) fprintf(stderr, "%s is of version %s\n", copy->path, copy->version_of());
  }
  // One's mistake is no other's.
  if (is_right && (copies[0].rank_of(NULL) != -1 || copies[0].last_error()[0] == '\0' ||
                   copies[1].last_error()[0] != '\0')) {
    fprintf(stderr, "the copies share their errors\n");
    is_right = 0;
  }
  for (int c = 0; c < copy_count && is_right; ++c) {
    is_right = copies[c].make_unique_id(&copies[c].id) == TUTTI_OK &&
               copies[c].make_unique_id(&copies[c].lonely_id) == TUTTI_OK &&
               run(&copies[c], copies[c].lonely_id.text, 0, 1, 3);
  }
  if (!is_right) return 1;
  for (int t = 0; t < copy_count * RANKS; ++t) {
    ranks[t].copy = &copies[t / RANKS];
    ranks[t].rank = t % RANKS;
    if (pthread_create(&threads[t], NULL, run_rank, &ranks[t]) != 0) abort();
  }
  for (int t = 0; t < copy_count * RANKS; ++t) {
    void* failed = NULL;
    pthread_join(threads[t], &failed);
    if (failed != NULL) is_right = 0;
  }
  if (is_right) printf("fine\n");
  return is_right ? 0 : 1;
}
