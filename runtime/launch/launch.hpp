// Who this process is in its job: read from what the launcher that started it left in the environment and,
// where it carries one, from its store. Knows no socket of the job itself, and no environment but the one it
// is given.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "runtime/base/config.hpp"
#include "runtime/base/status.hpp"
#include "runtime/launch/store.hpp"

namespace tutti {

// One rank's place in a job, and what its ranks need to meet.
struct LaunchInfo {
  int rank = 0;
  int size = 1;
  // On this node, as the launcher counts; a size of 0: it does not say.
  int local_rank = 0;
  int local_size = 0;
  // The launcher's own number of this node, which may divide one machine into several; -1: it does not say.
  int node = -1;
  // Equal on all ranks of the job, and unlike that of any other; without odd characters. Empty for a world of
  // one.
  std::string job;
  std::string secret;    // proves membership; empty: only the user id does, which reaches one node
  std::string host;      // a name or address of the machine of rank 0, or "address:port"; empty: not told
  std::string launcher;  // "tutti run", "torchrun", "unique id", "exchange", "none"
  std::shared_ptr<Store> store;  // null: the launcher carries none

  bool may_span_nodes() const { return size > 1 && local_size != size; }
};

// Recognises, in this order: `tutti run` (TUTTI_JOB_ID with TUTTI_RANK, TUTTI_SIZE, TUTTI_LOCAL_RANK,
// TUTTI_LOCAL_SIZE, TUTTI_SECRET, TUTTI_ADDRESS), torchrun and programs that set the same variables by hand
// (RANK or WORLD_SIZE), nothing: a world of one. Errors: invalid_argument naming the variable that is
// missing, wrong or contradicts another, and what was expected.
Result<LaunchInfo> detect_launch(const Environment& environment);

// A fresh identifier of a job: text without spaces that one process makes and hands to all others by any
// means. It holds the secret of the job, so whoever reads it can join, and the name of this machine: rank 0
// of a job on several nodes must be a process of it.
Result<std::string> new_unique_id();
// The place of `rank` of `size` in the job of that id. Errors: invalid_argument.
Result<LaunchInfo> launch_from_unique_id(std::string_view id, int rank, int size);

}  // namespace tutti
