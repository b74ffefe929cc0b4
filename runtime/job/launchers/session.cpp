// Asks the MPI library of the process, if there is one, for its state. Links none.
#include "runtime/job/launchers/session.hpp"

#include <dlfcn.h>

namespace tutti::detail {
namespace {

// Both take the address of an int in every MPI.
bool ask(const char* function_name) {
  const auto function = reinterpret_cast<int (*)(int*)>(::dlsym(RTLD_DEFAULT, function_name));
  int flag = 0;
  return function != nullptr && function(&flag) == 0 && flag != 0;
}

}  // namespace

bool is_mpi_running() { return ask("MPI_Initialized") && !ask("MPI_Finalized"); }

bool is_mpi_present() { return ::dlsym(RTLD_DEFAULT, "MPI_Initialized") != nullptr; }

}  // namespace tutti::detail
