// The backends of ranks that reach each other's memory on GPUs: allreduce by kernels, in one shot and two,
// and all collectives by our own schedules. Know when a call is over, and end those that wait for a lost
// rank; not how either works.
#pragma once

#include <memory>

#include "backends/backend.hpp"

namespace tutti::cuda {

// Collective: all ranks get a backend, or all get an error (unsupported, with the reason and whose it is; or
// the group's failure). For groups whose ranks share a machine. Algorithms: "one_shot" and "two_shot", of
// which every call names one. A call that was on the device for the group's timeout fails the group.
// `services` outlives the backend.
Result<std::unique_ptr<Backend>> make_peer_backend(GroupServices& services, int device);
// The same for schedules: every call names an algorithm of the catalogue. For ranks that are processes, or
// threads with a device each.
Result<std::unique_ptr<Backend>> make_mapped_backend(GroupServices& services, int device);

}  // namespace tutti::cuda
