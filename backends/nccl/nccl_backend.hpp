// Calls on the memory of one GPU per rank, carried out by NCCL.
// Knows of a group what GroupServices says; which calls it gets is decided above.
#pragma once

#include <memory>

#include "backends/backend.hpp"
#include "backends/nccl/communicator.hpp"

namespace tutti::nccl {

// A call is put on its stream and its Work is complete once the device is past it. Nothing that a call does
// waits for the device; the first one of a kind may wait for NCCL to connect the ranks.
class NcclBackend : public Backend {
 public:
  // Collective over the backend's group: those of one color make a backend of the group that `services` is
  // of, in the order of `key` (their ranks there), by ncclCommSplit: NCCL connects them by what it knows
  // of this communicator, and shares nothing between both. Waits for what is under way. A rank of no new
  // group passes a negative color and any services, and gets null. Errors: of the group, which has
  // failed on all ranks then.
  virtual Result<std::unique_ptr<NcclBackend>> split(GroupServices& services, int color, int key) = 0;
};

// For the group of `services`, each rank with its own device. Collective: all ranks get a backend, or all get
// an error: unsupported, with the reason and whose it is (two ranks on one GPU, which NCCL refuses, among
// them); or what NCCL said; or the group's failure.
Result<std::unique_ptr<NcclBackend>> make_nccl_backend(GroupServices& services, int device);

}  // namespace tutti::nccl
