// Calls on the memory of one GPU per rank, carried out by NCCL.
// Knows of a group what GroupServices says; which calls it gets is decided above.
#pragma once

#include <memory>
#include <span>

#include "backends/backend.hpp"
#include "backends/nccl/communicator.hpp"

namespace tutti::nccl {

// A call is put on its stream and its Work is complete once the device is past it. Nothing that a call does
// waits for the device; the first one of a kind may wait for NCCL to connect the ranks.
class NcclBackend : public Backend {
 public:
  // Collective over the backend's group: those of one color make a backend of the group that `services` is
  // of, in the order of `key` (their ranks there), by ncclCommSplit: faster than a new communicator, and it
  // shares the parent's resources. Nothing may be under way. A rank of no new group passes
  // Communicator::kNoColor and any services, and gets null.
  virtual Result<std::unique_ptr<NcclBackend>> split(GroupServices& services, int color, int key) = 0;
  // Collective over the ranks that remain, whose group `services` is of: ends what is under way and makes a
  // backend of them, without those `excluded` (ranks of this group). unsupported before NCCL 2.27.
  virtual Result<std::unique_ptr<NcclBackend>> shrink(GroupServices& services,
                                                      std::span<const int> excluded) = 0;
};

// For the group of `services`, each rank with its own device. Collective: all ranks get a backend, or all get
// an error: unsupported, with the reason and whose it is (two ranks on one GPU, which NCCL refuses, among
// them); or what NCCL said; or the group's failure.
Result<std::unique_ptr<NcclBackend>> make_nccl_backend(GroupServices& services, int device);

}  // namespace tutti::nccl
