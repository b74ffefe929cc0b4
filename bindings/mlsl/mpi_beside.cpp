// Calls MPI through the addresses of its functions. See mpi_beside.hpp.
#include "bindings/mlsl/mpi_beside.hpp"

#include <dlfcn.h>

#include <stdexcept>
#include <string>

namespace tutti::mlsl {
namespace {

// These functions have equal signatures in every MPI, and so has the number.
constexpr int kMpiThreadMultiple = 3;

template <class Function>
Function find(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_DEFAULT, name));
}

bool ask(const char* name) {
  const auto function = find<int (*)(int*)>(name);
  int flag = 0;
  return function != nullptr && function(&flag) == 0 && flag != 0;
}

}  // namespace

bool start_mpi(int* argc, char*** argv) {
  const auto init = find<int (*)(int*, char***, int, int*)>("MPI_Init_thread");
  if (init == nullptr || ask("MPI_Initialized")) return false;
  int provided = 0;
  if (const int error = init(argc, argv, kMpiThreadMultiple, &provided); error != 0)
    throw std::runtime_error("MPI_Init_thread failed with error " + std::to_string(error) +
                             "; MLSL_INIT_MPI=0 leaves MPI alone");
  return true;
}

void end_mpi() {
  const auto finalize = find<int (*)()>("MPI_Finalize");
  if (finalize != nullptr && !ask("MPI_Finalized")) finalize();
}

}  // namespace tutti::mlsl
