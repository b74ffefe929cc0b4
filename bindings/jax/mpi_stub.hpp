// For the MPI functions that XLA is not known to call. Knows no MPI type.
#pragma once

namespace tutti::jax {

// Says on stderr which function is missing, and returns an error code of MPI.
int refuse_function(const char* name);

}  // namespace tutti::jax
