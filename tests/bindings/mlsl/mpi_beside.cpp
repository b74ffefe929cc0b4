// MLSL beside MPI. The argument says who calls MPI_Init: "before", "after" (after Init of MLSL with MLSL_INIT_MPI=0), or
// "never". A rank of a job of any launcher.
#include <mpi.h>
#include <mlsl.hpp>

#include <string>

#include "tests/bindings/mlsl/check.hpp"

int main(int argc, char** argv) {
  CHECK(argc > 1);
  const std::string when = argv[1];
  MLSL::Environment& env = MLSL::Environment::GetEnv();
  if (when == "before") MPI_Init(&argc, &argv);
  env.Init(&argc, &argv);
  int is_initialized = 0, is_finalized = 0;
  MPI_Initialized(&is_initialized);
  CHECK((is_initialized != 0) == (when != "after"));
  if (when == "after") MPI_Init(&argc, &argv);
  int rank = -1, size = -1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  CHECK(size == 2 && env.GetProcessCount() == 2 && env.GetProcessIdx() == static_cast<std::size_t>(rank));
  MLSL::Distribution* const dist = env.CreateDistribution(2, 1);
  for (int round = 0; round < 3; ++round) {  // both libraries in turn
    int mine = rank + 1, sum = 0;
    float value = static_cast<float>(rank + 1);
    MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    env.Wait(dist->AllReduce(&value, &value, 1, MLSL::DT_FLOAT, MLSL::RT_SUM, MLSL::GT_DATA));
    CHECK(sum == 3 && value == 3.0F);
  }
  env.DeleteDistribution(dist);
  env.Finalize();
  MPI_Finalized(&is_finalized);
  CHECK((is_finalized != 0) == (when == "never"));
  if (when != "never") MPI_Finalize();
  return 0;
}
