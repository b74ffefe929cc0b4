// The backend of kernels that reach the memory of all ranks: allreduce by one shot and two shots.
// Knows when a call is over, and ends those that wait for a lost rank; not how the kernels work.
#pragma once

#include <memory>

#include "backends/backend.hpp"

namespace tutti::cuda {

// Collective: all ranks get a backend, or all get an error (unsupported, with the reason and whose it is; or
// the group's failure). For groups whose ranks share a machine. Algorithms: "one_shot" and "two_shot", of
// which every call names one. A call that was on the device for the group's timeout fails the group.
// `services` outlives the backend.
Result<std::unique_ptr<Backend>> make_peer_backend(GroupServices& services, int device);

}  // namespace tutti::cuda
