// The engine of a world, with what it needs to the end. Worlds that follow from one another share one where they can,
// because opening transports is the most expensive part of a start. Knows of a world only that it has groups.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/base/trace.hpp"
#include "runtime/scheduler/engine.hpp"

namespace tutti {

// A world, for reports about operations of its groups.
class StallReceiver {
 public:
  virtual bool has_group(std::uint64_t context) = 0;
  // May block.
  virtual void on_stall(const Stall& stall) = 0;

 protected:
  ~StallReceiver() = default;
};

class WorldEngine {
 public:
  // `options.on_stall` and `options.trace` are set here. `ranks_here`: the number of ranks on this machine, which
  // `options.waiting` suits.
  WorldEngine(std::vector<std::unique_ptr<Transport>> transports, Engine::Options options,
              std::unique_ptr<Trace> trace, int ranks_here);
  WorldEngine(const WorldEngine&) = delete;
  WorldEngine& operator=(const WorldEngine&) = delete;

  Engine& engine() { return *engine_; }
  std::vector<Transport*> list_transports();
  int ranks_here() const { return ranks_here_; }

  // A world uses the engine from add() to remove(), which waits for its last report.
  void add(StallReceiver& world);
  void remove(StallReceiver& world);
  // The process ends, and the groups of `world` have left. With the last world it leaves the transports, completes
  // the trace and returns true.
  bool leave(const StallReceiver& world, std::chrono::milliseconds at_most);

 private:
  void on_stall(const Stall& stall);
  struct User {
    StallReceiver* world = nullptr;
    int reports = 0;  // under way
    bool has_left = false;
  };

  std::unique_ptr<Trace> trace_;  // null: not asked for
  int ranks_here_;
  std::mutex mutex_;
  std::condition_variable reported_;
  std::vector<std::unique_ptr<User>> users_;
  std::unique_ptr<Engine> engine_;  // last: it reports to the above until it ends
};

}  // namespace tutti
