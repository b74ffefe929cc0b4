// A puppet show of control blocks: one rank runs its calls as in a job, and a single thread plays all of its peers.
// So a machine with two cores shows what a rank pays to poll and read the lines of many. Knows no clock and no output.
//
// The peers are played *ahead* of the rank. Each runs the steps of its own plan by the executor's code, in the order of
// its schedule, and waits for other peers as usual. Where it would wait for the rank it reads the rank's lines of an
// earlier call instead. Inputs never change, so these hold the right values once every area has been used.
// Then the rank's call finds every flag, and all its time is its own: signals, misses, sums.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bench/harness/inputs.hpp"
#include "runtime/algorithms/prove.hpp"
#include "runtime/scheduler/cached_call.hpp"
#include "runtime/scheduler/engine.hpp"
#include "runtime/scheduler/group_context.hpp"

namespace tutti::bench {

struct PuppetSetup {
  Shape shape;  // of fewer than LoweredLimits::announce_bytes
  Op op = Op::sum;
  const AlgorithmRow* row = nullptr;
  Instance instance;       // of shape.ranks ranks
  std::uint32_t rank = 0;  // the one that is no puppet
  WaitPolicy waiting;      // of that rank
};

// Steps and cache lines of the rank in one call. No times.
struct StepCounts {
  std::uint64_t signals = 0, waits = 0, passes = 0;  // passes: copies and sums
  std::uint64_t read_lines = 0;     // cache lines of peers: flags that it waits for, and payload beside them
  std::uint64_t written_lines = 0;  // of its own flags and staging; at most ResolvedEpoch::kMostWritten
};

class Puppet {
 public:
  // Connects all ranks in this process, by a first call of all of them. Takes 36 KiB for each pair of ranks.
  // Errors: unsupported for two ranks, and where control blocks do not carry the call in one epoch; those of the row.
  static Result<std::unique_ptr<Puppet>> make(const PuppetSetup& setup);
  ~Puppet();
  Puppet(const Puppet&) = delete;
  Puppet& operator=(const Puppet&) = delete;

  // Plays the peers' parts in the next call. Any thread, but never beside run(): they take turns.
  // Errors: internal if the peers wait for each other forever.
  Status play();
  // The rank's next call, to its end. Errors: internal if it would have to wait.
  Status run();

  // As many calls use every area, and all places in it, once.
  std::uint32_t priming_calls() const { return priming_calls_; }
  // Elements of the rank's output whose bits differ from the exact result; at first all may.
  std::size_t wrong_count() const;
  StepCounts counts() const;

 private:
  struct Member;
  explicit Puppet(const PuppetSetup& setup);
  Status connect(const std::vector<Schedule>& lowered);
  Status prepare(Member& member, const std::vector<Schedule>& lowered);
  Status run_first_call();

  const PuppetSetup setup_;
  Inputs inputs_;
  std::vector<std::unique_ptr<Member>> members_;
  std::unique_ptr<CachedEpoch> cached_;
  std::uint32_t priming_calls_ = 0;
};

}  // namespace tutti::bench
