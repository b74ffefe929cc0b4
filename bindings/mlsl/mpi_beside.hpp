// The MPI library that the program has loaded, if any: starts and ends it. Links none.
#pragma once

namespace tutti::mlsl {

// Initialises MPI, with all threads allowed, where a library is loaded and the program has not done so. True if this
// call has done it. Errors: throws std::runtime_error.
bool start_mpi(int* argc, char*** argv);
// Does nothing if the program has finalized MPI meanwhile.
void end_mpi();

}  // namespace tutti::mlsl
