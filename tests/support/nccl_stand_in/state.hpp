// Communicators as the stand-in's functions see them.
// Knows nothing of tutti. For tests only.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "tests/support/nccl_stand_in/clique.hpp"
#include "tests/support/nccl_stand_in/control.hpp"

// Target of the handle of nccl.h. Work on streams keeps it as well.
struct ncclComm {
  std::shared_ptr<nccl_stand_in::Clique> clique;
  int rank = 0;
  int device = 0;
  bool is_blocking = true;
  bool has_launched = false;
  int splits = 0;  // the same number on all ranks
  // A split that waits for the other ranks, and where its result goes.
  std::string split;
  int color = 0, key = 0;
  ncclComm** split_result = nullptr;
  nccl_stand_in::Aborted aborted{false};
  std::atomic<int> polls{0};
  std::atomic<int> outstanding{0};  // groups of calls on streams
  std::atomic<bool> is_finalized{false};
  std::atomic<bool> is_confused{false};  // the ranks asked for different things
  std::map<int, nccl_stand_in::Reduction> reductions;
  std::multiset<void*> registered;  // guarded by the state's mutex
};

namespace nccl_stand_in {

struct State {
  std::mutex mutex;
  std::map<std::string, std::weak_ptr<Clique>> cliques;          // by unique id
  std::map<ncclComm*, std::shared_ptr<ncclComm>> communicators;  // that are alive
  std::map<std::string, ncclResult_t, std::less<>> failures;
  std::map<std::string, unsigned long, std::less<>> calls;
  ncclResult_t error = ncclSuccess;
  std::string text;
  bool hangs_init = false;
  unsigned next_id = 1;
};

// Never destroyed: threads of streams outlive main().
State& state();
int version();
// Counts a call; the error that it has to fail with, if any (also: this version does not have it).
ncclResult_t enter(const char* function, int since);
// Null, if the handle is none or was destroyed.
std::shared_ptr<ncclComm> find(ncclComm* handle);
bool is_ready(ncclComm& communicator);
// So many looks at a communicator find it in progress, also where it is not.
constexpr int kPolls = 3;

}  // namespace nccl_stand_in

// Opens every entry point.
#define NCCL_STAND_IN_ENTER(function, since)                                                         \
  if (const ncclResult_t entered = nccl_stand_in::enter(#function, since); entered != ncclSuccess) { \
    return entered;                                                                                  \
  }
