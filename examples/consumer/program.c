// The program of docs/c_api.md, in a project of its own: knows tutti as it is installed.
#include <stdio.h>
#include <stdlib.h>
#include <tutti/tutti.h>

static void check(tutti_status_t status) {
  if (status == TUTTI_OK) return;
  fprintf(stderr, "%s: %s\n", tutti_status_name(status), tutti_last_error());
  exit(1);
}

int main(void) {
  tutti_group_t world = NULL;
  check(tutti_init(NULL, &world));  // under tutti run, mpirun, srun, torchrun, or alone
  const int rank = tutti_group_rank(world), size = tutti_group_size(world);

  float gradient[1000];
  for (int i = 0; i < 1000; ++i) gradient[i] = (float)rank;
  check(tutti_allreduce(gradient, gradient, 1000, TUTTI_F32, TUTTI_AVG, world, NULL));  // in place

  double loss = 1.0 / (rank + 1), worst = 0;
  tutti_work_t work = NULL;
  check(tutti_iallreduce(&loss, &worst, 1, TUTTI_F64, TUTTI_MAX, world, NULL, &work));
  // ... compute something else ...
  check(tutti_wait(&work));

  if (rank == 0) printf("%d ranks: average %g, worst %g\n", size, gradient[0], worst);
  tutti_group_close(&world);
  return 0;
}
